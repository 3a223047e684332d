"""Rewards are any finite real numbers; a grader that fails costs its completion the reward, not the run."""

import math
import signal
from fractions import Fraction

import numpy as np
import pytest
import torch

from agpo_core import provenance
from agpo_core.experiments import records
from agpo_core.jobs.interrupts import Interrupted
from agpo_core.rollouts.grades import GradingError, graded
from agpo_core.sandbox import SandboxRefused
from agpo_core.tasks import Graded, Problem
from agpo_core.training import run as module
from agpo_core.training.train import train
from tests.conftest import Toy

PROBLEM = Problem("toy", "p7", "AB", "")


class Unhashable:
    __hash__ = None


class NoRepr(Exception):
    def __repr__(self):
        raise RuntimeError


def raises(error):
    def grade(problem, completion):
        raise error

    return grade


def gives(found):
    return lambda problem, completion: found


FAILING = {
    "nan": gives(Graded(math.nan, "a")),
    "infinite": gives(Graded(-math.inf, "a")),
    "beyond float32": gives(Graded(1e300, "a")),
    "nothing": gives(None),
    "a number": gives(1.0),
    "a text": gives("right"),
    "no reward": gives(Graded(None, "a")),
    "a reward as text": gives(Graded("1.0", "a")),
    "a complex reward": gives(Graded(1j, "a")),
    "a row of rewards": gives(Graded(torch.ones(2), "a")),
    "a list as vote": gives(Graded(1.0, ["a"])),
    "a list in a tuple as vote": gives(Graded(1.0, ("a", ["b"]))),
    "an array as vote": gives(Graded(1.0, np.ones(2))),
    "a tensor as vote": gives(Graded(1.0, torch.ones(()))),
    "an unhashable vote": gives(Graded(1.0, Unhashable())),
    "ValueError": raises(ValueError("no number")),
    "KeyError": raises(KeyError("x")),
    "RecursionError": raises(RecursionError()),
    "MemoryError": raises(MemoryError()),
    "TimeoutError": raises(TimeoutError()),
    "AssertionError": raises(AssertionError()),
    "SystemExit": raises(SystemExit(2)),
    "no repr": raises(NoRepr()),
}


@pytest.mark.parametrize("name", FAILING)
def test_whatever_a_grader_does_its_completion_gets_nothing_and_the_failure_is_named(name):
    found, failure = graded(FAILING[name], PROBLEM, "xy" * 1000)
    assert found == Graded(0.0, None)
    assert "'toy'" in failure and "'p7'" in failure and "xyxy" in failure and len(failure) < 700
    with pytest.raises(GradingError, match="'toy'.*'p7'.*xyxy.*set failed_grading to zero"):
        graded(FAILING[name], PROBLEM, "xy" * 1000, "raise")


@pytest.mark.parametrize(
    "reward", [-3.5, 0, 2, True, 1e9, Fraction(1, 3), np.float32(0.5), np.True_, torch.tensor(2.5)]
)
def test_any_finite_real_number_is_a_reward(reward):
    found, failure = graded(gives(Graded(reward, ("a", 1))), PROBLEM, "x", "raise")
    assert failure is None and found == Graded(float(reward), ("a", 1)) and type(found.reward) is float


@pytest.mark.parametrize("setting", ["zero", "raise"])
@pytest.mark.parametrize("error", [SandboxRefused("no sandbox here"), KeyboardInterrupt(), Interrupted(signal.SIGTERM)])
def test_a_grader_that_cannot_start_and_an_interrupt_end_the_run(setting, error):
    with pytest.raises(type(error)):
        graded(raises(error), PROBLEM, "x", setting)


# -- in the loop


class Moody(Toy):
    """Fails at every fourth first character, each time in another way; else gives a reward between -5 and 2."""

    def grade(self, problem, completion):
        code = ord(completion[0]) if completion else 0
        if code % 4 == 1:
            way = [*FAILING.values()][code % len(FAILING)]
            return way(problem, completion)
        return Graded(2.0 - 7.0 * (code % 3) / 2, completion[:1])


@pytest.fixture
def moody(monkeypatch):
    monkeypatch.setattr(module, "get_task", lambda name, *rest: Moody(name))


@pytest.mark.usefixtures("moody", "fresh_accelerator")
@pytest.mark.parametrize(
    "method", ["agpo", "agpo_iqr", "dr_grpo", "rloo", "remax", "reinforce_pp", "reinforce_pp_baseline", "ppo", "dpo"]
)
def test_methods_train_on_real_rewards_and_past_failing_graders(config, tmp_path, method):
    from agpo_core.training.offline import train_dpo

    run = train_dpo if method == "dpo" else train
    run(config(method, test_samples=2, dev_problems=6, test_problems=8), tmp_path)
    rows = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert sum(row["failed_grades"] for row in rows) > 0
    warned = provenance.read_jsonl(tmp_path / "warnings.jsonl")
    (line,) = [line for line in warned if line["rule"] == "grading_fails"]  # once
    assert "counts as reward 0" in line["warning"] and "grade() of task 'toy'" in line["warning"]
    found = provenance.read_json(tmp_path / "eval.json")
    assert found["test"]["failed_grades"] > 0 and min(found["test"]["rewards"]["toy"]) < 0
    assert found["test"]["right"] == {}  # 1 does not mean right
    assert -5 <= found["test"]["average"]["toy"] <= 2
    assert set(records._scores(found["test"], "toy")) == {"score"}


@pytest.mark.usefixtures("moody", "fresh_accelerator")
def test_a_run_can_be_asked_to_end_at_the_first_failure(config, tmp_path):
    with pytest.raises(GradingError, match="grade.. of task 'toy' .* for problem '(dev|train)-"):
        train(config(failed_grading="raise"), tmp_path)


@pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")
def test_rewards_are_used_as_they_are_and_not_bounded(config, tmp_path, monkeypatch):
    """r -> 100 r - 60 does not change the advantages that GRPO makes of rewards."""

    class Scaled(Toy):
        def grade(self, problem, completion):
            found = super().grade(problem, completion)
            return Graded(100 * found.reward - 60, found.answer)

    rows = []
    for name in ("plain", "scaled"):
        if name == "scaled":
            monkeypatch.setattr(module, "get_task", lambda name, *rest: Scaled(name))
        (tmp_path / name).mkdir()
        train(config(dev_problems=0, test_problems=0), tmp_path / name)
        rows.append(provenance.read_jsonl(tmp_path / name / "metrics.jsonl"))
    for plain, scaled in zip(*rows, strict=True):
        assert scaled["reward"] == pytest.approx(100 * plain["reward"] - 60, abs=1e-4)
        assert scaled["grad_norms"] == pytest.approx(plain["grad_norms"], rel=1e-3)
