"""The loop: what it draws, counts, logs and saves, and that a run can be interrupted anywhere and resumed."""

import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from agpo_core import losses, metrics, provenance
from agpo_core.config import ConfigError
from agpo_core.controllers import AdaptiveClip
from agpo_core.evaluation.evaluate import complete_and_grade, first_problems
from agpo_core.rollouts import policy
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.rollouts.rollout import TransformersEngine
from agpo_core.tasks import Graded, get_task
from agpo_core.training import run as module
from agpo_core.training.batch import Batch, minibatch_loss
from agpo_core.training.journal import Journal
from agpo_core.training.optimisation import learning_rate
from agpo_core.training.run import Run
from agpo_core.training.train import main, train
from agpo_core.training.update import Learner, Sampler, advantages

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")

TIMES = {"seconds", "seconds_left"}


@dataclass
class Result:
    """The results in a run's folder."""

    folder: Path

    @property
    def rows(self):
        return provenance.read_jsonl(self.folder / "metrics.jsonl")

    @property
    def untimed(self):
        return [{k: v for k, v in row.items() if k not in TIMES} for row in self.rows]

    @property
    def evaluations(self):
        return provenance.read_json(self.folder / "eval.json")

    @property
    def weights(self):
        from safetensors.torch import load_file

        return load_file(self.folder / "policy" / "model.safetensors")

    def assert_same(self, other):
        """Check for the same metrics, evaluations and final weights, bit for bit."""
        assert self.untimed == other.untimed
        assert self.evaluations == other.evaluations
        assert_same_weights(self.weights, other.weights)


def assert_same_weights(found, expected):
    assert found.keys() == expected.keys()
    assert all(found[name].equal(expected[name]) for name in found)


def run(config, folder, **options):
    folder.mkdir(exist_ok=True)
    train(config, folder, **options)
    return Result(folder)


@pytest.fixture(scope="module")
def agpo_config(config):
    """Five updates of AGPO on two tasks, with controllers that move between their bounds.

    H is about 4 nats here, so that epsilon_base .06 gives radii near .2.
    """
    return config(
        "agpo",
        tasks=["a", "b"],
        horizon=5.0,
        epsilon_base=0.06,
        learning_rate=2.0e-4,
        eval_every=0.4,
        checkpoint_every=0.4,
    )


@pytest.fixture(scope="module")
def agpo(agpo_config, toy_tasks, tmp_path_factory):
    """The finished run of `agpo_config`."""
    return run(agpo_config, tmp_path_factory.mktemp("runs") / "agpo")


@pytest.fixture
def recorded(monkeypatch):
    """Keep what each update drew and what each gradient step returned: {"rollouts": [], "steps": []}."""
    kept = {"rollouts": [], "steps": [], "batches": []}
    rollouts, step = Sampler.rollouts, Learner.step

    def keep_rollout(self, *arguments):
        kept["rollouts"].append(rollouts(self, *arguments))
        return kept["rollouts"][-1]

    def keep_step(self, minibatch, update):
        kept["batches"].append(minibatch)
        kept["steps"].append(step(self, minibatch, update))
        return kept["steps"][-1]

    monkeypatch.setattr(Sampler, "rollouts", keep_rollout)
    monkeypatch.setattr(Learner, "step", keep_step)
    return kept


def let_every_completion_score(monkeypatch, reward):
    class Constant(type(module.get_task("toy"))):
        def grade(self, problem, completion):
            return Graded(reward, completion)

    monkeypatch.setattr(module, "get_task", lambda name, *rest: Constant(name))


# -- AGPO is GRPO where its controllers stand still

STILL = {"epsilon_min": 0.2, "epsilon_max": 0.2, "sensitivity": 0.0}


@pytest.fixture(scope="module")
def grpo(config, toy_tasks, tmp_path_factory):
    """A finished GRPO run, and the tokens that it drew in each update."""
    with pytest.MonkeyPatch.context() as patch:
        drawn, rollouts = [], Sampler.rollouts

        def keep(self, *arguments):
            drawn.append(rollouts(self, *arguments))
            return drawn[-1]

        patch.setattr(Sampler, "rollouts", keep)
        result = run(config(), tmp_path_factory.mktemp("runs") / "grpo")
    return result, drawn


@pytest.mark.parametrize(
    "method", ["grpo_ats", "agpo_no_ats", "agpo", "agpo_part_probe", "agpo_free_probe", "agpo_no_step_kl"]
)
def test_with_constant_controllers_every_method_is_grpo_bit_for_bit(config, tmp_path, grpo, recorded, method):
    expected, drawn = grpo
    found = run(config(method, **STILL), tmp_path / method)
    assert len(found.rows) == 3
    own = {"tokens_probe", "epsilon_raw", "epsilon_at_bound"}  # and what only the probe gives
    for row, expected_row in zip(found.untimed, expected.untimed, strict=True):
        assert {k: row[k] for k in expected_row if k not in own} == {
            k: v for k, v in expected_row.items() if k not in own
        }
    for rollouts, expected_rollouts in zip(recorded["rollouts"], drawn, strict=True):
        assert rollouts.completion_ids_B_T.equal(expected_rollouts.completion_ids_B_T)
        assert rollouts.sampler_logps_B_T.equal(expected_rollouts.sampler_logps_B_T)
        assert rollouts.rewards_B.equal(expected_rollouts.rewards_B)
    assert_same_weights(found.weights, expected.weights)
    assert [p["score"] for p in found.evaluations["dev"]] == [p["score"] for p in expected.evaluations["dev"]]


