"""Clip radius and sampling temperature, AGPO Eqs. 4, 9-12 and Lemma 1; the KL coefficient of Ziegler et al. 2019."""

import dataclasses
import doctest
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import controllers
from agpo_core.controllers import (
    AdaptiveClip,
    AdaptiveKL,
    AdaptiveTemperature,
    ClipSignals,
    FixedClip,
    FixedKL,
    FixedTemperature,
    KLSignals,
)
from agpo_core.probe import ProbeState

quick = settings(derandomize=True, max_examples=60)

# The widest a controller can meet: eight rewards in [0, 1], any entropy, any drift.
states = st.builds(
    ProbeState,
    sigma=st.floats(0, 0.54),
    skewness=st.floats(0, 10),
    vote_entropy=st.floats(0, math.log(8)),
)
clip_signals = st.builds(
    ClipSignals,
    sigma=st.floats(0, 0.54),
    skewness=st.floats(0, 10),
    vote_entropy=st.floats(0, math.log(8)),
    entropy=st.floats(0, 12),
    step_kl=st.floats(-100, 100),
)
clips = st.builds(
    AdaptiveClip,
    entropy=st.sampled_from(["raw", "ratio_ema", "normalised", "off"]),
    step_kl=st.sampled_from(["clamp", "ema", "unclamped"]),
    signals_mask=st.lists(st.integers(0, 1), min_size=4, max_size=5),
    vocabulary_size=st.just(100),
)
temperatures = st.builds(
    AdaptiveTemperature,
    start=st.sampled_from(["zero", "first", "debiased"]),
    centring=st.sampled_from(["absolute", "relative"]),
    signals_mask=st.lists(st.integers(0, 1), min_size=4, max_size=5),
    sensitivity=st.floats(0, 5),
    momentum=st.floats(0, 0.99),
)

# Eq. 4 by hand, from here on: .2 H (1 + .2 E) / (1 + σ̂ + .05 |κ̃₃| + .5 D̂).
SIGNALS = ClipSignals(sigma=0.5, skewness=2.0, vote_entropy=1.0, entropy=1.0, step_kl=0.8)
PROBE = ProbeState(sigma=0.5, skewness=2.0, vote_entropy=0.8)  # U = .5 + .8 + .2 = 1.5


def values(controller, signals):
    """Run a controller over a list of signals."""
    state, found = controller.initial_state(), []
    for signal in signals:
        value, state = controller.update(state, signal)
        found.append(value)
    return found


def first(controller, signal):
    return values(controller, [signal])[0]


def with_(signals, **changes):
    return dataclasses.replace(signals, **changes)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(controllers).failed == 0


# -- both controllers


@quick
@given(clips, st.lists(clip_signals, min_size=1, max_size=5))
def test_epsilon_stays_within_its_bounds(clip, signals):
    assert all(0.05 <= epsilon <= 0.4 for epsilon in values(clip, signals))  # Lemma 1


@quick
@given(temperatures, st.lists(states, min_size=1, max_size=5))
def test_tau_stays_within_its_bounds(temperature, signals):
    assert all(0.5 <= tau <= 1.5 for tau in values(temperature, signals))  # Lemma 1


@quick
@given(
    controller=st.one_of(clips, temperatures, st.just(FixedClip()), st.just(FixedTemperature())),
    signals=st.lists(clip_signals, min_size=2, max_size=6),
)
def test_state_survives_json_and_resumes_exactly(controller, signals):
    state, found = controller.initial_state(), []
    for signal in signals:
        value, state = controller.update(json.loads(json.dumps(state)), signal)
        found.append(value)
    assert found == values(controller, signals)


@quick
@given(
    controller=st.one_of(clips, temperatures),
    signals=st.lists(clip_signals, min_size=1, max_size=4),
)
def test_a_value_is_its_raw_value_clipped_and_asking_changes_nothing(controller, signals):
    state = controller.initial_state()
    for signal in signals:
        before = dict(state)
        raw = controller.raw(state, signal)
        value, new_state = controller.update(state, signal)
        lowest, highest = (0.05, 0.4) if isinstance(controller, AdaptiveClip) else (0.5, 1.5)
        assert value == min(max(raw, lowest), highest)
        assert state == before
        state = new_state


