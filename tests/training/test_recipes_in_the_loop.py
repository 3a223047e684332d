"""Every recipe runs in the loop, learns, and equals another recipe where it should."""

import math

import pytest
import torch

from agpo_core import advantages, provenance
from agpo_core.recipes import RECIPES, resolve
from agpo_core.tasks import MICRO_TASKS
from agpo_core.training.run import Run
from agpo_core.training.train import train

pytestmark = pytest.mark.usefixtures("fresh_accelerator")

TIMES = {"seconds", "seconds_left"}
ON_POLICY = [method for method in RECIPES if method != "dpo"]


@pytest.fixture
def run(config, tmp_path, toy_tasks):
    """Train a recipe on the toy task: run("ppo", horizon=2.0) gives its metrics and final weights."""
    count = iter(range(100))

    def make(method, **params):
        from safetensors.torch import load_file

        folder = tmp_path / f"{next(count)}-{method}"
        folder.mkdir()
        train(config(method, **{"horizon": 2.0, "dev_problems": 0, "test_problems": 0, **params}), folder)
        rows = provenance.read_jsonl(folder / "metrics.jsonl")
        return [{k: v for k, v in row.items() if k not in TIMES} for row in rows], load_file(
            folder / "policy" / "model.safetensors"
        )

    return make


def assert_same(found, expected, but=()):
    """Check for the same metrics, except those named, and the same weights, bit for bit."""
    for row, other in zip(found[0], expected[0], strict=True):
        assert {k: v for k, v in row.items() if k not in but} == {k: v for k, v in other.items() if k not in but}
    assert all(found[1][name].equal(weight) for name, weight in expected[1].items())


def alone(method):
    """The settings with which a method of one completion per prompt draws as many rollouts as the others."""
    return {"prompts_per_update": 16} if RECIPES[method].settings.get("group_size") == 1 else {}


@pytest.mark.parametrize("method", ON_POLICY)
def test_every_recipe_moves_the_policy_with_finite_metrics(run, method):
    rows, _ = run(method, **alone(method))
    for row in rows:
        values = [v for value in row.values() for v in (value if isinstance(value, list) else [value])]
        assert all(math.isfinite(v) for v in values)
        assert row["grad_norm"] > 0
    assert rows[0]["step_kl"] != 0


# -- one method equals another


@pytest.mark.parametrize("beta", [0.0, 0.03])
def test_ppo_without_a_critic_and_with_lambda_1_is_reinforce_pp(run, beta):
    # V = 0 at the start, and stays there: its loss has no weight. GAE(1) is then the return, whitened over all tokens.
    # The critic's zero gradients, and the KL's other order of summation, cost the last bits.
    ppo, _ = run("ppo", gae_lambda=1.0, value_weight=0.0, beta=beta)
    other, _ = run("reinforce_pp_k", beta=beta)
    for row, expected in zip(ppo, other, strict=True):
        assert row["explained_variance"] == 0 or beta > 0
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_a_separate_critic_gives_what_a_head_gives_as_long_as_both_are_zero(run):
    assert_same(
        run("ppo", value_weight=0.0), run("ppo_critic", value_weight=0.0), but={"value_loss", "explained_variance"}
    )


def test_a_critic_that_learns_changes_the_advantages(run):
    _, learned = run("ppo", value_weight=1.0)
    _, idle = run("ppo", value_weight=0.0)
    assert any(not learned[name].equal(weight) for name, weight in idle.items())


def test_adaptive_kl_ppo_is_ppo_where_the_coefficient_stands_still(run):
    still = run("adaptive_kl_ppo", kl_horizon=1.0e12)
    assert_same(still, run("ppo"), but={"beta"})
    moved, _ = run("adaptive_kl_ppo", kl_target=1.0e-4, kl_horizon=16.0, horizon=3.0)
    assert moved[0]["beta"] == 0.03
    # The first update's KL is that of the start with itself, 0: e = -.2, K = 16 / 16, beta = .03 * .8
    assert moved[1]["beta"] == pytest.approx(0.024)
    assert moved[2]["beta"] == pytest.approx(0.024 * 1.2)  # then the policy is further away than the target


def test_reinforce_pp_of_one_completion_is_the_same_recipe_with_a_group_of_one(run):
    assert_same(run("reinforce_pp", prompts_per_update=16), run("reinforce_pp_k", group_size=1, prompts_per_update=16))


def test_a_probe_of_all_prompts_is_agpos(run):
    assert_same(run("agpo_part_probe", probe_share=1.0), run("agpo"))