def test_a_free_radius_or_temperature_is_not_grpo(config, tmp_path, grpo):
    for name, params in {"clip": {"sensitivity": 0.0}, "tau": {**STILL, "sensitivity": 0.15}}.items():
        found = run(config("agpo", **params), tmp_path / name)
        assert any(not found.weights[key].equal(weight) for key, weight in grpo[0].weights.items())


# -- the probe


def test_probe_tokens_are_counted_and_never_trained_on(config, tmp_path, grpo, monkeypatch):
    sample = TransformersEngine.sample
    probed = []

    def other_probe(self, prompts, prefixes, group, tau_P, phase, update, first_sample=0):
        if phase == "probe":  # other content: samples keyed by another update
            probed.append(sample(self, prompts, prefixes, group, tau_P, phase, update + 1000, first_sample))
            return probed[-1]
        return sample(self, prompts, prefixes, group, tau_P, phase, update, first_sample)

    monkeypatch.setattr(TransformersEngine, "sample", other_probe)
    found = run(config("agpo", **STILL), tmp_path / "other")
    counted = [sum(r.tokens for r in probed[: u + 1]) for u in range(3)]
    assert [row["tokens_probe"] for row in found.rows] == counted
    assert counted[0] > 0
    expected = grpo[0]  # no probe at all
    assert [row["tokens_probe"] for row in expected.rows] == [0, 0, 0]
    for key in ("loss", "grad_norms", "tokens_train", "step_kl"):
        assert [row[key] for row in found.rows] == [row[key] for row in expected.rows]
    assert_same_weights(found.weights, expected.weights)


def test_the_probe_is_drawn_at_the_base_temperature_with_its_own_size(config, tmp_path, monkeypatch):
    seen, sample = [], TransformersEngine.sample

    def keep(self, prompts, prefixes, group, tau_P, phase, update, first_sample=0):
        seen.append((phase, group, tau_P.tolist()))
        return sample(self, prompts, prefixes, group, tau_P, phase, update, first_sample)

    monkeypatch.setattr(TransformersEngine, "sample", keep)
    c = config("agpo", horizon=1.0, probe_group_size=2, tau_base=1.1, dev_problems=0, test_problems=0)
    row = run(c, tmp_path / "run").rows[0]
    tau_base = pytest.approx([1.1] * 4)
    assert seen == [("probe", 2, tau_base), ("train", 4, pytest.approx([row["tau"]] * 4))]
    assert row["tau"] > 1.1  # Ū_0 = 0 as printed raises the temperature


# -- horizon, prompts, evaluation


@pytest.mark.parametrize("method", ["grpo", "agpo"])
def test_a_run_stops_at_the_first_update_at_or_past_its_token_horizon(config, tmp_path, method):
    c = config(method, horizon_unit="tokens", horizon=250.0)
    result = run(c, tmp_path / "run")
    spent = [row["tokens_train"] + row["tokens_probe"] for row in result.rows]
    assert len(spent) > 1
    assert spent[-2] < 250 <= spent[-1]
    progress = [row["progress"] for row in result.rows]
    assert progress == [min(1.0, s / 250) for s in spent]
    assert result.evaluations["dev"][-1]["progress"] == 1.0


def test_a_horizon_of_seconds_is_spent_in_updates(config, tmp_path):
    c = config(horizon_unit="seconds", horizon=1.0e-3)  # the first update takes longer
    (row,) = run(c, tmp_path / "run").rows
    assert row["progress"] == 1.0
    assert row["seconds"] >= 1.0e-3


def test_a_horizon_of_zero_evaluates_the_start_and_stops(config, tmp_path, model_folders):
    result = run(config(horizon=0.0), tmp_path / "run")
    assert not (result.folder / "metrics.jsonl").exists()
    assert [point["update"] for point in result.evaluations["dev"]] == [0]
    assert result.evaluations["test"]["update"] == 0
    start = dict(load_policy(config())[0].named_parameters())
    assert all(weight.equal(start[name]) for name, weight in result.weights.items())


def test_tasks_take_turns_and_each_walks_through_its_pool(config, tmp_path):
    c = config(tasks=["a", "b"])
    walk = Run(c, tmp_path)
    drawn = [[(p.task, p.id) for p in walk.sampler.prompts(u).problems] for u in range(24)]
    assert all([task for task, _ in update] == ["a", "b", "a", "b"] for update in drawn)
    for task in "ab":
        ids = [i for update in drawn for t, i in update if t == task]  # two per update
        first, second = ids[:24], ids[24:]
        assert sorted(first) == sorted(second) == sorted(f"train-{i}" for i in range(24))
        assert first != second
    other = Run(c.replace(method="agpo", clip="adaptive"), tmp_path)
    assert [(p.task, p.id) for p in other.sampler.prompts(5).problems] == drawn[5]


def test_the_start_is_evaluated_and_every_share_of_the_horizon_and_the_end(agpo):
    # Five updates, every .4: crossed at .4, .8 and, the end, 1.
    points = agpo.evaluations["dev"]
    assert [point["update"] for point in points] == [0, 2, 4, 5]
    assert [point["progress"] for point in points] == [0.0, 0.4, 0.8, 1.0]
    assert points[0]["tokens"] == 0
    assert points[-1]["tokens"] == agpo.rows[-1]["tokens_train"] + agpo.rows[-1]["tokens_probe"]
    for point in points:
        assert point["macro"] == sum(point["score"][task] for task in "ab") / 2