@pytest.mark.parametrize("controller", [FixedClip(0.3), FixedTemperature(0.3)])
def test_fixed_twins_always_say_the_same(controller):
    assert values(controller, [SIGNALS, with_(SIGNALS, sigma=0.0)]) == [0.3, 0.3]
    assert controller.raw(controller.initial_state(), SIGNALS) == 0.3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_signals_that_are_not_finite_are_refused_by_name(bad):
    # min(max(nan, low), high) is low: a broken probe would look like a cautious one.
    with pytest.raises(ValueError, match="signals.entropy=.* is not finite"):
        first(AdaptiveClip(), with_(SIGNALS, entropy=bad))
    with pytest.raises(ValueError, match="signals.sigma=.* is not finite"):
        first(AdaptiveTemperature(), with_(PROBE, sigma=bad))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AdaptiveClip(epsilon_min=0.0), "epsilon_min=0.0: give a finite number > 0"),
        (lambda: AdaptiveClip(epsilon_base=math.nan), "epsilon_base=nan"),
        (lambda: AdaptiveClip(epsilon_max=0.01), "epsilon_min=0.05 lies above epsilon_max=0.01"),
        (lambda: AdaptiveClip(gamma=-0.5), "gamma=-0.5: give a finite number >= 0"),
        (lambda: AdaptiveClip(signals_mask=(1, 1, 1)), "signals_mask=.*four bits"),
        (lambda: AdaptiveClip(signals_mask=(1, 1, 1, 2)), "signals_mask=.*each 0 or 1"),
        (lambda: AdaptiveClip(entropy="ema"), "entropy='ema' is unknown"),
        (lambda: AdaptiveClip(step_kl="k3"), "step_kl='k3' is unknown"),
        (lambda: AdaptiveClip(entropy="normalised"), "give vocabulary_size"),
        (lambda: AdaptiveClip(entropy="normalised", vocabulary_size=1), "give vocabulary_size"),
        (lambda: AdaptiveTemperature(tau_min=2.0), "tau_min=2.0 lies above tau_max=1.5"),
        (lambda: AdaptiveTemperature(tau_base=-1.0), "tau_base=-1.0"),
        (lambda: AdaptiveTemperature(sensitivity=-0.1), "sensitivity=-0.1"),
        (lambda: AdaptiveTemperature(momentum=1.0), r"momentum=1.0: give ρ_U in \[0, 1\)"),
        (lambda: AdaptiveTemperature(weights=(1.0, 1.0)), "weights=.*give three"),
        (lambda: AdaptiveTemperature(weights=(1.0, -1.0, 0.1)), "w_e=-1.0"),
        (lambda: AdaptiveTemperature(signals_mask=()), "signals_mask="),
        (lambda: AdaptiveTemperature(start="warm"), "start='warm'"),
        (lambda: AdaptiveTemperature(centring="ratio"), "centring='ratio'"),
        (lambda: FixedClip(0.0), "epsilon=0.0"),
        (lambda: FixedTemperature(-1.0), "tau=-1.0"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_controllers_can_be_stepped_once_a_prompt():
    # As in the authors' code: one radius and one temperature a prompt, the memory handed on.
    prompts = [with_(PROBE, sigma=sigma) for sigma in (0.0, 0.25, 0.5)]
    temperature = AdaptiveTemperature(start="first")
    taus = values(temperature, prompts)
    # U = 1, 1.25, 1.5; Ū = 1, 1, .95 * 1 + .05 * 1.25 = 1.0125
    assert taus == pytest.approx([1.0, 1 + 0.15 * 0.25, 1 + 0.15 * 0.4875])


# -- clip radius (Eq. 4)


def test_epsilon_by_hand():
    # .2 * 1 * 1.2 / (1 + .5 + .1 + .4) = .24 / 2
    assert first(AdaptiveClip(), SIGNALS) == pytest.approx(0.12)


def test_every_coefficient_stands_at_its_signal():
    clip = AdaptiveClip(epsilon_base=0.1, alpha=2.0, gamma=3.0, delta=4.0, zeta=5.0)
    # .1 * 1 * (1 + 4 * 1) / (1 + 2 * .5 + 5 * 2 + 3 * .8) = .5 / 14.4
    assert clip.raw(clip.initial_state(), SIGNALS) == pytest.approx(0.5 / 14.4)


def test_first_update_has_no_step_kl():
    signals = ClipSignals(sigma=0.5, skewness=2.0, vote_entropy=1.0, entropy=1.0)
    assert signals.step_kl == 0
    assert first(AdaptiveClip(), signals) == pytest.approx(0.24 / 1.6)


@quick
@given(clip_signals, st.sampled_from(["raw", "normalised", "off", "ratio_ema"]), st.floats(0, 5))
def test_epsilon_rises_with_uncertainty_and_falls_with_risk(signals, entropy, more):
    clip = AdaptiveClip(entropy=entropy, step_kl="unclamped", vocabulary_size=100)
    state = {"entropy_ema": 1.0, "step_kl_ema": 0.0}
    epsilon, _ = clip.update(state, signals)
    for name in ("entropy", "vote_entropy"):
        changed = with_(signals, **{name: getattr(signals, name) + more})
        assert clip.update(state, changed)[0] >= epsilon
    for name in ("sigma", "skewness", "step_kl"):
        changed = with_(signals, **{name: getattr(signals, name) + more})
        assert clip.update(state, changed)[0] <= epsilon


@quick
@given(clip_signals)
def test_clip_reduces_to_grpo_when_the_bounds_meet(signals):
    clip = AdaptiveClip(epsilon_min=0.2, epsilon_max=0.2)
    assert first(clip, signals) == first(FixedClip(0.2), signals)


@quick
@given(clip_signals)
def test_clip_reduces_to_grpo_when_no_signal_is_heard(signals):
    clip = AdaptiveClip(signals_mask=(0, 0, 0, 0, 0))
    assert first(clip, signals) == first(FixedClip(0.2), signals)


@pytest.mark.parametrize(
    ("signals_mask", "expected"),
    [
        ((0, 1, 1, 1), 0.24 / 1.5),  # without .5 of dispersion
        ((1, 0, 1, 1), 0.24 / 1.9),  # without .1 of skewness
        ((1, 1, 0, 1), 0.20 / 2.0),  # without the factor 1.2 of vote entropy
        ((1, 1, 1, 0), 0.24 / 1.6),  # without .4 of step KL
        ([1, 1, 1, 1, 1], 0.24 / 2.0),
    ],
)
def test_a_masked_signal_leaves_eq_4(signals_mask, expected):
    assert first(AdaptiveClip(signals_mask=signals_mask), SIGNALS) == pytest.approx(expected)


def test_a_fifth_bit_masks_the_policy_entropy():
    signals = with_(SIGNALS, entropy=1.5)
    assert first(AdaptiveClip(), signals) == pytest.approx(0.18)
    assert first(AdaptiveClip(signals_mask=(1, 1, 1, 1, 0)), signals) == pytest.approx(0.12)


def test_raw_entropy_pins_epsilon_at_its_bounds():
    signals = ClipSignals(sigma=0.5, skewness=0.5, vote_entropy=1.0, entropy=0.3)
    # .2 * .3 * 1.2 / 1.525 = .047 < ε_min; with H = 5 nats .787 > ε_max
    assert first(AdaptiveClip(), signals) == 0.05
    assert first(AdaptiveClip(), with_(signals, entropy=5.0)) == 0.4


def test_normalised_entropy_is_one_for_a_uniform_policy():
    clip = AdaptiveClip(entropy="normalised", vocabulary_size=64)
    uniform = with_(SIGNALS, entropy=math.log(64))
    assert first(clip, uniform) == pytest.approx(first(AdaptiveClip(entropy="off"), uniform))
    assert first(clip, with_(SIGNALS, entropy=math.log(8))) == pytest.approx(0.06)  # half of .12


def test_entropy_off_ignores_the_entropy():
    clip = AdaptiveClip(entropy="off")
    assert first(clip, with_(SIGNALS, entropy=0.01)) == first(clip, with_(SIGNALS, entropy=9.0))
    assert first(clip, SIGNALS) == pytest.approx(0.12)


def test_entropy_ratio_follows_the_running_mean():
    clip = AdaptiveClip(entropy="ratio_ema")
    entropies = [0.2, 0.2, 0.22, 0.05, 1.0, 0.2]
    # EMA(H), read before folding: .2, .2, .2, .99 * .2 + .01 * .22 = .2002, .198698, .206711
    # Ratios: 1 at the first update, 1, 1.1, .25 -> bounded to .5, 5.03 -> bounded to 1.5,
    # and .2 / .206711.
    expected = [0.12, 0.12, 0.132, 0.06, 0.18, 0.12 * 0.2 / 0.206711]
    assert values(clip, [with_(SIGNALS, entropy=H) for H in entropies]) == pytest.approx(expected)


def test_entropy_ratio_of_a_policy_without_entropy_is_one():
    assert values(AdaptiveClip(entropy="ratio_ema"), [with_(SIGNALS, entropy=0.0)] * 2) == (pytest.approx([0.12, 0.12]))


def test_entropy_ratio_is_unchanged_by_the_unit_of_entropy():
    clip, entropies = AdaptiveClip(entropy="ratio_ema"), [0.2, 0.3, 0.25]
    nats = values(clip, [with_(SIGNALS, entropy=H) for H in entropies])
    bits = values(clip, [with_(SIGNALS, entropy=H / math.log(2)) for H in entropies])
    assert nats == pytest.approx(bits)


def test_negative_step_kl_counts_as_zero():
    assert first(AdaptiveClip(), with_(SIGNALS, step_kl=-0.4)) == pytest.approx(0.24 / 1.6)


def test_step_kl_can_be_averaged():
    clip = AdaptiveClip(step_kl="ema")
    # Averages .1 * 1 = .1; .9 * .1 + .1 * 1 = .19; .9 * .19 + .1 * 0 = .171; .9 * .171 = .1539
    signals = [with_(SIGNALS, step_kl=D) for D in (1.0, 1.0, -5.0, 0.0)]
    expected = [0.24 / (1.6 + 0.5 * D) for D in (0.1, 0.19, 0.171, 0.1539)]
    assert values(clip, signals) == pytest.approx(expected)


def test_unclamped_step_kl_widens_the_clip_and_cannot_turn_its_sign():
    clip = AdaptiveClip(step_kl="unclamped")
    # 1.6 - .5 * .4 = 1.4
    assert first(clip, with_(SIGNALS, step_kl=-0.4)) == pytest.approx(0.24 / 1.4)
    # Below -(1 + .5 + .1) / .5 = -3.2 Eq. 4's denominator is negative; literally ε would be ε_min.
    assert first(clip, with_(SIGNALS, step_kl=-3.3)) == 0.4
    assert first(clip, with_(SIGNALS, step_kl=-3.1)) == 0.4


# -- temperature (Eqs. 9-12)


def test_tau_by_hand():
    temperature = AdaptiveTemperature()
    found = values(temperature, [PROBE, PROBE, with_(PROBE, sigma=0.0)])
    # Ū = 0; .05 * 1.5 = .075; .95 * .075 + .075 = .14625. U = 1.5, 1.5, 1.
    expected = [1 + 0.15 * 1.5, 1 + 0.15 * 1.425, 1 + 0.15 * 0.85375]
    assert found == pytest.approx(expected)


def test_baseline_holds_the_previous_uncertainty_and_not_the_current_one():
    temperature = AdaptiveTemperature(momentum=0.0)
    state = temperature.initial_state()
    for uncertainty_before, sigma in [(0.0, 0.5), (1.5, 0.1), (1.1, 0.0)]:
        signals = with_(PROBE, sigma=sigma)  # U = sigma + 1
        assert temperature.baseline(state, signals) == pytest.approx(uncertainty_before)
        _, state = temperature.update(state, signals)


def test_literal_start_heats_for_sixty_updates_whatever_the_data():
    taus = values(AdaptiveTemperature(), [PROBE] * 100)
    # Constant U = 1.5: τ_t = 1 + .15 * 1.5 * .95^t
    assert [taus[t] for t in (0, 19, 59)] == pytest.approx([1.225, 1.085, 1.011], abs=5e-4)
    assert all(tau > 1.01 for tau in taus[:60])


@pytest.mark.parametrize("start", ["first", "debiased"])
def test_other_starts_leave_constant_uncertainty_at_tau_base(start):
    assert values(AdaptiveTemperature(start=start), [PROBE] * 20) == pytest.approx([1.0] * 20)


def test_starts_by_hand():
    signals = [with_(PROBE, sigma=sigma) for sigma in (0.5, 0.1, 0.0)]  # U = 1.5, 1.1, 1
    # first: Ū = 1.5, 1.5, .95 * 1.5 + .05 * 1.1 = 1.48
    found = values(AdaptiveTemperature(start="first"), signals)
    assert found == pytest.approx([1, 1 - 0.15 * 0.4, 1 - 0.15 * 0.48])
    # debiased: Ū = 1.5, 1.5, (.95 * 1.5 + 1.1) / 1.95 = 1.294872
    found = values(AdaptiveTemperature(start="debiased"), signals)
    assert found == pytest.approx([1, 1 - 0.15 * 0.4, 1 - 0.15 * 0.294872])


@pytest.mark.parametrize("start", ["zero", "first", "debiased"])
def test_starts_agree_in_the_long_run(start):
    signals = [with_(PROBE, sigma=0.1 * (t % 5)) for t in range(400)]
    taus = values(AdaptiveTemperature(start=start), signals)
    literal = values(AdaptiveTemperature(), signals)
    assert taus[-1] == pytest.approx(literal[-1], abs=1e-6)


@quick
@given(st.lists(states, min_size=1, max_size=4))
def test_tau_is_tau_base_without_sensitivity(signals):
    taus = values(AdaptiveTemperature(sensitivity=0.0, tau_base=0.9), signals)
    assert taus == values(FixedTemperature(0.9), signals)


@quick
@given(temperatures, states, states, st.floats(0, 1))
def test_tau_rises_with_uncertainty(temperature, before, signals, more):
    _, state = temperature.update(temperature.initial_state(), before)
    tau, _ = temperature.update(state, signals)
    for name in ("sigma", "skewness", "vote_entropy"):
        changed = with_(signals, **{name: getattr(signals, name) + more})
        assert temperature.update(state, changed)[0] >= tau


def test_tau_moves_both_ways_around_tau_base():
    temperature, state = AdaptiveTemperature(), {"baseline": 1.5, "updates": 100}
    assert temperature.update(state, with_(PROBE, sigma=0.1))[0] == pytest.approx(1 - 0.15 * 0.4)
    assert temperature.update(state, with_(PROBE, vote_entropy=2.0))[0] == pytest.approx(1.18)


def test_bounds_on_tau_never_bind_for_eight_binary_rewards():
    # U <= 2.66 (see test_probe), and Ū lies in [0, 2.66].
    certain, largest = ProbeState(0.0, 0.0, 0.0), ProbeState(8**-0.5, 6 / 7**0.5, math.log(8))
    temperature = AdaptiveTemperature()
    for baseline, signals, expected in [(0.0, largest, 1.40), (2.66, certain, 0.60)]:
        tau, _ = temperature.update({"baseline": baseline, "updates": 1000}, signals)
        assert tau == pytest.approx(expected, abs=2e-3)


def test_relative_centring_by_hand():
    temperature = AdaptiveTemperature(centring="relative", start="first")
    state = {"baseline": 1.2, "updates": 5}
    assert temperature.update(state, PROBE)[0] == pytest.approx(1 + 0.15 * 0.25)  # .3 / 1.2
    # Floor at U = 0: τ_base (1 - λ), so that τ_min is out of reach.
    assert temperature.update(state, ProbeState(0.0, 0.0, 0.0))[0] == pytest.approx(0.85)
    # A small baseline explodes: (.7 - .05) / .05 = 13, τ = 2.95 before the bound.
    state, signals = {"baseline": 0.05, "updates": 5}, ProbeState(0.0, 0.0, 0.7)
    assert temperature.update(state, signals)[0] == 1.5


def test_centrings_agree_where_the_baseline_is_one():
    state = {"baseline": 1.0, "updates": 5}
    absolute = AdaptiveTemperature().update(state, PROBE)[0]
    relative = AdaptiveTemperature(centring="relative").update(state, PROBE)[0]
    assert relative == pytest.approx(absolute)


def test_a_masked_signal_leaves_the_baseline_too():
    temperature = AdaptiveTemperature(signals_mask=(1, 1, 0, 1))
    tau, state = temperature.update(temperature.initial_state(), PROBE)
    assert tau == pytest.approx(1 + 0.15 * 0.7)
    assert state["baseline"] == pytest.approx(0.05 * 0.7)


def test_step_kl_bit_does_not_touch_the_temperature():
    heard, masked = AdaptiveTemperature(), AdaptiveTemperature(signals_mask=(1, 1, 1, 0))
    assert values(heard, [PROBE] * 3) == values(masked, [PROBE] * 3)


# -- KL coefficient

kl_signals = st.builds(KLSignals, kl=st.floats(-1e6, 1e6), sequences=st.integers(1, 100_000))
adaptive_kls = st.builds(AdaptiveKL, beta=st.floats(1e-6, 10), target=st.floats(1e-3, 100), horizon=st.floats(1, 1e6))


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (6.6, 0.105),  # e = .1: .1 (1 + .5 * .1)
        (5.4, 0.095),  # e = -.1
        (6.0, 0.1),
        (60.0, 0.11),  # e = 9, bounded to .2
        (0.0, 0.09),  # e = -1, bounded to -.2
        (-3.0, 0.09),  # an estimate below zero counts as far too near
    ],
)
def test_kl_coefficient_by_hand(kl, expected):
    controller = AdaptiveKL(beta=0.1, target=6.0, horizon=1000.0)
    assert first(controller, KLSignals(kl, sequences=500)) == pytest.approx(expected)


