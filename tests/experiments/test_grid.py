"""A grid trains what is missing, reuses what is there, and is recorded only when it can be trusted."""

import pandas as pd
import pytest

from agpo_core import paths, provenance, recipes
from agpo_core.config import ConfigError
from agpo_core.experiments import grid, profiles, records
from agpo_core.recipes import RECIPES

NAME = "table"


def jobs_by_key(params) -> dict:
    return {(job.arm.name, job.seed, job.start): job for job in grid.plan(NAME, params)}


# -- planning -----------------------------------------------------------------------------------------


def test_seeds_alternate_over_starts_or_cross_them(launched, params):
    chosen = params | {"methods": ["grpo"]}
    alternating = [(job.seed, job.start) for job in grid.plan(NAME, chosen)]
    assert alternating == [(42, "tiny-qwen2-a"), (1337, "tiny-qwen2-b"), (2026, "tiny-qwen2-c")]
    two = chosen | {"models": chosen["models"][:2]}
    assert [job.start for job in grid.plan(NAME, two)] == ["tiny-qwen2-a", "tiny-qwen2-b", "tiny-qwen2-a"]
    crossed = grid.plan(NAME, two | {"cross_starts": True})
    assert len({(job.seed, job.start) for job in crossed}) == 3 * 2


def test_a_start_is_evaluated_once_whatever_the_seeds(launched, params):
    chosen = params | {"methods": ["start"], "models": params["models"][:2]}
    jobs = grid.plan(NAME, chosen)
    assert [job.start for job in jobs] == ["tiny-qwen2-a", "tiny-qwen2-b"]
    assert all(job.config.horizon == 0 for job in jobs)
    other = grid.plan(NAME, chosen | {"seeds": [7, 8]})
    assert [job.folder for job in other] == [job.folder for job in jobs]


def test_where_a_seed_has_its_own_training_problems_the_start_is_evaluated_for_each(launched, params):
    jobs = grid.plan(NAME, params | {"methods": ["start", "grpo"], "train_problems": 30})
    starts = [(job.seed, job.start) for job in jobs if job.arm.name == "start"]
    assert starts == [(job.seed, job.start) for job in jobs if job.arm.name == "grpo"]
    assert {job.config.seed for job in jobs if job.arm.name == "start"} == {42, 1337, 2026}


def test_an_arm_is_its_method_with_its_own_settings(launched, params):
    jobs = jobs_by_key(params)
    of = {arm: jobs[arm, 42, "tiny-qwen2-a"].config for arm in params["methods"] if arm != "start"
          and not grid.ARMS[arm].follows}  # fmt: skip
    assert (of["grpo"].clip, of["grpo"].temperature) == ("fixed", "fixed")
    assert (of["grpo_ats"].clip, of["grpo_ats"].temperature) == ("fixed", "adaptive")
    assert (of["agpo_no_ats"].clip, of["agpo_no_ats"].temperature) == ("adaptive", "fixed")
    assert (of["agpo"].clip, of["agpo"].temperature) == ("adaptive", "adaptive")
    assert of["grpo_narrow"] == of["grpo"].replace(epsilon_base=0.05)
    assert of["agpo_relative_entropy"] == of["agpo"].replace(clip_entropy="ratio_ema")
    assert grid.ARMS["agpo"].adapts == ["epsilon", "tau"] and not grid.ARMS["grpo"].adapts