def test_the_test_scores_are_those_of_the_saved_policy(agpo, agpo_config):
    c = agpo_config.replace(model=str(agpo.folder / "policy"))
    engine = TransformersEngine(*load_policy(c), c)
    tasks = {name: module.get_task(name) for name in "ab"}
    problems = first_problems(tasks, "test", 4)
    found = complete_and_grade(engine, tasks, problems, module.make_accelerator(c))
    rewards = {name: [reward for (reward,) in rows] for name, rows in found.rewards.items()}
    test = agpo.evaluations["test"]
    assert test["rewards"] == rewards
    assert test["problems"] == 4
    assert test["score"] == {name: sum(values) / 4 for name, values in rewards.items()}


def test_evaluation_changes_nothing_but_the_learning_curve(config, tmp_path, grpo):
    bare = run(config(dev_problems=0, test_problems=0), tmp_path / "bare")
    assert bare.untimed == grpo[0].untimed
    assert_same_weights(bare.weights, grpo[0].weights)
    assert not (bare.folder / "eval.json").exists()


# -- what is logged


def test_every_logged_entry_is_documented_and_every_documented_one_is_logged(agpo, config, tmp_path):
    critic = run(config("adaptive_kl_ppo", horizon=1.0), tmp_path / "ppo")
    of_a_critic, of_dpo = {"value_loss", "explained_variance", "beta"}, {"pairs"}
    of_others = {"reward_gold", "tool_share", "tool_calls", "tool_failures"}  # a reward model, a task with a tool
    for row in agpo.rows:
        assert row.keys() == metrics.LOGGED.keys() - of_a_critic - of_dpo - of_others
    assert of_a_critic <= critic.rows[0].keys() <= metrics.LOGGED.keys()


def test_an_undocumented_entry_is_refused(config, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "LOGGED", {name: m for name, m in metrics.LOGGED.items() if name != "truncated"})
    with pytest.raises(AssertionError, match="LOGGED lacks.*truncated"):
        run(config(horizon=1.0), tmp_path / "run")


def test_the_step_kl_enters_the_radius_of_the_next_update(agpo):
    rows = agpo.rows
    assert rows[0]["step_kl_used"] == 0.0
    assert [row["step_kl_used"] for row in rows[1:]] == [row["step_kl"] for row in rows[:-1]]
    assert all(row["step_kl"] != 0 for row in rows)


def test_the_logged_radius_is_equation_4_of_the_logged_signals(agpo):
    for row in agpo.rows:
        rise = row["entropy"] * (1 + 0.2 * row["vote_entropy"])
        fall = 1 + 1.0 * row["sigma"] + 0.05 * row["skewness"] + 0.5 * max(row["step_kl_used"], 0.0)
        raw = 0.06 * rise / fall
        assert row["epsilon_raw"] == pytest.approx(raw, rel=1e-12)
        assert row["epsilon"] == pytest.approx(min(max(raw, 0.05), 0.4), rel=1e-12)
        assert row["epsilon_at_bound"] == (not 0.05 <= raw <= 0.4)
    assert len({row["epsilon"] for row in agpo.rows}) == 5  # it moves


def test_the_logged_temperature_is_equations_9_to_12_of_the_logged_signals(agpo):
    baseline = 0.0
    for row in agpo.rows:
        score = row["sigma"] + row["vote_entropy"] + 0.1 * row["skewness"]
        assert row["uncertainty"] == pytest.approx(score, rel=1e-12)
        assert row["uncertainty_baseline"] == pytest.approx(baseline, rel=1e-12)
        raw = 1 + 0.15 * (score - baseline)
        assert row["tau_raw"] == pytest.approx(raw, rel=1e-12)
        assert row["tau"] == pytest.approx(min(max(raw, 0.5), 1.5), rel=1e-12)
        baseline = 0.95 * baseline + 0.05 * score


def test_logged_means_are_those_of_the_rollouts(config, tmp_path, recorded):
    result = run(config("agpo", horizon=2.0), tmp_path / "run")
    tokens = 0
    for row, rollouts in zip(result.rows, recorded["rollouts"], strict=True):
        rewards_P_G = rollouts.rewards_B.view(4, 4)
        equal_P = rewards_P_G.max(dim=1).values == rewards_P_G.min(dim=1).values
        tokens += rollouts.mask_B_T.sum().item()
        assert row["reward"] == pytest.approx(rewards_P_G.mean().item())
        assert row["equal_groups"] == equal_P.double().mean().item()
        assert row["length"] == rollouts.mask_B_T.sum().item() / 16
        assert row["truncated"] == rollouts.truncated_B.double().mean().item()
        assert row["tokens_train"] == tokens
        assert rollouts.temperature_B.tolist() == pytest.approx([row["tau"]] * 16)


def test_the_sampler_gap_is_the_mass_that_the_nucleus_leaves_out(config, tmp_path):
    for top_p, lowest, highest in [(1.0, -1e-5, 1e-5), (0.9, 0.09, 0.11)]:
        c = config(horizon=1.0, top_p=top_p, tau_base=1.2)
        gap = run(c, tmp_path / str(top_p)).rows[0]["sampler_gap"]
        # -log .9 = .105; a nucleus holds a little more than p of a flat distribution
        assert lowest <= gap <= highest


