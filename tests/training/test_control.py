"""The protocol of the loop's controllers: a state goes in; value, state and log come out; nothing else changes."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from agpo_core import metrics
from agpo_core.probe import ProbeState
from agpo_core.training.control import Control
from agpo_core.training.ranks import Ranks
from agpo_core.training.update import advantages

PROBES = [ProbeState(0.5, 0.3, 1.0), ProbeState(0.1, 2.0, 0.0), ProbeState(0.3, 0.0, 0.5), ProbeState(0.2, 0.1, 1.2)]


def measured(shift):
    """Log-probabilities so far from the reference, on four prompts' groups of four."""
    old_B_T = torch.full((16, 3), -1.0)
    return SimpleNamespace(
        old_logps_T1_B_T=old_B_T,
        reference_logps_B_T=old_B_T - shift,
        mask_B_T=torch.ones(16, 3, dtype=torch.bool),
    )


def control_of(config) -> Control:
    return Control(config, Ranks(Accelerator(), config.prompts_per_update), vocabulary_size=64)


ASKED = {  # name -> (controller, what the loop asks in one update)
    "temperature": lambda control, state, update: control.temperatures(state, [PROBES[update]]),
    "clip": lambda control, state, update: control.radii(state, [PROBES[update]], [0.9 + update], 0.1 * update),
    "kl": lambda control, state, update: control.kl_weight(state, measured(shift=4.0 - update)),
}
METHODS = ["grpo", "agpo", "agpo_official_code", "adaptive_kl_ppo"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ASKED)
def test_a_controller_answers_from_its_state_alone_and_changes_nothing_but_its_answer(config, name, method):
    c = config(method, controller_scope="update", **({"beta": 0.1} if name == "kl" else {}))
    control, fresh = control_of(c), control_of(c)
    state = getattr(control, name).initial_state()
    for update in range(3):
        before = copy.deepcopy(state)
        value, after, log = ASKED[name](control, state, update)
        again, after_again, log_again = ASKED[name](fresh, json.loads(json.dumps(state)), update)
        assert torch.as_tensor(value).equal(torch.as_tensor(again)) and (after, log) == (after_again, log_again)
        assert state == before
        assert log.keys() <= metrics.LOGGED.keys()
        state = after


def test_the_kl_weight_of_an_update_is_set_by_the_updates_before(config):
    control = control_of(config("adaptive_kl_ppo", beta=0.1, kl_target=6.0, kl_horizon=32.0))
    state = control.kl.initial_state()
    first, state, log = control.kl_weight(state, measured(shift=4.0))  # 4 nats per token are 12 per sequence: e = .2
    second, _, _ = control.kl_weight(state, measured(shift=4.0))
    assert first == log["beta"] == 0.1
    assert second == pytest.approx(0.1 * (1 + 0.5 * 0.2))  # K = 16 / 32


@pytest.mark.parametrize("scope", ["update", "prompt"])
def test_with_nothing_to_listen_to_controllers_keep_base_and_state(config, scope):
    control = control_of(config("agpo", controller_scope=scope, epsilon_base=0.3, tau_base=0.9))
    assert control.signals(None, None) == (None, {})
    for name, base, found in (
        ("temperature", 0.9, lambda state: control.temperatures(state, None)),
        ("clip", 0.3, lambda state: control.radii(state, None, [1.0] * (4 if scope == "prompt" else 1), 0.0)),
    ):
        state = getattr(control, name).initial_state()
        value_P, after, _ = found(state)
        assert value_P.tolist() == pytest.approx([base] * 4) and after == state


def test_a_free_probe_is_what_was_remembered(config):
    former = PROBES[0]
    assert control_of(config("agpo_free_probe")).signals(None, former) == ([former], vars(former))


@pytest.mark.parametrize("method", ["ppo", "grpo", "remax", "reinforce_pp_k", "reinforce_pp_baseline"])
def test_advantages_are_computed_and_write_nothing(config, method):
    c, generator = config(method), torch.Generator().manual_seed(0)
    B = c.prompts_per_update * c.group_size
    given = measured(shift=0.1)
    given.old_values_B_T = torch.rand(B, 3, generator=generator) if method == "ppo" else None
    for name in ("old_logps_T1_B_T", "reference_logps_B_T", "mask_B_T"):
        setattr(given, name, getattr(given, name)[:B])
    rollouts = SimpleNamespace(rewards_B=torch.rand(B, generator=generator))
    greedy = SimpleNamespace(rewards_B=torch.rand(c.prompts_per_update, generator=generator))
    before = copy.deepcopy((vars(given), vars(rollouts), vars(greedy)))
    found, returns_B_T = advantages(
        c, Ranks(Accelerator(), c.prompts_per_update), rollouts, given, c.beta, greedy
    )  # fmt: skip
    assert found.shape in ((B, 1), (B, 3)) and found.abs().sum() > 0
    assert (returns_B_T is not None) == (method == "ppo")
    for then, now in zip(before, (given, rollouts, greedy), strict=True):
        for name, value in then.items():
            assert value is None and getattr(now, name) is None or value.equal(getattr(now, name)), name