def test_a_folder_names_arm_seed_start_and_hash(launched, params):
    job = jobs_by_key(params)["agpo", 1337, "tiny-qwen2-b"]
    assert job.folder.name == f"agpo-s1337-tiny-qwen2-b-{job.config.hash()}"
    assert job.folder.parent == paths.runs() / NAME / "tiny"
    assert grid.start_name("outputs/models/SmolLM2-135M-Instruct") == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learning_rat": 1.0}, "unknown parameter 'learning_rat': did you mean 'learning_rate'"),
        ({"learning_rate": "1e-6"}, "learning_rate must be a number, got the text '1e-6'"),
        ({"learning_rate_agpo": 1.0e-6}, "unknown parameter 'learning_rate_agpo': did you mean 'learning_rate'"),
        ({"clip": "fixed"}, "unknown parameter 'clip'"),
        ({"methods": ["grpo", "grpo_narow"]}, "unknown arm 'grpo_narow'; choose from start, grpo"),
        ({"methods": ["grpo_matched_updates"]}, "grpo_matched_updates follows agpo; add agpo"),
        ({"methods": []}, "methods must name at least one"),
        ({"seeds": [1, 1]}, "seeds must name at least one, each once"),
        ({"run_mode": "trian"}, "run_mode must be one of replay, train, plan; got 'trian'"),
        ({"ranks": 2.0}, "ranks must be int, got 2.0"),
        ({"test_problems": 0}, "test_problems is 0"),
        ({"horizon": -1.0}, "horizon must be 0 or more"),
    ],
)
def test_a_bad_parameter_is_named_with_its_remedy(launched, params, changed, message):
    with pytest.raises(ConfigError, match=message):
        grid.plan(NAME, params | changed)


def test_a_missing_parameter_is_named(launched, params):
    del params["ranks"]
    with pytest.raises(ConfigError, match="parameter 'ranks' is missing"):
        grid.plan(NAME, params)


def test_the_parameters_of_a_record_can_be_planned_though_it_is_older_than_some(launched, params):
    older = {name: value for name, value in params.items() if name not in grid.YOUNG}
    assert [job.folder for job in grid.plan(NAME, older)] == [job.folder for job in grid.plan(NAME, params)]


@pytest.mark.parametrize("model", ["tiny-qwen3-a", "outputs/models/nowhere-1", "./nowhere", "nobody/such-a-model"])
def test_a_start_that_no_run_could_load_is_refused_before_any_is_started(launched, params, model):
    chosen = params | {"methods": ["grpo"], "models": [model, "tiny-qwen2-a"]}
    assert grid.plan(NAME, chosen)  # a start that does not exist yet can be planned
    with pytest.raises(ConfigError, match=f"models: '{model}' is no"):
        grid.run(NAME, chosen)
    assert not launched


# -- training -----------------------------------------------------------------------------------------


def test_every_run_of_the_grid_is_trained_and_read(launched, params):
    results = grid.run(NAME, params)
    arms = 8 * 3 + 3  # eight arms of three seeds, and their three starts
    assert len(results.runs) == arms * 9
    assert results.runs["hash"].nunique() == arms
    assert list(results.runs.columns) == records.RUN_COLUMNS
    assert list(results.traces.columns) == records.TRACE_COLUMNS
    trained = results.runs[results.runs["arm"] != "start"]  # a start has no gradients
    assert trained.notna().all(axis=None)
    assert {line["arm"] for line in results.meta["warnings"]} == {"agpo", "agpo_relative_entropy"}
    assert results.title == "micro scale, seeds 42, 1337, 2026, 3 starts"
    assert len(results.meta["runs"]) == arms and results.meta["commit"] == ["c0ffee"]


def test_the_update_matched_control_runs_after_agpo_for_as_many_updates(launched, params):
    results = grid.run(NAME, params)
    first, second = launched
    assert not [name for name in first if name.startswith("grpo_matched")]
    assert len(second) == 6 and all(name.startswith("grpo_matched_") for name in second)
    updates = results.runs.drop_duplicates(["arm", "seed"]).set_index(["arm", "seed"])["updates"]
    for seed in params["seeds"]:
        # 30 000 tokens / (2 phases x 1500) = 10 updates; GRPO makes 20
        assert updates["grpo_matched_updates", seed] == updates["agpo", seed] == 10
        assert updates["grpo", seed] == 20
    job = jobs_by_key(params)["grpo_matched_updates", 42, "tiny-qwen2-a"]
    assert recipes.load(job.folder / "config.yaml") == job.config
    assert (job.config.horizon_unit, job.config.horizon) == ("updates", 10.0)