def test_samples_show_what_was_asked_and_drawn(agpo):
    samples = provenance.read_jsonl(agpo.folder / "samples.jsonl")
    assert {sample["update"] for sample in samples} == {1, 2, 3, 4, 5}
    assert {sample["task"] for sample in samples} == {"a", "b"}
    for sample in samples:
        right = bool(sample["completion"]) and ord(sample["completion"][0]) % 2 == 0
        assert sample["reward"] == right


# -- the gradient step


def test_at_the_first_gradient_step_the_ratio_is_one(config, tmp_path, recorded):
    run(config(horizon=1.0), tmp_path / "run")
    first, *_, last = recorded["steps"]
    assert len(recorded["steps"]) == 4  # 2 minibatches x 2 epochs
    # Advantages of a group sum to zero, and policy and reference agree: nothing but rounding.
    assert first["loss"] == pytest.approx(0.0, abs=1e-5)
    assert first["binding"] == 0
    assert last["binding"] > 0


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence_geo"])
def test_the_loss_equals_a_loop_over_tokens(config, tmp_path, recorded, ratio, aggregation):
    c = config(horizon=1.0, tau_base=1.3, ratio=ratio, aggregation=aggregation, beta=0.1)
    run(c, tmp_path / "run")
    batch = recorded["batches"][-1]
    model, _ = load_policy(c)
    with torch.no_grad():
        size = batch.mask_B_T.sum().item() if aggregation == "token_mean" else 8
        loss, _, binds_B_T = minibatch_loss(model, batch, c, denominator=size)
        logits = completion_logits(model, batch)
    new = token_logps(logits, batch.completion_ids_B_T, 1.3)
    new_T1 = token_logps(logits, batch.completion_ids_B_T)
    objective, binding = 0.0, []
    for b in range(8):
        length, A = int(batch.mask_B_T[b].sum()), batch.advantages_B_T[b].item()
        gaps = (new - batch.old_logps_B_T)[b, :length].tolist()
        total = 0.0
        for t in range(length):
            exponent = {"token": gaps[t], "sequence": sum(gaps), "sequence_geo": sum(gaps) / length}
            rho = math.exp(exponent[ratio])
            clipped = min(max(rho, 0.8), 1.2)
            d = (new_T1 - batch.reference_logps_B_T)[b, t].item()
            total += min(rho * A, clipped * A) - 0.1 * (math.exp(-d) - 1 + d)
            binding.append((A > 0 and rho > 1.2) or (A < 0 and rho < 0.8))
        objective += total / {"sequence_mean": length, "token_mean": 1, "constant": 6}[aggregation]
    assert loss.item() == pytest.approx(-objective / size, rel=1e-4, abs=1e-6)
    assert binds_B_T[batch.mask_B_T].tolist() == binding


def gradients_of_one_step(config, folder, size):
    """The gradient that one step hands to the optimiser, without clipping."""
    c = config(minibatches=1, micro_batch_prompts=size, max_grad_norm=1.0e9, equal_groups="drop")
    one, kept = Run(c, folder), []
    prompts = one.sampler.prompts(0)
    rollouts = one.sampler.rollouts(prompts, one.engine.open(prompts), torch.ones(4), 0)
    measured = one.learner.measure(rollouts)
    advantages_B_T, _ = advantages(c, one.ranks, rollouts, measured, c.beta, None)
    epsilon_B_1 = torch.full((16, 1), 0.2)
    batch = Batch(**vars(measured), beta=c.beta, advantages_B_T=advantages_B_T, epsilon_B_1=epsilon_B_1)
    one.optimiser.step = lambda: kept.append([p.grad.clone() for p in one.policy.parameters()])
    return one.learner.step(batch, 0), torch.cat([g.flatten() for g in kept[-1]])


@pytest.mark.parametrize("size", [1, 2, 3])  # 3: parts of 3 and 1 prompts
@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_micro_batches_give_the_gradient_of_the_whole(config, tmp_path, aggregation, size):
    def build(**params):
        return config(aggregation=aggregation, **params)

    step, gradient = gradients_of_one_step(build, tmp_path, None)
    found_step, found = gradients_of_one_step(build, tmp_path, size)
    assert (found - gradient).norm() <= 1e-5 * gradient.norm()
    assert found_step["norm"] == pytest.approx(step["norm"], rel=1e-5)
    assert found_step["loss"] == pytest.approx(step["loss"], rel=1e-5, abs=1e-6)
    assert [found_step[k] for k in ("binding", "active", "tokens")] == [
        step[k] for k in ("binding", "active", "tokens")
    ]


@pytest.mark.parametrize(("size", "most"), [(None, 2), (1, 1), (3, 3)])
def test_no_forward_of_an_update_holds_more_than_a_micro_batch(config, tmp_path, monkeypatch, size, most):
    """Measuring, reference, gradient steps and drift: without a size, a minibatch at most."""
    monkeypatch.setattr("agpo_core.rollouts.loading.try_out", lambda *_: None)  # forwards before the first update
    seen, outputs = [], policy._completion_outputs
    monkeypatch.setattr(
        policy,
        "_completion_outputs",
        lambda m, b, *rest, **kw: seen.append(len(b.prompt_ids_P_S)) or outputs(m, b, *rest, **kw),
    )
    c = config("agpo", horizon=1.0, prompts_per_update=6, minibatches=3, epochs=1, micro_batch_prompts=size)
    run(c, tmp_path / "run")
    passes = 4  # policy before, reference, gradient, policy after
    assert max(seen) == most and sum(seen) == passes * 6