def test_printed_gain_is_a_tenth_of_a_horizon_of_sequences():
    # Ziegler et al. print K = .1: β .1 (1 + .1 * .2)
    assert first(AdaptiveKL(beta=0.1, horizon=1000.0), KLSignals(99.0, sequences=100)) == pytest.approx(0.102)


def test_kl_coefficient_is_read_before_and_changed_after_the_update():
    controller = AdaptiveKL(beta=0.1, target=6.0, horizon=1000.0)
    state = controller.initial_state()
    assert controller.value(state) == 0.1
    following, after = controller.update(state, KLSignals(kl=12.0, sequences=100))
    assert controller.value(state) == 0.1
    assert controller.value(after) == following == pytest.approx(0.102)


@quick
@given(adaptive_kls, st.lists(kl_signals, min_size=1, max_size=5), st.floats(0, 100))
def test_kl_coefficient_is_positive_and_does_not_fall_when_the_kl_rises(controller, signals, more):
    state = controller.initial_state()
    for signal in signals:
        beta, after = controller.update(state, signal)
        assert 0 < beta < math.inf
        # An update moves it by a fifth at most, whatever the KL and the number of sequences.
        assert 0.8 - 1e-9 <= beta / controller.value(state) <= 1.2 + 1e-9
        assert controller.update(state, with_(signal, kl=signal.kl + more))[0] >= beta
        state = after


