"""DPO: pairs from the start policy, trained by TRL, evaluated like every other method."""

import sys
from types import SimpleNamespace

import pytest
import torch

from agpo_core import provenance
from agpo_core.config import ConfigError
from agpo_core.recipes import resolve
from agpo_core.tasks import MICRO_TASKS, Graded
from agpo_core.training import run as run_module
from agpo_core.training.baselines import dpo
from agpo_core.training.offline import preference_pairs, train_dpo
from agpo_core.training.train import main

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")


def graded(rewards, cut=()):
    """Rollouts of one prompt, as `preference_pairs` reads them."""
    return SimpleNamespace(
        group=len(rewards),
        rewards_B=torch.tensor(rewards),
        truncated_B=torch.tensor([i in cut for i in range(len(rewards))]),
        texts=[f"c{i}" for i in range(len(rewards))],
    )


@pytest.mark.parametrize(
    ("rewards", "cut", "expected"),
    [
        ([0.0, 1.0, 1.0, 0.0], (), [("c1", "c3"), ("c2", "c0")]),
        ([0.0, 1.0, 0.0, 0.0], (), [("c1", "c3")]),  # the second best is no better than the second worst
        ([0.2, 0.9, 0.5, 0.4, 0.1], (), [("c1", "c4"), ("c2", "c0")]),  # an odd group leaves its middle out
        ([1.0, 1.0, 1.0, 1.0], (), []),
        ([0.0, 1.0, 1.0, 0.0], (1,), [("c2", "c0")]),  # a completion without an end is not chosen
        ([0.0, 1.0, 1.0, 0.0], (3,), [("c1", "c3"), ("c2", "c0")]),  # and may be rejected
    ],
)
def test_pairs_by_hand(rewards, cut, expected):
    assert preference_pairs(graded(rewards, cut), ["p"]) == [("p", *pair) for pair in expected]


def test_a_run_trains_evaluates_and_saves_and_counts_its_tokens(config, tmp_path):
    c = config("dpo", horizon=3.0)
    train_dpo(c, tmp_path)
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert (row["update"], row["progress"], row["tokens_probe"]) == (3, 1.0, 0)
    assert 3 * 16 <= row["tokens_train"] <= 3 * 16 * 6
    steps = -(-row["pairs"] // 4) * 2  # 4 prompts x 4 completions in 2 minibatches are 4 pairs a step; 2 epochs
    assert len(row["grad_norms"]) == steps
    evaluations = provenance.read_json(tmp_path / "eval.json")
    assert [point["progress"] for point in evaluations["dev"]] == [0.0, 1.0]
    assert evaluations["test"]["problems"] == 4
    assert (tmp_path / "policy" / "model.safetensors").is_file()


def test_the_chosen_completions_become_likelier_than_the_rejected(config, tmp_path):
    run = run_module.Run(config("dpo", dev_problems=0), tmp_path)
    pairs = [("A", "b", "c"), ("B", "b", "d")] * 20
    log = dpo(run.policy, run.tokenizer, pairs, beta=0.5, batch_size=4, epochs=4, learning_rate=1.0e-3)
    assert log[0]["loss"] == pytest.approx(0.6931, abs=1e-3)  # log 2: the policy is its own reference
    assert float(log[-1]["rewards/margins"]) > 0.5


def test_equal_rewards_give_no_pair_and_say_so(config, tmp_path, monkeypatch):
    class Constant(type(run_module.get_task("toy"))):
        def grade(self, problem, completion):
            return Graded(1.0, completion)

    monkeypatch.setattr(run_module, "get_task", lambda name, *rest: Constant(name))
    with pytest.raises(ConfigError, match="dpo found no pair"):
        train_dpo(config("dpo", horizon=1.0, dev_problems=0), tmp_path)


def test_several_ranks_are_refused(config, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="one process"):
        train_dpo(config("dpo"), tmp_path)


def test_the_same_command_trains_it(config, tmp_path, monkeypatch):
    config("dpo", horizon=3.0, dev_problems=0, test_problems=0).save(tmp_path / "config.yaml")
    monkeypatch.setattr(sys, "argv", ["train", "--run-dir", str(tmp_path)])
    main()
    assert provenance.read_json(tmp_path / "run.json")["status"] == "finished"
    assert "pairs" in provenance.read_jsonl(tmp_path / "metrics.jsonl")[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns_the_micro_tasks(seed, tmp_path, monkeypatch):
    from agpo_core.tasks import get_task

    monkeypatch.setattr(run_module, "get_task", get_task)
    c = resolve(
        "dpo", seed=seed, tasks=MICRO_TASKS, horizon=40_000.0, learning_rate=1.0e-4, dpo_beta=1.0, test_problems=0
    )
    train_dpo(c, tmp_path)
    before, after = (point["macro"] for point in provenance.read_json(tmp_path / "eval.json")["dev"])
    assert after > before