@pytest.mark.parametrize(
    "params",
    [
        {"shared_prompt": False},
        {"shared_prompt": False, "activation_checkpointing": True},
        {"micro_batch_prompts": 1},
        {"rollout_batch": 4},
    ],
    ids=str,
)
def test_how_a_run_is_computed_does_not_change_what_it_computes(config, tmp_path, grpo, params):
    found = run(config(**params), tmp_path / "run")
    for row, expected in zip(found.untimed, grpo[0].untimed, strict=True):
        assert row["tokens_train"] == expected["tokens_train"]
        assert row["reward"] == expected["reward"]
        assert row["grad_norms"] == pytest.approx(expected["grad_norms"], rel=1e-3)
        assert row["entropy"] == pytest.approx(expected["entropy"], rel=1e-5)


def test_groups_of_equal_rewards_give_no_loss_and_no_gradient_without_a_reference(config, tmp_path, monkeypatch):
    let_every_completion_score(monkeypatch, 1 / 3)
    c = config(horizon=1.0, beta=0.0, reference="none", weight_decay=0.0)
    result = run(c, tmp_path / "run")
    (row,) = result.rows
    assert row["equal_groups"] == 1.0
    assert row["loss"] == row["grad_norm"] == row["step_kl"] == 0.0
    assert "reference_kl" not in row
    start = dict(load_policy(c)[0].named_parameters())
    assert all(weight.equal(start[name]) for name, weight in result.weights.items())


def test_empty_completions_train_without_nan(config, tmp_path, monkeypatch):
    from agpo_core.rollouts import rollout

    def end_at_once_every_second_time(logits_B_V, tau_B, top_p, u_B):
        ids, logps = sample_token(logits_B_V, tau_B, top_p, u_B)
        return torch.where(torch.arange(len(ids)) % 2 == 0, 1, ids), logps

    sample_token = rollout.sample_token
    monkeypatch.setattr(rollout, "sample_token", end_at_once_every_second_time)
    result = run(config("agpo"), tmp_path / "run")
    assert_finite(result)
    samples = provenance.read_jsonl(result.folder / "samples.jsonl")
    assert any(sample["completion"] == "" for sample in samples)


def test_a_gradient_that_is_not_finite_stops_the_run(config, tmp_path, monkeypatch):
    aggregate = losses.aggregate
    monkeypatch.setattr(losses, "aggregate", lambda *a, **k: aggregate(*a, **k) * math.nan)
    with pytest.raises(FloatingPointError, match="gradient norm is nan at update 1.*learning_rate"):
        run(config(), tmp_path / "run")


# -- options of the objective, where they can be worked out by hand


def test_dropped_groups_leave_loss_and_mean(config, tmp_path, recorded):
    c = config(horizon=1.0, equal_groups="drop", beta=0.1)
    run(c, tmp_path / "run")
    rewards_P_G = recorded["rollouts"][0].rewards_B.view(4, 4)
    equal_P = rewards_P_G.amax(1) == rewards_P_G.amin(1)
    assert 0 < equal_P.sum() < 4
    for batch, step, equal_p in zip(recorded["batches"], recorded["steps"], [*equal_P.view(2, 2)] * 2, strict=True):
        assert batch.keep_B.tolist() == (~equal_p).repeat_interleave(4).tolist()
        if equal_p.all():
            assert (step["loss"], step["norm"]) == (0.0, 0.0)
    mixed = next(b for b in recorded["batches"] if 0 < b.keep_B.sum() < 8)
    mixed.reference_logps_B_T -= 0.5  # away from the policy: a dropped row has a KL that would tell
    kept = mixed.rows(0, 1) if mixed.keep_B[0] else mixed.rows(1, 2)
    model, _ = load_policy(c)
    with torch.no_grad():
        whole, *_ = minibatch_loss(model, mixed, c, denominator=4)
        alone, *_ = minibatch_loss(model, kept, c, denominator=4)
    assert whole.item() == pytest.approx(alone.item(), rel=1e-5, abs=1e-6)


def test_groups_of_equal_rewards_are_drawn_once_more_and_all_tokens_counted(config, tmp_path, recorded):
    keep = run(config(horizon=1.0), tmp_path / "keep").rows[0]
    again = run(config(horizon=1.0, equal_groups="resample"), tmp_path / "again").rows[0]
    first, second = recorded["rollouts"]
    rewards_P_G = first.rewards_B.view(4, 4)
    equal_P = rewards_P_G.amax(1) == rewards_P_G.amin(1)
    assert 0 < equal_P.sum() < 4
    for p in range(4):
        group = slice(4 * p, 4 * p + 4)
        assert (first.texts[group] == second.texts[group]) is (not equal_P[p])
    discarded = first.mask_B_T[equal_P.repeat_interleave(4)].sum().item()
    assert second.discarded_tokens == discarded
    assert again["tokens_train"] == second.mask_B_T.sum().item() + discarded
    assert again["length"] == second.mask_B_T.sum().item() / 16
    assert again["equal_groups"] <= keep["equal_groups"]