def test_kl_coefficient_never_dies_out_and_never_overflows():
    controller = AdaptiveKL(beta=0.1, target=6.0, horizon=1.0)
    for kl, bound in ((1e9, 0.1e6), (0.0, 0.1e-6)):
        # 1.2^5000 = 1e396 and .8^5000 = 1e-485 lie outside float64.
        assert values(controller, [KLSignals(kl, 1)] * 5000)[-1] == pytest.approx(bound)


def test_kl_coefficient_hardly_depends_on_how_sequences_are_cut_into_updates():
    controller = AdaptiveKL(beta=0.1, target=6.0, horizon=10_000.0)
    one = first(controller, KLSignals(6.6, sequences=1000))
    many = values(controller, [KLSignals(6.6, sequences=100)] * 10)[-1]
    # .1 (1 + .01) and .1 (1 + .001)^10 = .1010045
    assert one == pytest.approx(0.101)
    assert many == pytest.approx(0.1010045, abs=1e-7)


@quick
@given(st.lists(kl_signals, min_size=1, max_size=4))
def test_an_infinite_horizon_reduces_to_a_fixed_coefficient(signals):
    found = values(AdaptiveKL(beta=0.07, horizon=math.inf), signals)
    assert found == values(FixedKL(0.07), signals) == [0.07] * len(signals)


