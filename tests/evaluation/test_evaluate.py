"""Greedy evaluation: the split's first problems, in order, for any batch."""

from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from agpo_core.config import ConfigError
from agpo_core.evaluation import evaluate as module
from agpo_core.evaluation.evaluate import complete_and_grade, first_problems, votes
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import TransformersEngine


@pytest.fixture
def run_evaluation(config, toy, fresh_accelerator):
    """Evaluate a random model: run_evaluation("dev", 4, rollout_batch=2)."""

    def run(split, count, names=("toy",), **params):
        engine = TransformersEngine(*load_policy(config(**params)), config(**params))
        tasks = {name: type(toy)(name) for name in names}
        found = complete_and_grade(engine, tasks, first_problems(tasks, split, count), Accelerator())
        return {name: [reward for (reward,) in rows] for name, rows in found.rewards.items()}, found.tokens

    return run


def greedy_completion(model, tokenizer, prompt, most):
    """The obvious loop: no cache, no padding, one problem."""
    ids = tokenizer(prompt)["input_ids"]
    start = len(ids)
    while len(ids) < start + most and tokenizer.eos_token_id not in ids[start:]:
        with torch.no_grad():
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return tokenizer.decode(ids[start:]).removesuffix(tokenizer.eos_token), len(ids) - start


def test_rewards_and_tokens_are_those_of_a_greedy_loop(run_evaluation, config, toy):
    model, tokenizer = load_policy(config())
    expected, tokens = [], 0
    for problem in toy.problems("test"):
        text, length = greedy_completion(model, tokenizer, problem.prompt, most=6)
        expected.append(toy.grade(problem, text).reward)
        tokens += length
    assert 0 < sum(expected) < 8
    assert run_evaluation("test", 8) == ({"toy": expected}, tokens)


@pytest.mark.parametrize("params", [{"rollout_batch": 3}, {"seed": 1}, {"top_p": 0.5}])
def test_evaluation_does_not_change_with_batch_or_sampling(run_evaluation, params):
    assert run_evaluation("test", 8, **params) == run_evaluation("test", 8)


@pytest.mark.parametrize(("rollout_batch", "samples", "batches"), [(8, 1, 1), (4, 1, 2), (4, 2, 4), (4, 9, 24)])
def test_evaluation_takes_no_more_batches_than_it_needs(config, toy, monkeypatch, rollout_batch, samples, batches):
    c = config(rollout_batch=rollout_batch, group_size=4)
    engine, decoded = TransformersEngine(*load_policy(c), c), []
    decode = engine._decode
    monkeypatch.setattr(engine, "_decode", lambda *a: decoded.append(len(a[3])) or decode(*a))
    tau = float(samples > 1)
    complete_and_grade(engine, {"toy": toy}, {"toy": toy.problems("test")}, Accelerator(), samples, tau)
    assert len(decoded) == batches and max(decoded) <= rollout_batch and sum(decoded) == 8 * samples


def test_each_task_keeps_its_own_rewards(run_evaluation):
    one, tokens = run_evaluation("dev", 5)
    both = run_evaluation("dev", 5, names=("a", "b"), rollout_batch=4)
    assert both == ({"a": one["toy"], "b": one["toy"]}, 2 * tokens)


def test_fewer_problems_are_the_first_ones(run_evaluation):
    assert run_evaluation("dev", 2)[0]["toy"] == run_evaluation("dev", 6)[0]["toy"][:2]


def test_the_shares_of_ranks_are_merged_in_the_order_of_the_split(config, toy, run_evaluation, monkeypatch):
    shares = []
    monkeypatch.setattr(module, "gather_object", lambda share: shares.extend(share) or shares)
    c = config()
    engine = TransformersEngine(*load_policy(c), c)
    for rank in range(3):  # 7 problems: shares of 3, 2 and 2
        accelerator = SimpleNamespace(process_index=rank, num_processes=3)
        found = complete_and_grade(engine, {"toy": toy}, {"toy": toy.problems("test")[:7]}, accelerator, 2, tau=1.0)
    assert [len(rows) for rows, *_ in shares] == [3, 2, 2]
    monkeypatch.undo()
    assert found == complete_and_grade(engine, {"toy": toy}, {"toy": toy.problems("test")[:7]}, Accelerator(), 2, 1.0)


def test_asking_for_more_problems_than_there_are_raises(run_evaluation):
    with pytest.raises(ConfigError, match="'toy' has 6 dev problems, 7 were asked for: lower dev_"):
        run_evaluation("dev", 7)


@pytest.mark.parametrize(
    ("answers", "rewards", "counts"),
    [
        (["7", "8", None, "7", "8", "9", "8"], [1, 0, 0, 1, 0, 0, 0], [2, 3, 1]),
        (["7", "7"], [1, 1], [2]),
        (["8", "9", "9"], [0, 0, 0], [0, 2, 1]),  # no right answer among them
        ([None, None], [0, 0], [0]),  # nobody votes
        ([None, "8"], [1, 0], [0, 1]),  # a right completion without an answer does not vote either
        (["7", "7.0", "7", "8"], [1, 1, 1, 0], [2, 1, 1]),  # right in two forms: the commoner is the right answer
        (["7", "8"], [1, 0.5], [1, 1]),  # half a reward is not right
        ([float("nan"), 7], [0, 1], [1]),
    ],
)
def test_votes_by_hand(answers, rewards, counts):
    assert votes(answers, rewards) == counts
    assert votes(answers[::-1], rewards[::-1]) == counts