def test_the_compute_matched_control_generates_as_many_tokens_as_agpos_compute_buys(launched, params):
    methods = ["grpo", "agpo", "grpo_matched_compute"]
    results = grid.run(NAME, params | {"methods": methods, "beta": 0.03, "epochs": 2})
    runs = results.runs.drop_duplicates(["arm", "seed"]).set_index(["arm", "seed"])
    agpo = runs.loc["agpo", 42]
    # A trained token costs 3 forwards, 1 of the reference, 2 epochs of 3; a probe's token costs 1.
    bought = (10 * agpo["tokens_train"] + agpo["tokens_probe"]) / 10
    config = jobs_by_key(params | {"methods": methods, "beta": 0.03, "epochs": 2})[
        "grpo_matched_compute", 42, "tiny-qwen2-a"
    ].config
    assert (config.horizon_unit, config.horizon) == ("tokens", round(bought))
    assert bought < agpo["tokens_train"] + agpo["tokens_probe"]


def test_finished_runs_are_reused_and_unfinished_ones_go_on(launched, params):
    grid.run(NAME, params)
    launched.clear()
    again = grid.run(NAME, params)
    assert launched == []
    job = jobs_by_key(params)["grpo_ats", 42, "tiny-qwen2-a"]
    record = provenance.read_json(job.folder / "run.json")
    provenance.write_json(job.folder / "run.json", record | {"status": "failed"})
    (job.folder / "metrics.jsonl").unlink()
    pd.testing.assert_frame_equal(grid.run(NAME, params).runs, again.runs)
    assert launched == [[job.folder.name]]


def test_a_finished_run_of_another_experiment_with_the_same_settings_is_read_where_it_lies(launched, params):
    chosen = params | {"methods": ["grpo", "agpo"]}
    first = grid.run("another", chosen)
    launched.clear()
    again = grid.run(NAME, chosen | {"methods": ["agpo"]})
    assert launched == []
    assert list(again.runs["hash"].unique()) == list(first.runs.query("arm == 'agpo'")["hash"].unique())
    jobs = jobs_by_key(chosen | {"methods": ["agpo"]}).values()
    assert {job.folder.parent for job in jobs} == {paths.runs() / "another" / "tiny"}
    (next(iter(jobs)).folder / "run.json").unlink()  # no longer a finished run: trained in its own place
    grid.run(NAME, chosen | {"methods": ["agpo"]})
    assert [len(call) for call in launched] == [1]
    assert len(list((paths.runs() / NAME / "tiny").glob("agpo-*"))) == 1


def test_a_changed_setting_makes_other_runs(launched, params):
    grid.run(NAME, params | {"methods": ["grpo"]})
    grid.run(NAME, params | {"methods": ["grpo"], "beta": 0.1})
    first, second = map(set, launched)
    assert len(first) == len(second) == 3 and not first & second


def test_a_launcher_that_leaves_a_run_unfinished_is_not_asked_again(launched, params, monkeypatch):
    from agpo_core.jobs import launch

    monkeypatch.setattr(launch, "launch", lambda run_dirs, **options: None)
    with pytest.raises(RuntimeError, match="runs did not finish: .*agpo-s42.*see their train.log"):
        grid.run(NAME, params)