def test_a_kl_in_the_reward_lowers_it_before_the_group_is_normalised(config, tmp_path, recorded):
    c = config(horizon=2.0, kl_placement="reward", kl_estimator="k1", beta=0.5)
    with pytest.warns(UserWarning, match="k1 inside the reward.*advantages of unit size"):  # where a group is equal
        result = run(c, tmp_path / "run")
    assert any(row["equal_groups"] > 0 for row in result.rows)
    rollouts, batches = recorded["rollouts"][1], recorded["batches"][4:6]
    for half, batch in enumerate(batches):
        gap_B_T = (batch.old_logps_T1_B_T - batch.reference_logps_B_T) * batch.mask_B_T
        rewards_B = rollouts.rewards_B[8 * half : 8 * half + 8] - 0.5 * gap_B_T.sum(dim=1)
        groups = rewards_B.view(2, 4)
        expected = (groups - groups.mean(1, keepdim=True)) / groups.std(1, keepdim=True)
        torch.testing.assert_close(batch.advantages_B_T.view(2, 4), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("option", "temperature"), [("rollout", 1.3), ("model", 1.0)])
def test_the_ratio_is_taken_at_the_temperature_asked_for(config, tmp_path, recorded, option, temperature):
    c = config(horizon=1.0, tau_base=1.3, ratio_temperature=option)
    run(c, tmp_path / "run")
    model, _ = load_policy(c)
    for batch in recorded["batches"][:2]:
        with torch.no_grad():
            logits = completion_logits(model, batch)
        for old_B_T, at in [(batch.old_logps_B_T, temperature), (batch.old_logps_T1_B_T, 1.0)]:
            expected = token_logps(logits, batch.completion_ids_B_T, at)
            torch.testing.assert_close(old_B_T[batch.mask_B_T], expected[batch.mask_B_T], rtol=1e-5, atol=5e-5)


def test_entropy_and_step_kl_are_means_over_tokens_at_temperature_one(config, tmp_path, recorded):
    c = config(horizon=1.0, tau_base=1.3)
    result = run(c, tmp_path / "run")
    (row,) = result.rows
    start, _ = load_policy(c)
    end, _ = load_policy(c.replace(model=str(result.folder / "policy")))
    entropy, drift, tokens = 0.0, 0.0, 0
    for batch in recorded["batches"][:2]:
        ids, mask = batch.completion_ids_B_T, batch.mask_B_T
        with torch.no_grad():
            old, new = (completion_logits(m, batch).log_softmax(-1) for m in (start, end))
        entropy -= (old.exp() * old).sum(-1)[mask].sum().item()
        gap = (old - new).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        drift += gap[mask].sum().item()  # Eq. 6
        tokens += mask.sum().item()
    assert row["entropy"] == pytest.approx(entropy / tokens, rel=1e-5)
    assert row["step_kl"] == pytest.approx(drift / tokens, rel=1e-3, abs=1e-5)
    assert abs(row["step_kl"]) > 1e-3


def test_a_run_that_is_past_where_it_is_to_stop_stops_at_once(config, tmp_path):
    c = config(horizon=4.0, checkpoint_every=0.25)
    for stop_after, updates in ((2, 2), (2, 2), (1, 2), (0, 2), (3, 3), (None, 4)):
        (tmp_path / "run").mkdir(exist_ok=True)
        train(c, tmp_path / "run", stop_after)
        assert len(provenance.read_jsonl(tmp_path / "run" / "metrics.jsonl")) == updates


def test_without_a_token_a_mean_is_zero_and_a_number_that_is_not_finite_is_null(config, tmp_path):
    held = Run(config(dev_problems=0), tmp_path)
    assert held.ranks.mean(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)) == 0.0
    written = {"update": 1, "progress": 0.5, "grad_norms": [1.0]}
    held.journal.write(written | {"entropy": math.nan, "reference_kl": math.inf}, failures=[])
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert row == written | {"entropy": None, "reference_kl": None, "failed_grades": 0}


def test_the_gap_to_the_sampler_is_logged_with_its_sign_and_without(config, tmp_path):
    for row in run(config(top_p=0.5), tmp_path / "run").rows:
        assert 0.01 < abs(row["sampler_gap"]) <= row["sampler_gap_abs"] * (1 + 1e-6)
    for row in run(config(top_p=1.0), tmp_path / "whole").rows:  # rounding of either sign
        assert abs(row["sampler_gap"]) < row["sampler_gap_abs"] < 1e-4


def test_in_the_scope_of_a_prompt_each_group_has_its_own_radius_and_temperature(config, tmp_path, recorded):
    c = config("agpo", horizon=1.0, controller_scope="prompt", epsilon_base=0.06)
    (row,) = run(c, tmp_path / "run").rows
    tau_P_G = recorded["rollouts"][0].temperature_B.view(4, 4)
    epsilon_P_G = torch.cat([b.epsilon_B_1 for b in recorded["batches"][:2]]).view(4, 4)
    for values_P_G, name in [(tau_P_G, "tau"), (epsilon_P_G, "epsilon")]:
        assert values_P_G.eq(values_P_G[:, :1]).all()
        assert len(values_P_G[:, 0].unique()) > 1
        assert row[name] == pytest.approx(values_P_G.mean().item())


