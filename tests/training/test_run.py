"""The problems that a run is trained and tested on, and how often it is evaluated."""

import dataclasses
import json

import pytest
import torch
from accelerate import Accelerator

from agpo_core import provenance
from agpo_core.config import ConfigError
from agpo_core.evaluation.evaluate import complete_and_grade, votes
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import TransformersEngine, score
from agpo_core.training.problems import training_problems
from agpo_core.training.run import Run
from agpo_core.training.train import train

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")


def trained(config, folder):
    folder.mkdir(exist_ok=True)
    train(config, folder)
    return json.loads((folder / "eval.json").read_text())


# -- a few training problems


def test_a_few_problems_are_drawn_by_the_seed_whatever_the_method(config, toy):
    def drawn(**params):
        return [p.id for p in training_problems(config(train_problems=5, **params), {"toy": toy})["toy"]]

    first = drawn(seed=1)
    assert len(set(first)) == 5
    assert first == sorted(first, key=[p.id for p in toy.problems("train")].index)
    assert drawn(seed=1, method="reinforce_pp_baseline", learning_rate=0.1) == first
    assert len({tuple(drawn(seed=seed)) for seed in range(20)}) > 15
    assert {name for seed in range(50) for name in drawn(seed=seed)} == {p.id for p in toy.problems("train")}


def test_each_task_gives_as_many_and_all_where_no_number_is_set(config, toy):
    tasks = {"a": type(toy)("a"), "b": type(toy)("b")}
    pools = training_problems(config(train_problems=5), tasks)
    assert {name: len(pool) for name, pool in pools.items()} == {"a": 5, "b": 5}
    assert [p.id for p in pools["a"]] != [p.id for p in pools["b"]]
    assert training_problems(config(), tasks)["a"] == tasks["a"].problems("train")


def test_more_training_problems_than_there_are_raise(config, toy):
    with pytest.raises(ConfigError, match="'toy' has 24 train problems, 25 were asked for: lower train_problems"):
        training_problems(config(train_problems=25), {"toy": toy})


def test_updates_draw_the_few_problems_equally_often(config, tmp_path):
    run = Run(config(train_problems=6), tmp_path)
    drawn = [problem.id for update in range(3) for problem in run.sampler.prompts(update).problems]  # 12 prompts
    few = {problem.id for problem in run.pools["toy"]}
    assert len(few) == 6 and sorted(drawn) == sorted([*few, *few])


def test_the_few_problems_have_a_learning_curve_and_a_last_score(config, tmp_path):
    found = trained(config(train_problems=6, eval_every=0.3), tmp_path)
    assert [point["update"] for point in found["train"]] == [point["update"] for point in found["dev"]] == [0, 1, 2, 3]
    assert all(point["problems"] == 6 and "rewards" not in point for point in found["train"])
    last = found["trained_on"]
    assert last["macro"] == found["train"][-1]["macro"] == pytest.approx(sum(last["rewards"]["toy"]) / 6)


def test_a_run_that_goes_on_keeps_its_learning_curve(config, tmp_path):
    c = config(train_problems=6, eval_every=0.3, checkpoint_every=0.3)
    whole = trained(c, tmp_path / "whole")
    (tmp_path / "parts").mkdir()
    train(c, tmp_path / "parts", stop_after=2)
    parts = trained(c, tmp_path / "parts")
    assert parts["train"] == whole["train"] and parts["trained_on"] == whole["trained_on"]


# -- other tasks to test on


def test_the_test_is_made_on_its_own_tasks_and_training_does_not_notice(config, tmp_path):
    plain, other = (tmp_path / name for name in ("plain", "other"))
    without = trained(config(), plain)
    found = trained(config(test_tasks=["b", "toy", "c"]), other)
    assert list(found["test"]["score"]) == ["b", "toy", "c"]
    assert found["test"]["macro"] == pytest.approx(sum(found["test"]["score"].values()) / 3)
    assert found["test"]["rewards"]["toy"] == without["test"]["rewards"]["toy"]
    assert found["dev"] == without["dev"]

    def lines(folder):
        timed = ("seconds", "seconds_left")
        rows = provenance.read_jsonl(folder / "metrics.jsonl")
        return [{name: value for name, value in row.items() if name not in timed} for row in rows]

    assert lines(plain) == lines(other)


def test_a_task_that_is_tested_alone_keeps_its_whole_test_split(config, tmp_path, monkeypatch, toy):
    asked = {}

    def get_task(name, data_dir=None, train_on_evaluation_sets=False):
        asked[name] = train_on_evaluation_sets
        return type(toy)(name)

    monkeypatch.setattr("agpo_core.training.run.get_task", get_task)
    Run(config(test_tasks=["other"], train_on_evaluation_sets=True), tmp_path)
    assert asked == {"toy": True, "other": False}