def test_an_interrupt_says_how_to_go_on_and_shows_no_traceback(launched, params, monkeypatch, capsys):
    def interrupt(run_dirs, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(grid.launch, "launch", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        grid.run(NAME, params)
    assert caught.value._render_traceback_() == [grid.INTERRUPTED]
    with pytest.raises(SystemExit, match="130"):
        grid.main(["record", NAME, "smoke"])
    assert capsys.readouterr().err == f"\n{grid.INTERRUPTED}\n"


def test_the_budget_columns_follow_the_ledger(launched, params):
    runs = grid.run(NAME, params | {"methods": ["agpo"]}).runs.drop_duplicates("hash")
    assert (runs["tokens_train"] == 15_000).all() and (runs["tokens_probe"] == 15_000).all()
    assert (runs["tokens_last"] == 3_000).all() and (runs["seconds"] == 10.0).all()


def test_a_trace_holds_each_update_and_the_start_on_dev(launched, params):
    traces = grid.run(NAME, params | {"methods": ["agpo"], "seeds": [42]}).traces
    assert traces["update"].tolist() == list(range(11))
    assert traces.loc[0, "dev"] == pytest.approx(0.36) and pd.isna(traces.loc[0, "tau"])
    assert traces["dev"].notna().sum() == 5
    assert traces.loc[1:, "tokens"].tolist() == [1500] * 10


def test_runs_with_a_reward_model_or_a_tool_have_further_columns(launched, params):
    """Gold and KL at each evaluation, and tool calls at each update; other runs of the grid have no value there."""
    chosen = params | {"methods": ["grpo"], "seeds": [42, 1337]}
    plain = grid.run(NAME, chosen)
    folder = jobs_by_key(chosen)["grpo", 42, "tiny-qwen2-a"].folder
    evaluations = provenance.read_json(folder / "eval.json")
    for i, point in enumerate([*evaluations["dev"], evaluations["test"]]):
        point["sampled"] = {"gold": 0.5 + i / 100, "score": -1.0 + i, "kl": 2.0 * i, "length": 5.0 + i}
    provenance.write_json(folder / "eval.json", evaluations)
    updates = provenance.read_jsonl(folder / "metrics.jsonl")
    (folder / "metrics.jsonl").unlink()
    for row in updates:
        tool = {"tool_share": 0.5, "tool_calls": float(row["update"]), "tool_failures": 0.25}
        provenance.append_jsonl(folder / "metrics.jsonl", row | tool)
    results = grid.run(NAME, chosen)
    sampled, tools = ["gold", "score", "kl", "length"], ["tool_share", "tool_calls", "tool_failures"]
    of_runs, of_traces = [f"sampled_{name}" for name in sampled], [*tools, *(f"dev_{name}" for name in sampled)]
    assert list(results.runs.columns) == [*records.RUN_COLUMNS, *of_runs]
    assert list(results.traces.columns) == [*records.TRACE_COLUMNS, *of_traces]
    of_run, of_trace = (table[table["seed"] == 42] for table in (results.runs, results.traces))
    assert (of_run[of_runs] == [0.55, 4.0, 10.0, 10.0]).all(axis=None)  # after five points of dev
    assert of_trace["dev_kl"].dropna().tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert of_trace["dev_gold"].notna().tolist() == of_trace["dev"].notna().tolist()
    assert of_trace["tool_calls"].tolist()[1:] == list(range(1, 21))  # the start has made no update
    assert results.runs.query("seed == 1337")[of_runs].isna().all(axis=None)
    pd.testing.assert_frame_equal(results.runs[records.RUN_COLUMNS], plain.runs)
    grid.promote(NAME, "tiny")
    record = records.load(NAME, "tiny")
    for ours, theirs in ((record.runs, results.runs), (record.traces, results.traces)):
        pd.testing.assert_frame_equal(ours, theirs, rtol=5.1e-5, check_dtype=False)


def test_the_columns_of_few_problems_and_of_sampled_completions_are_there_where_runs_have_them(launched, params):
    chosen = params | {"methods": ["grpo"], "seeds": [42], "tasks": ["steps"], "test_tasks": ["steps", "programs"]}
    grid.run(NAME, chosen)
    (job,) = grid.plan(NAME, chosen)
    file = job.folder / "eval.json"
    found = provenance.read_json(file)
    found["test"] |= {
        "score": {"steps": 0.4, "programs": 0.5},
        "samples": 16,
        "right": {"steps": [0, 8, 16, 4], "programs": [0, 0, 0, 1]},
    }
    found["trained_on"] = {"score": {"steps": 0.9}, "samples": 16, "right": {"steps": [16, 16, 12, 0]}}
    found["train"] = [point | {"macro": 0.1 * i} for i, point in enumerate(found["dev"])]
    provenance.write_json(file, found)
    results = grid.run(NAME, chosen)
    runs = results.runs.set_index("task")
    further = ["pass_1", "pass_16", "train_score", "train_pass_1", "train_pass_16"]
    assert list(results.runs.columns) == [*records.RUN_COLUMNS, *further]
    # (0 + 8 + 16 + 4) / 64; three of four problems have a right one among 16
    assert runs.loc["steps", ["score", "pass_1", "pass_16"]].tolist() == pytest.approx([0.4, 28 / 64, 0.75])
    assert runs.loc["programs", ["score", "pass_1", "pass_16"]].tolist() == pytest.approx([0.5, 1 / 64, 0.25])
    assert runs.loc["steps", further[2:]].tolist() == pytest.approx([0.9, 44 / 64, 0.75])
    assert runs.loc["programs", further[2:]].isna().all()  # not trained on
    trace = results.traces
    assert list(trace.columns) == [*records.TRACE_COLUMNS, "train"]
    assert trace["train"].dropna().tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert (trace["train"].notna() == trace["dev"].notna()).all()
    grid.promote(NAME, "tiny")
    replayed = records.load(NAME, "tiny").runs[["task", "score", *further]]
    pd.testing.assert_frame_equal(replayed, results.runs[replayed.columns], rtol=1e-4)


def test_pass_8_is_told_from_eight_samples_and_pass_16_is_not(launched, params):
    point = {"score": {"steps": 0.4}, "samples": 8, "right": {"steps": [4, 0]}}
    assert records._scores(point, "steps") == {"score": 0.4, "pass_1": 0.25, "pass_8": 0.5}


def test_pass_16_is_not_told_from_fewer_samples(launched, params):
    point = {"score": {"steps": 0.4}, "samples": 4, "right": {"steps": [4, 0]}}
    assert records._scores(point, "steps") == {"score": 0.4, "pass_1": 0.5}
    assert records._scores(point, "programs", "train_") == {}


# -- recording and replaying ----------------------------------------------------------------------------


def test_a_record_replays_what_was_trained_to_five_digits(launched, params):
    trained = grid.run(NAME, params)
    to = grid.promote(NAME, "tiny")
    assert sorted(file.name for file in to.iterdir()) == ["meta.json", "runs.csv", "traces.csv"]
    replayed = grid.run(NAME, params | {"run_mode": "replay"})
    for name in ("runs", "traces"):
        # 5 significant digits: half a unit of the fifth, relative to the smallest leading digit
        ours, theirs = getattr(replayed, name), getattr(trained, name)
        pd.testing.assert_frame_equal(ours, theirs, rtol=5.1e-5, check_dtype=False)
    assert replayed.meta == trained.meta


def test_a_replay_shows_the_chosen_arms_and_all_recorded_seeds(launched, params, capsys):
    grid.run(NAME, params)
    grid.promote(NAME, "tiny")
    replayed = grid.run(NAME, params | {"run_mode": "replay", "methods": ["grpo"], "seeds": [1]})
    assert set(replayed.runs["arm"]) == set(replayed.traces["arm"]) == {"grpo"}
    assert set(replayed.runs["seed"]) == {42, 1337, 2026}
    assert capsys.readouterr().out == ""


def test_a_replay_says_what_the_record_was_made_with(launched, params, capsys):
    grid.run(NAME, params)
    grid.promote(NAME, "tiny")
    grid.run(NAME, params | {"run_mode": "replay", "beta": 0.5})
    assert "The record was made with beta 0.03, not 0.5." in capsys.readouterr().out


def test_a_replay_without_a_record_says_what_to_do(launched, params):
    with pytest.raises(FileNotFoundError, match="no record of table under profile 'tiny'.*train"):
        grid.run(NAME, params | {"run_mode": "replay"})


def test_a_record_names_no_folder_of_the_machine(launched, params, tmp_path):
    grid.run(NAME, params | {"methods": ["grpo"], "data_dir": str(tmp_path / "gsm8k")})
    to = grid.promote(NAME, "tiny")
    assert provenance.read_json(to / "meta.json")["params"]["data_dir"] == "gsm8k"
    assert str(tmp_path) not in "".join(file.read_text() for file in to.iterdir())


def test_unfinished_runs_and_uncommitted_changes_are_not_promoted(launched, params):
    with pytest.raises(FileNotFoundError, match="table was not run under profile 'tiny'"):
        grid.promote(NAME, "tiny")
    grid.run(NAME, params | {"methods": ["grpo", "agpo"]})
    job = jobs_by_key(params)["agpo", 42, "tiny-qwen2-a"]
    record = provenance.read_json(job.folder / "run.json")
    for commit in ("c0ffee-dirty", "unknown"):
        provenance.write_json(job.folder / "run.json", record | {"commit": commit})
        with pytest.raises(ValueError, match=rf"not made from a commit: agpo-s42-.*\({commit}\)"):
            grid.promote(NAME, "tiny")
    provenance.write_json(job.folder / "run.json", record | {"status": "running"})
    with pytest.raises(ValueError, match="not finished: agpo-s42-tiny-qwen2-a"):
        grid.promote(NAME, "tiny")
    assert records.load(NAME, "tiny") is None


def test_the_command_line_promotes_or_says_why_not(launched, params, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    with pytest.raises(SystemExit, match="2"):
        grid.main(["promote", NAME, "tiny"])
    assert "was not run under profile" in capsys.readouterr().err
    grid.run(NAME, params | {"methods": ["grpo"]})
    grid.main(["promote", NAME, "tiny"])
    assert "reference/tiny/table: meta.json, runs.csv, traces.csv" in capsys.readouterr().out


def test_a_record_is_trained_with_the_seeds_given_and_may_keep_the_runs_files(launched):
    to = grid.record(NAME, "smoke", {"seeds": [7]}, runs_to="kept")
    assert set(pd.read_csv(to / "runs.csv").query("arm != 'start'")["seed"]) == {7}
    kept = paths.reference() / "kept" / "agpo-s7-tiny-qwen2-a"
    assert sorted(file.name for file in kept.iterdir()) == [
        "config.yaml", "eval.json", "metrics.jsonl", "run.json",
    ]  # fmt: skip


def test_the_kept_settings_of_a_run_name_no_folder_of_the_machine(launched, params, tmp_path):
    grid.run(NAME, params | {"methods": ["grpo"], "data_dir": str(tmp_path / "official")})
    grid.promote(NAME, "tiny", runs_to="kept")
    for folder in (paths.reference() / "kept").iterdir():
        assert str(tmp_path) not in "".join(file.read_text() for file in folder.iterdir())
        assert "data_dir: official\n" in (folder / "config.yaml").read_text()


def test_promote_refuses_what_only_a_record_can_change(capsys):
    with pytest.raises(SystemExit, match="2"):
        grid.main(["promote", NAME, "tiny", "--seeds", "1"])
    assert "seeds: only for record" in capsys.readouterr().err


def test_a_failed_job_or_a_folder_in_use_ends_the_command_in_a_line(launched, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("agpo-s1 is being trained by another process")

    monkeypatch.setattr(grid, "record", fail)
    with pytest.raises(SystemExit) as ended:
        grid.main(["record", NAME, "tiny"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: agpo-s1 is being trained by another process\n")


# -- run_mode plan --------------------------------------------------------------------------------------


def test_the_papers_plan_is_printed_without_weights_and_says_that_it_does_not_fit(launched, capsys):
    results = grid.run(NAME, profiles.settings(NAME, "paper"))
    assert results.runs.empty and results.traces.empty and results.title == "nothing was run"
    printed = capsys.readouterr().out
    assert launched == [] and not (paths.runs() / NAME).exists()
    assert "25 jobs, 0 finished" in printed
    assert "Qwen/Qwen2.5-14B, 14.77 B parameters in bfloat16" in printed
    assert "It does not fit without offload." in printed
    # 300 M / 2730 = 30.5 h for GRPO, 300 M / 2640 = 31.6 h with a probe
    assert "30.5 h" in printed and "31.6 h" in printed
    assert "the updates of AGPO  150,000,000" in printed
    # A trained token costs 10 forwards, a probe's 1: 150 M + 150 M / 10.
    assert "the compute of AGPO  165,000,000" in printed


def test_a_method_of_one_completion_a_prompt_gets_as_many_rollouts_as_the_others(launched, params):
    methods = ["grpo", "reinforce_pp", "remax"]
    jobs = jobs_by_key(params | {"methods": methods, "prompts_per_update": 36, "group_size": 8})
    drawn = {m: jobs[m, 42, "tiny-qwen2-a"].config for m in methods}
    assert (drawn["grpo"].prompts_per_update, drawn["grpo"].group_size) == (36, 8)
    assert (drawn["reinforce_pp"].prompts_per_update, drawn["reinforce_pp"].group_size) == (288, 1)  # 36 * 8
    assert (drawn["remax"].prompts_per_update, drawn["remax"].group_size) == (144, 1)  # and one greedy each


@pytest.mark.parametrize("method", RECIPES)
def test_every_recipe_is_an_arm(method):
    assert any(arm.method == method for arm in grid.ARMS.values())