def test_the_radii_of_the_authors_code_are_those_of_a_plain_loop(config, tmp_path, monkeypatch):
    """Each prompt has its own H; EMA(H) is updated with every prompt, the step KL's average once per update."""
    seen, update = [], AdaptiveClip.update

    def watch(self, state, signals):
        epsilon, state = update(self, state, signals)
        seen.append((signals, epsilon))
        return epsilon, state

    monkeypatch.setattr(AdaptiveClip, "update", watch)
    c = config("agpo_official_code", epsilon_min=1.0e-6, epsilon_max=0.99, learning_rate=0.02)
    rows = run(c, tmp_path / "run").rows
    assert len(seen) == 3 * 4 and len({signals.entropy for signals, _ in seen}) == 12
    mean_h, mean_kl, found = None, 0.0, iter(seen)
    for row in rows:
        entropies = []
        for _ in range(4):
            signals, epsilon = next(found)
            h = signals.entropy
            factor = 1.0 if mean_h is None else min(max(h / mean_h, 0.5), 1.5)
            expected = 0.2 * factor * (1 + 0.1 * signals.vote_entropy) / (1 + signals.sigma + 0.5 * mean_kl)
            assert epsilon == pytest.approx(expected)
            mean_h = h if mean_h is None else 0.99 * mean_h + 0.01 * h
            entropies.append(h)
        assert min(entropies) < row["entropy"] < max(entropies)
        mean_kl = 0.9 * mean_kl + 0.1 * max(row["step_kl"], 0.0)
    assert mean_kl > 0


def test_a_collapsed_dispersion_is_counted_or_refused(config, tmp_path):
    c = config("agpo", dispersion="mad", horizon=1.0)  # G = 4: MAD is 0 at one and at three right
    assert run(c, tmp_path / "std").rows[0]["dispersion_fallback"] > 0
    with pytest.raises(ValueError, match="mad is zero in groups"):
        run(c.replace(dispersion_fallback="error"), tmp_path / "error")


def assert_finite(result):
    for row in result.rows:
        for key, value in row.items():
            for number in value if isinstance(value, list) else [value]:
                assert math.isfinite(number), key


OPTIONS = [  # for every decision that is a setting, the values other than the default
    {"ratio": "sequence"},
    {"ratio": "sequence_geo"},
    {"aggregation": "token_mean"},
    {"aggregation": "constant"},
    {"minibatches": 4, "epochs": 1},
    {"ratio_temperature": "model", "tau_base": 1.3},
    {"top_p": 1.0},
    {"kl_estimator": "k2"},
    {"kl_estimator": "k1", "kl_placement": "reward"},
    {"beta": 0.0, "reference": "none"},
    {"lora_rank": 2},
    {"lora_rank": 2, "reference": "frozen_copy"},
    {"equal_groups": "drop"},
    {"equal_groups": "resample"},
    {"dispersion": "mad"},
    {"dispersion": "iqr", "dispersion_fallback": "zero"},
    {"skewness": "G1"},
    {"skewness": "b1"},
    {"skewness_guard": "mode", "dispersion": "mad"},
    {"missing_answers": "drop"},
    {"missing_answers": "unique"},
    {"controller_scope": "prompt"},
    {"clip_entropy": "ratio_ema"},
    {"clip_entropy": "normalised"},
    {"clip_entropy": "off"},
    {"baseline_start": "first"},
    {"baseline_start": "debiased"},
    {"centring": "relative"},
    {"step_kl": "unclamped"},
    {"step_kl": "ema"},
    {"step_kl_estimator": "k3"},
    {"probe_group_size": 2},
    {"signals_mask": [0, 1, 1, 0]},
    {"signals_mask": [1, 1, 1, 1, 0]},
    {"horizon_unit": "tokens", "horizon": 50.0},
]


@pytest.mark.filterwarnings("ignore:k1 inside the reward")
@pytest.mark.parametrize("params", OPTIONS, ids=str)
def test_every_option_runs_with_finite_metrics(config, tmp_path, params):
    if "lora_rank" in params:
        pytest.importorskip("peft", reason="LoRA needs the package peft")
    small = {"horizon": 2.0, "dev_problems": 0, "test_problems": 0, "learning_rate": 2.0e-4}
    result = run(config("agpo", **{**small, **params}), tmp_path / "run")
    assert_finite(result)
    assert result.rows[-1]["grad_norm"] > 0
    assert (result.folder / "policy").is_dir()


def test_bfloat16_without_float32_master_weights_is_refused(config, tmp_path):
    with pytest.raises(ConfigError, match="bfloat16 needs DeepSpeed.*launcher"):
        run(config(dtype="bfloat16"), tmp_path / "bf16")


def test_a_warning_is_said_once_and_kept_also_over_a_resume(config, tmp_path):
    # .051 H (1 + ..) / (1 + 50 sigma) < .05 in every update
    c = config(
        "agpo", horizon=13.0, epsilon_base=0.051, alpha=50.0, checkpoint_every=0.1, dev_problems=0, test_problems=0
    )
    with pytest.warns(UserWarning, match="epsilon_min in 100% of 10 updates"):
        run(c, tmp_path / "pinned", stop_after=11)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run(c, tmp_path / "pinned")
    (kept,) = provenance.read_jsonl(tmp_path / "pinned" / "warnings.jsonl")
    assert (kept["update"], kept["rule"]) == (10, "radius_is_pinned")


def test_one_gradient_step_a_batch_warns_that_the_clip_is_inert(config, tmp_path):
    with pytest.warns(UserWarning, match="clip radius is inert.*raise minibatches or epochs"):
        result = run(config(horizon=1.0, minibatches=1, epochs=1), tmp_path / "one")
    assert result.rows[0]["clip_fraction"] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        Run(config(minibatches=1, epochs=2), tmp_path)


# -- learning rate


