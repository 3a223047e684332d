"""Two DeepSpeed ranks on the CPU see what one process sees; one start of the launcher serves all fast tests."""

import importlib.util
import socket
import subprocess

import pytest
import torch

from agpo_core import paths, provenance
from agpo_core.jobs import launch
from agpo_core.recipes import RECIPES
from tests.training.two_ranks import DETAILS

MODULE = "tests.training.two_ranks"
UPDATES = 3
SHORT = {"max_completion_tokens": 64}
FAST = {  # {name: [recipe, settings]}: one that normalises over all ranks, one with a critic, with adapters, on pairs
    "reinforce_pp_k": ["reinforce_pp_k", SHORT],
    "ppo": ["ppo", SHORT],
    "agpo_global_lora": ["agpo_global", {"lora_rank": 4, **SHORT}],
    "dpo": ["dpo", SHORT],
}
ALL = {
    name + suffix: [name, settings]
    for name in RECIPES
    for suffix, settings in {"": {}, "_lora": {"lora_rank": 4}}.items()
}

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs the package deepspeed")


def start(words, folder):
    """Start what `launch` would start, with the observing module in place of the training one."""
    words = [MODULE if word == "agpo_core.training.train" else word for word in words]
    env = {**launch.environment(), "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    with open(folder / "log", "w") as log:
        return subprocess.Popen(words, cwd=paths.root(), env=env, stdout=log, stderr=log)


def observed(config, variants, folders, timeout):
    """Train the variants by one process and by two ranks, side by side; what was seen by the one and by each rank."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    words = {
        "one": launch.command(folders["one"]),
        "two": launch.command(folders["two"], "deepspeed", ranks=2, master_port=port),
    }
    jobs = []
    try:
        for name, folder in folders.items():
            config.save(folder / "config.yaml")
            provenance.write_json(folder / "variants.json", variants)
            jobs.append(start(words[name], folder))
        for job, folder in zip(jobs, folders.values(), strict=True):
            assert job.wait(timeout=timeout) == 0, (folder / "log").read_text()[-3000:]
    finally:
        for job in jobs:
            job.terminate()
    one = provenance.read_json(folders["one"] / "rank0.json")
    return one, [provenance.read_json(folders["two"] / f"rank{r}.json") for r in range(2)], folders


@pytest.fixture(scope="module")
def small(config):
    return config(
        "agpo",
        tasks=["a", "b"],
        prompts_per_update=8,
        micro_batch_prompts=1,
        learning_rate=2.0e-4,
        epsilon_base=0.06,
        checkpoint_every=0.3,
    )


@pytest.fixture(scope="module")
def seen(small, tmp_path_factory):
    """What was seen: (by the one process, by each of the two ranks), and the run folders."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("one", "two")}
    return observed(small, {DETAILS: True, **FAST}, folders, timeout=600)


@pytest.fixture(scope="module")
def seen_of_all(small, tmp_path_factory):
    """The same of every recipe, with all weights and with LoRA."""
    folders = {name: tmp_path_factory.mktemp(f"all-{name}") for name in ("one", "two")}
    return observed(small, ALL, folders, timeout=3000)


def updates(record, part="straight"):
    return [entry for entry in record[part] if "slots" in entry]


def assert_close(found, expected, rel=1e-5, abs=1e-6):
    """Numbers within a tolerance, everything else equal, at any depth."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_close(found[key], expected[key], rel, abs)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_close(*pair, rel, abs)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, abs=abs)
    else:
        assert found == expected


def test_both_ranks_hold_identical_controllers_statistics_and_weights(seen):
    _, (first, second), _ = seen
    shared = ("tau", "epsilon", "entropy", "step_kl", "states", "controllers", "horizon", "steps")
    assert len(updates(first)) == UPDATES
    for a, b in zip(updates(first), updates(second), strict=True):
        for key in shared:
            assert a[key] == b[key], key
    assert first["straight"][-1] == second["straight"][-1]  # weights and evaluations


def test_each_rank_samples_its_own_prompts(seen):
    _, (first, second), _ = seen
    for a, b in zip(updates(first), updates(second), strict=True):
        assert (a["slots"], b["slots"]) == ([0, 2, 4, 6], [1, 3, 5, 7])


def by_slot(a, b, key):
    """What two ranks saw of each prompt, in the order of the prompts."""
    values = dict(zip(a["slots"] + b["slots"], a[key] + b[key], strict=True))
    return [values[slot] for slot in range(8)]


def test_two_ranks_draw_what_one_process_draws(seen):
    one, (first, second), _ = seen
    for whole, a, b in zip(updates(one), updates(first), updates(second), strict=True):
        assert by_slot(a, b, "texts") == whole["texts"]


def test_gathered_values_stand_in_the_order_of_the_prompts(seen):
    one, ranks, _ = seen
    for record in (one, *ranks):
        assert all(entry["order"] == list(range(8)) for entry in updates(record))


def test_a_prompt_has_its_own_controllers_on_whatever_rank(seen):
    (whole,), *ranks = (updates(record, "prompt") for record in (seen[0], *seen[1]))
    for key in ("tau", "epsilon"):
        assert len(set(whole[key])) >= 3
        assert_close(by_slot(*(rank[0] for rank in ranks), key), whole[key])


def test_statistics_and_controllers_equal_those_of_one_process(seen):
    one, (first, _), _ = seen
    for whole, a in zip(updates(one), updates(first), strict=True):
        for key in ("entropy", "states", "controllers"):
            assert_close(a[key], whole[key])
        for key in ("tau", "epsilon"):
            (value,) = set(a[key])
            assert_close(value, whole[key][0])
        assert a["horizon"]["tokens"] == whole["horizon"]["tokens"]


def test_losses_and_gradient_norms_equal_those_of_one_process(seen):
    one, (first, _), _ = seen
    for whole, a in zip(updates(one), updates(first), strict=True):
        assert len(whole["steps"]) == 4
        for found, expected in zip(a["steps"], whole["steps"], strict=True):
            assert_close(found, expected, rel=1e-4)
    # Before any step has been taken there is rounding alone.
    assert_close(updates(first)[0]["steps"][0], updates(one)[0]["steps"][0])


def test_metrics_and_evaluations_equal_those_of_one_process(seen):
    one, ranks, folders = seen
    rows = {name: provenance.read_jsonl(folder / "straight" / "metrics.jsonl") for name, folder in folders.items()}
    assert len(rows["two"]) == UPDATES
    for found, expected in zip(rows["two"], rows["one"], strict=True):
        for row in (found, expected):
            del row["seconds"], row["seconds_left"]
        assert_close(found, expected, rel=1e-4)
    assert one["straight"][-1]["evaluations"] == ranks[0]["straight"][-1]["evaluations"]


def pairs_of(folder):
    """DPO's pairs, as they stand in its folder; of other methods nothing."""
    return [path.read_text() for path in folder.glob("pairs.jsonl")]


def assert_equal_to_one_process(seen, name):
    """Two ranks learn, log and evaluate what one process does, on completions of unequal length.

    Few completions reach the limit, so that the longest of one rank is hardly ever as long as the other's.
    """
    one, ranks, folders = seen
    longest = [[entry["longest"] for entry in rank[name] if "longest" in entry] for rank in ranks]
    assert [len(of_rank) for of_rank in longest] == [2, 2] and longest[0] != longest[1]
    rows = {which: provenance.read_jsonl(folder / name / "metrics.jsonl") for which, folder in folders.items()}
    assert len(rows["two"]) == (1 if "dpo" in name else 2)  # DPO has one line, of all its steps
    assert pairs_of(folders["two"] / name) == pairs_of(folders["one"] / name)
    for found, expected in zip(rows["two"], rows["one"], strict=True):
        for row in (found, expected):  # a KL inside the reward makes A != 0 a matter of the last bit
            del row["seconds"], row["seconds_left"]
            row.pop("clip_fraction_active", None)
        assert_close(found, expected, rel=1e-3, abs=1e-5)  # losses are sums of terms of unit size that nearly cancel
    assert one[name][-1]["evaluations"] == ranks[0][name][-1]["evaluations"]
    whole = torch.load(folders["one"] / f"{name}.weights0")
    movement = (whole["end"] - whole["start"]).norm()
    assert movement > 0
    for rank in range(2):
        mine = torch.load(folders["two"] / f"{name}.weights{rank}")
        assert torch.equal(mine["start"], whole["start"])
        assert (mine["end"] - whole["end"]).norm() <= 1e-4 * movement


@pytest.mark.parametrize("name", FAST)
def test_recipes_learn_on_two_ranks_what_they_learn_on_one(seen, name):
    assert_equal_to_one_process(seen, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_recipe_learns_on_two_ranks_what_it_learns_on_one(seen_of_all, name):
    assert_equal_to_one_process(seen_of_all, name)


def test_turns_with_a_tool_are_those_of_one_process(seen):
    (whole,), *ranks = (updates(record, "tool") for record in (seen[0], *seen[1]))
    assert by_slot(*(rank[0] for rank in ranks), "texts") == whole["texts"]
    rows = [provenance.read_jsonl(folder / "tool" / "metrics.jsonl")[0] for folder in seen[2].values()]
    for row in rows:
        del row["seconds"], row["seconds_left"]
    assert rows[0]["tool_calls"] > 0
    assert_close(rows[1], rows[0], rel=1e-3)


def without_times(record):
    return [
        {**entry, "horizon": {**entry["horizon"], "seconds": None}} if "horizon" in entry else entry for entry in record
    ]


def test_two_ranks_resume_where_they_were_broken_off(seen):
    _, ranks, folders = seen
    for rank in ranks:
        # Updates 1 and 2, broken off; then 3 from the checkpoint of 2, and the final weights.
        assert len(updates(rank, "resumed")) == UPDATES
        assert without_times(rank["resumed"]) == without_times(rank["straight"])
        assert rank["pairs"] == rank["dpo"]  # to the last bit of the weights
    left = {path.name for path in (folders["two"] / "resumed").iterdir()}
    assert left == {"metrics.jsonl", "samples.jsonl", "eval.json", "checkpoint", "policy"}