def test_dr_grpo_is_grpo_without_its_standard_deviation(run, monkeypatch):
    whole = advantages.group_advantages
    monkeypatch.setattr(
        advantages,
        "group_advantages",
        lambda r, mode, fallback: whole(r, mode, fallback=fallback) * r.std(1, keepdim=True),
    )
    grpo, _ = run("grpo", aggregation="constant", horizon=1.0)
    monkeypatch.undo()
    dr_grpo, _ = run("dr_grpo", horizon=1.0)
    assert grpo[0]["loss"] == pytest.approx(dr_grpo[0]["loss"], rel=1e-4)


@pytest.mark.parametrize(("share", "method"), [(1.0, "grpo"), (0.0, "reinforce_pp_baseline")])
def test_mixed_scaling_is_grpo_where_all_of_it_is_local_and_reinforce_pp_baseline_where_none_is(
    run, monkeypatch, share, method
):
    mixed = advantages.mixed_advantages
    monkeypatch.setattr(advantages, "mixed_advantages", lambda rewards_P_G: mixed(rewards_P_G, local_share=share))
    assert_same(run("mixed_scaling"), run(method, kl_estimator="k3"))


def test_bounded_and_scaled_rewards_reach_the_estimator(run):
    # Rewards are 0 or 1: a bound of .5 halves them, and the scale 2 undoes that.
    assert_same(run("dr_grpo", reward_clip=0.5, reward_scale=2.0), run("dr_grpo"))
    clipped, _ = run("dr_grpo", reward_clip=0.5)
    assert clipped[0]["reward"] == run("dr_grpo")[0][0]["reward"]  # what is logged is the task's reward


# -- what a recipe spends and sees


def test_remax_books_its_greedy_completions_and_does_not_train_on_them(config, tmp_path, toy_tasks):
    c = config("remax", horizon=1.0, prompts_per_update=8, dev_problems=0, test_problems=0)
    run = Run(c, tmp_path)
    prompts = run.sampler.prompts(0)
    greedy = run.sampler.greedy(prompts, run.engine.open(prompts), 0)
    assert greedy.rewards_B.shape == (8,) and 8 <= greedy.tokens <= 8 * c.max_completion_tokens
    again = run.sampler.greedy(prompts, run.engine.open(prompts), 1)  # greedy: the update does not matter
    assert greedy.rewards_B.equal(again.rewards_B) and greedy.tokens == again.tokens
    train(c, tmp_path)
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert row["tokens_probe"] == greedy.tokens


def test_a_free_probe_spends_nothing_and_sees_the_update_before(run):
    free, _ = run("agpo_free_probe", horizon=3.0, epsilon_base=0.06)
    assert [row["tokens_probe"] for row in free] == [0, 0, 0]
    assert (free[0]["tau"], free[0]["epsilon"]) == (1.0, 0.06)  # nothing has been seen
    assert "uncertainty" not in free[0]
    assert free[1]["uncertainty"] == free[0]["uncertainty_train"]
    assert free[2]["uncertainty"] == free[1]["uncertainty_train"]
    assert free[1]["tau"] != 1.0


def test_a_free_probe_is_resumed_with_what_it_saw(config, tmp_path, toy_tasks):
    c = config("agpo_free_probe", horizon=3.0, checkpoint_every=0.3, dev_problems=0, test_problems=0)
    rows = {}
    for name, stops in {"straight": [None], "resumed": [2, None]}.items():
        (tmp_path / name).mkdir()
        for stop_after in stops:
            train(c, tmp_path / name, stop_after)
        rows[name] = [
            {k: v for k, v in row.items() if k not in TIMES}
            for row in provenance.read_jsonl(tmp_path / name / "metrics.jsonl")
        ]
    assert rows["resumed"] == rows["straight"]


def test_a_part_probe_draws_the_first_prompts_alone(config, tmp_path, toy_tasks):
    c = config("agpo_part_probe", horizon=1.0, prompts_per_update=8, minibatches=2, dev_problems=0, test_problems=0)
    run, whole = Run(c, tmp_path), Run(c.replace(probe_share=1.0), tmp_path)
    prompts = run.sampler.prompts(0)
    part = run.sampler.probe(prompts, run.engine.open(prompts), 0)
    every = whole.sampler.probe(prompts, whole.engine.open(prompts), 0)
    assert part.tokens < every.tokens / 2  # 2 of 8 prompts
    states, log = run.control.signals(part, None)
    assert 0 <= states[0].vote_entropy <= math.log(4) and log["probe_reward"] <= 1