def test_learning_rate_by_hand(config):
    c = config(learning_rate=1.0e-3, warmup=0.2)
    expected = {
        0.0: 1e-4,  # a tenth of the peak, so that the first update changes something
        0.01: 1e-4,  # .01 / .2 < .1
        0.1: 5e-4,  # .1 / .2
        0.2: 1e-3,
        0.6: 5e-4,  # half of the way from .2 to 1: (1 + cos(pi / 2)) / 2
        0.8: 1e-3 * (1 - math.sqrt(0.5)) / 2,  # three quarters: cos = -sqrt(1 / 2)
        1.0: 0.0,
    }
    for progress, rate in expected.items():
        assert learning_rate(c, progress) == pytest.approx(rate, abs=1e-18)
    assert learning_rate(config(learning_rate=1.0e-3, warmup=0.0), 0.0) == 1e-3


def test_the_learning_rate_of_an_update_is_that_of_the_progress_at_its_start(agpo, agpo_config):
    starts = [0.0, *(row["progress"] for row in agpo.rows[:-1])]
    expected = [learning_rate(agpo_config, progress) for progress in starts]
    assert [row["learning_rate"] for row in agpo.rows] == expected


# -- interrupted and resumed


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4])  # checkpoints are at 2, 4 and 5
def test_an_interrupted_and_resumed_run_equals_a_straight_one(agpo, agpo_config, tmp_path, stop_after):
    broken = run(agpo_config, tmp_path / "run", stop_after=stop_after)
    assert len(broken.rows) == stop_after
    assert not (broken.folder / "policy").exists()
    run(agpo_config, tmp_path / "run").assert_same(agpo)


class Killed(BaseException):
    """A process that dies."""


@pytest.mark.parametrize("where", ["step", "log", "evaluate_dev", "save", "finish"])
def test_a_run_killed_in_the_middle_and_resumed_equals_a_straight_one(agpo, agpo_config, tmp_path, monkeypatch, where):
    owner = {"step": Learner, "log": Journal}.get(where, Run)
    whole = getattr(owner, where)

    def die(self, *arguments):
        updates = arguments[-1] if where == "step" else self.horizon.updates
        if updates >= (5 if where == "finish" else 3):
            raise Killed
        return whole(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, die)
        with pytest.raises(Killed):
            run(agpo_config, tmp_path / "run")
    run(agpo_config, tmp_path / "run").assert_same(agpo)


def test_a_run_killed_after_its_policy_was_saved_is_finished_again(agpo, agpo_config, tmp_path):
    run(agpo_config, tmp_path / "run")
    run(agpo_config, tmp_path / "run").assert_same(agpo)


def test_a_torn_last_line_is_written_anew(agpo, agpo_config, tmp_path):
    broken = run(agpo_config, tmp_path / "run", stop_after=3)
    with open(broken.folder / "metrics.jsonl", "a") as file:
        file.write('{"update": 4, "progr')
    run(agpo_config, tmp_path / "run").assert_same(agpo)


# -- the command


@pytest.fixture
def command(config, tmp_path, monkeypatch):
    """Run the command on a folder: command() -> the folder's Result."""
    folder = tmp_path / "grpo-s42-0123456789"
    folder.mkdir()
    config(horizon=2.0).save(folder / "config.yaml")

    def call():
        monkeypatch.setattr(sys, "argv", ["train", "--run-dir", str(folder)])
        main()
        return Result(folder)

    call.folder = folder
    return call


def test_the_command_trains_what_the_folder_says_and_records_it(command):
    result = command()
    record = provenance.read_json(result.folder / "run.json")
    assert record["status"] == "finished"
    assert record["exit_status"] == 0
    assert (record["method"], record["seed"]) == ("grpo", 42)
    assert len(result.rows) == 2


def test_a_finished_run_is_left_alone(command, capsys):
    result = command()
    before = {path: path.stat().st_mtime_ns for path in result.folder.rglob("*")}
    capsys.readouterr()
    command()
    assert capsys.readouterr().out == "grpo-s42-0123456789 is finished.\n"
    assert {path: path.stat().st_mtime_ns for path in result.folder.rglob("*")} == before


def test_a_failed_run_says_why_and_is_resumed(command, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "drift", lambda self, batch: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            command()
    record = provenance.read_json(command.folder / "run.json")
    assert (record["status"], record["exit_status"]) == ("failed", 1)
    assert record["error"] == "ZeroDivisionError: division by zero"
    assert len(command().rows) == 2
    assert provenance.read_json(command.folder / "run.json")["status"] == "finished"


def test_a_mistyped_file_is_refused_before_anything_is_written(command):
    (command.folder / "config.yaml").write_text("method: grpo\nlearnig_rate: 1.0e-5\n")
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        command()
    assert [path.name for path in command.folder.iterdir()] == ["config.yaml"]


def test_a_run_without_tasks_is_refused(config, tmp_path):
    with pytest.raises(ConfigError, match="tasks is empty"):
        train(config(tasks=[]), tmp_path)


def test_an_evaluation_set_is_refused_before_it_is_missed_a_dev_split(config, tmp_path, monkeypatch):
    monkeypatch.setattr("agpo_core.training.run.get_task", get_task)
    with pytest.raises(ConfigError, match="tasks: sat_math is for evaluation only.*train_on_evaluation_sets to true"):
        train(config(tasks=["sat_math"], data_dir=str(tmp_path)), tmp_path)


def test_prompts_that_do_not_divide_among_the_ranks_are_refused(config, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="multiple of minibatches x ranks = 2 x 3"):
        module.make_accelerator(config())