def test_at_its_target_the_coefficient_stays():
    assert values(AdaptiveKL(beta=0.07, target=0.3), [KLSignals(0.3, 5000)] * 9) == [0.07] * 9


def test_the_loop_settles_at_the_target():
    # A policy whose KL falls as β rises, KL = .6 / β, has KL = target at β = .1.
    controller = AdaptiveKL(beta=0.01, target=6.0, horizon=1000.0)
    state = controller.initial_state()
    for _ in range(300):
        _, state = controller.update(state, KLSignals(0.6 / controller.value(state), sequences=500))
    assert controller.value(state) == pytest.approx(0.1, rel=1e-3)


@quick
@given(
    controller=st.one_of(adaptive_kls, st.just(FixedKL()), st.just(AdaptiveKL(horizon=math.inf))),
    signals=st.lists(kl_signals, min_size=2, max_size=6),
)
def test_state_of_the_kl_coefficient_survives_json_and_resumes_exactly(controller, signals):
    state, found = controller.initial_state(), []
    for signal in signals:
        before = json.dumps(state, allow_nan=False)
        value, after = controller.update(json.loads(before), signal)
        assert json.dumps(state) == before
        state = json.loads(json.dumps(after, allow_nan=False))
        assert controller.value(state) == value
        found.append(value)
    assert found == values(controller, signals)