def test_too_few_test_problems_are_found_before_training(config, tmp_path):
    with pytest.raises(ConfigError, match="'b' has 8 test problems, 9 were asked for: lower test_problems"):
        train(config(test_tasks=["b"], test_problems=9), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_null_takes_all_the_problems_of_tasks_of_different_sizes(config, tmp_path, monkeypatch, toy):
    def get_task(name, *_):
        task = type(toy)(name)
        if name == "b":  # five of its eight
            task.problems = lambda split: toy.problems(split)[:5]
        return task

    monkeypatch.setattr("agpo_core.training.run.get_task", get_task)
    found = trained(config(test_tasks=["toy", "b"], dev_problems=None, test_problems=None, horizon=1.0), tmp_path)
    assert found["test"]["problems"] == {"toy": 8, "b": 5}
    assert [len(found["test"]["rewards"][name]) for name in ("toy", "b")] == [8, 5]
    assert found["dev"][0]["problems"] == len(toy.problems("dev"))


def test_long_training_prompts_are_left_out_and_long_test_prompts_are_wrong(
    config, tmp_path, toy, monkeypatch, capsys
):  # fmt: skip
    def get_task(name, *_):
        task = type(toy)(name)
        task.problems = lambda split: [
            dataclasses.replace(problem, prompt=problem.prompt + "1" * (40 * (i % 4 == 1)))
            for i, problem in enumerate(toy.problems(split))
        ]
        return task

    monkeypatch.setattr("agpo_core.training.run.get_task", get_task)
    c = config(max_sequence_tokens=30, horizon=1.0)
    run = Run(c, tmp_path)
    pool = run.pools["toy"]
    assert pool == [problem for problem in get_task("toy").problems("train") if len(problem.prompt) < 40]
    assert f"{len(toy.problems('train')) - len(pool)} training prompts leave no room" in capsys.readouterr().out
    found = complete_and_grade(run.engine, run.tasks, {"toy": run.test["toy"]}, run.accelerator, 2, tau=1.0)
    short = toy.problems("test")[: len(run.test["toy"])]
    plain = complete_and_grade(run.engine, run.tasks, {"toy": short}, run.accelerator, 2, tau=1.0)
    for ours, theirs, unasked in ((found.rewards, plain.rewards, [0.0, 0.0]), (found.votes, plain.votes, [0])):
        assert ours["toy"] == [unasked if i % 4 == 1 else row for i, row in enumerate(theirs["toy"])]
    with pytest.raises(ConfigError, match="no training prompt of toy fits"):
        Run(config(max_sequence_tokens=6), tmp_path)  # 6 of them are the answer's


# -- several completions a problem


@pytest.fixture
def engine(config):
    c = config()
    return TransformersEngine(*load_policy(c), c)


def test_sampled_completions_are_those_of_each_problems_own_stream(engine, toy):
    problems = toy.problems("test")
    found = complete_and_grade(engine, {"toy": toy}, {"toy": problems}, Accelerator(), 5, tau=1.0)
    expected, counted, count = [], [], 0
    for slot, problem in enumerate(problems):  # one problem, one sample at a time
        prompts, row, answers = engine.encode([problem], [slot]), [], []
        for sample in range(5):
            tau_P = torch.ones(1)
            alone = engine.sample(prompts, engine.open(prompts), 1, tau_P, "evaluation", 0, first_sample=sample)
            score(alone, {"toy": toy})
            row += alone.rewards_B.tolist()
            answers += alone.answers
            count += alone.tokens
        expected.append(row)
        counted.append(votes(answers, row))
    assert found.rewards == {"toy": expected} and found.votes == {"toy": counted} and found.tokens == count
    assert 0 < sum(map(sum, expected)) < 40


@pytest.mark.parametrize("rollout_batch", [1, 3, 11])
def test_sampled_completions_do_not_change_with_the_batch(config, toy, engine, rollout_batch):
    other = TransformersEngine(engine.model, engine.tokenizer, config(rollout_batch=rollout_batch))
    problems = {"toy": toy.problems("test")}
    found = [complete_and_grade(e, {"toy": toy}, problems, Accelerator(), 4, tau=1.0) for e in (engine, other)]
    assert found[0] == found[1]


def test_the_end_of_a_run_counts_the_right_completions_beside_the_greedy_score(config, tmp_path):
    plain = trained(config(), tmp_path / "plain")["test"]
    found = trained(config(test_samples=5, train_problems=6, horizon=0.0), tmp_path / "sampled")
    assert not {"right", "samples", "votes"} & plain.keys()
    for name, problems in (("test", 4), ("trained_on", 6)):
        right = found[name]["right"]["toy"]
        assert found[name]["samples"] == 5
        assert len(right) == problems and all(0 <= count <= 5 for count in right)
        kept = found[name]["votes"]["toy"]
        assert len(kept) == problems and any(len(counts) > 1 for counts in kept)
        for most, (first, *others) in zip(right, kept, strict=True):  # the toy task has several right answers
            assert (first > 0) == (most > 0) and first <= most and first + sum(others) <= 5
        assert 0 < sum(right) < 5 * problems
    again = trained(config(test_samples=5, train_problems=6, horizon=0.0), tmp_path / "again")
    assert again == found


def test_near_temperature_0_every_sample_is_the_greedy_one(config, tmp_path):
    c = config(test_samples=3, tau_base=1.0e-6, tau_min=1.0e-6, horizon=0.0)
    test = trained(c, tmp_path)["test"]
    assert test["right"]["toy"] == [3 * reward for reward in test["rewards"]["toy"]]


def test_a_run_makes_its_folder(config, toy_tasks, tmp_path):
    train(config(horizon=1.0), tmp_path / "new" / "run")
    assert (tmp_path / "new" / "run" / "policy").is_dir()