def test_a_critic_is_resumed_with_its_weights(config, tmp_path, toy_tasks):
    c = config("ppo_critic", horizon=2.0, checkpoint_every=0.5, dev_problems=0, test_problems=0)
    for name, stops in {"straight": [None], "resumed": [1, None]}.items():
        (tmp_path / name).mkdir()
        for stop_after in stops:
            train(c, tmp_path / name, stop_after)
    first, second = (provenance.read_jsonl(tmp_path / name / "metrics.jsonl")[1] for name in ("straight", "resumed"))
    assert first["value_loss"] == second["value_loss"] and first["loss"] == second["loss"]


def test_the_critic_has_its_own_learning_rate(config, tmp_path, toy_tasks):
    run = Run(config("ppo", critic_learning_rate=5.0e-3, learning_rate=1.0e-3, warmup=0.0), tmp_path)
    run.learner.set_learning_rate(0.0)
    rates = {id(p): group["lr"] for group in run.optimiser.param_groups for p in group["params"]}
    own = {id(p) for p in run.whole.critic_parameters()}
    assert own == {id(run.whole.value_head.weight), id(run.whole.value_head.bias)} < rates.keys()
    assert all(rate == pytest.approx(5.0e-3 if p in own else 1.0e-3) for p, rate in rates.items())


@pytest.mark.parametrize("family", ["qwen2", "llama", "gemma2"])
@pytest.mark.parametrize("params", [{}, {"method": "ppo"}, {"method": "ppo_critic"}, {"lora_rank": 2}], ids=str)
def test_norms_and_biases_are_not_decayed_and_all_else_is(config, tmp_path, toy_tasks, family, params):
    run = Run(config(**{"method": "grpo", "family": family, "weight_decay": 0.25, **params}), tmp_path)
    decay = {id(p): group["weight_decay"] for group in run.optimiser.param_groups for p in group["params"]}
    trained = {name: p for name, p in run.whole.named_parameters() if p.requires_grad}
    assert decay.keys() == {id(p) for p in trained.values()}
    for name, p in trained.items():
        assert decay[id(p)] == (0.0 if "norm" in name or name.endswith("bias") else 0.25), name
    assert all(group["params"] for group in run.optimiser.param_groups)


@pytest.mark.usefixtures("toy_tasks")
def test_without_a_gradient_a_step_shrinks_matrices_alone(config, tmp_path):
    run = Run(config("ppo", weight_decay=0.5, learning_rate=0.1, warmup=0.0, dev_problems=0), tmp_path)
    before = {name: p.detach().clone() for name, p in run.whole.named_parameters()}
    for p in run.whole.parameters():
        p.grad = torch.zeros_like(p)
    run.learner.set_learning_rate(0.0)
    run.optimiser.step()
    for name, p in run.whole.named_parameters():
        factor = 1.0 if p.ndim < 2 else 1 - 0.1 * 0.5
        torch.testing.assert_close(p.detach(), factor * before[name])


def test_the_value_of_a_state_does_not_see_what_comes_after_it(config, tmp_path, toy_tasks):
    run = Run(config("ppo_critic"), tmp_path)
    torch.nn.init.normal_(run.whole.value_head.weight)
    prompts = run.sampler.prompts(0)
    rollouts = run.sampler.rollouts(prompts, run.engine.open(prompts), torch.ones(4), 0)
    batch = run.learner.measure(rollouts)
    changed = run.learner.measure(rollouts)
    changed.completion_ids_B_T = batch.completion_ids_B_T.clone()
    changed.completion_ids_B_T[:, 2] = 5
    with torch.no_grad():
        (_, values), (_, others) = (run.whole(b) for b in (batch, changed))
    assert values[:, :3].equal(others[:, :3])  # V(s_t) is before token t
    assert not values[:, 3:].equal(others[:, 3:])


# -- learning


@pytest.mark.slow
@pytest.mark.parametrize("method", ON_POLICY)
def test_every_recipe_learns_the_micro_tasks(method, tmp_path):
    """With one seed; the records hold three or more (tests/experiments/test_records.py)."""
    size = {"prompts_per_update": 144 if method == "remax" else 288} if alone(method) else {}
    c = resolve(
        method,
        seed=1,
        tasks=MICRO_TASKS,
        horizon=40_000.0,
        learning_rate=4.0e-4,
        dev_problems=0,
        test_problems=0,
        **size,
    )
    train(c, tmp_path)
    rewards = [row["reward"] for row in provenance.read_jsonl(tmp_path / "metrics.jsonl")]
    third = len(rewards) // 3
    assert sum(rewards[-third:]) > sum(rewards[:third])