def test_a_coefficient_of_zero_is_for_the_fixed_twin_alone():
    assert first(FixedKL(0.0), KLSignals(1.0, 1)) == 0
    with pytest.raises(ValueError, match="beta=0.0: give a finite number > 0"):
        AdaptiveKL(beta=0.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AdaptiveKL(target=0.0), "target=0.0: give a finite number > 0"),
        (lambda: AdaptiveKL(target=-6.0), "target=-6.0"),
        (lambda: AdaptiveKL(target=math.nan), "target=nan"),
        (lambda: AdaptiveKL(horizon=0.0), "horizon=0.0: give a number of sequences > 0"),
        (lambda: AdaptiveKL(horizon=math.nan), "horizon=nan"),
        (lambda: FixedKL(-0.1), "beta=-0.1: give a finite number >= 0"),
        (lambda: first(AdaptiveKL(), KLSignals(math.nan, 1)), "signals.kl=nan is not finite"),
        (lambda: first(AdaptiveKL(), KLSignals(math.inf, 1)), "signals.kl=inf is not finite"),
        (lambda: first(AdaptiveKL(), KLSignals(1.0, 0)), "signals.sequences=0: give the number of sequences"),
    ],
)
def test_kl_settings_and_signals_out_of_range_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("value", [torch.tensor(0.5), "0.5", None])
def test_signals_that_are_no_numbers_are_refused_with_the_remedy(value):
    clip, temperature = AdaptiveClip(), AdaptiveTemperature()
    with pytest.raises(TypeError, match=r"signals.entropy is a .*\.item\(\)"):
        clip.update(clip.initial_state(), ClipSignals(sigma=0.5, skewness=0.0, vote_entropy=1.0, entropy=value))
    with pytest.raises(TypeError, match=r"signals.sigma is a .*\.item\(\)"):
        temperature.update(temperature.initial_state(), ProbeState(sigma=value, skewness=0.0, vote_entropy=1.0))
