"""Controllers of AGPO's clip radius (Eq. 4) and temperature (Eqs. 9-12) and of PPO's KL coefficient, and constant ones.

A controller object never changes. What it remembers is its state, a dict of plain JSON that the caller keeps:

    value, state = controller.update(state, signals)

An update needs its KL coefficient before its KL can be measured. For this controller `value(state)` therefore gives
this update's coefficient, and `update` gives the next one's:

    beta = kl.value(state); ...; _, state = kl.update(state, signals)

Departures from the papers, and readings of them:

- A measured step KL below zero is taken as zero. Eq. 6 can be negative, and below -(1 + α σ̂ + ζ |κ̃₃|) / γ the
  denominator of Eq. 4 changes sign.
- The order of Eq. 11 is: read Ū_t, subtract it from U_t, then average U_t into the baseline. So Ū_t contains U_{t-1},
  but not U_t.
- Ziegler et al. 2019, §2.2, print a constant gain, K = 0.1. Their code uses K = sequences / horizon, so that β hardly
  depends on how the sequences are split into updates. `AdaptiveKL` does the same, with their horizon and target as
  defaults. Their code has no bounds; here K is at most 1, and β stays within a factor of 10⁶ of its start.

Two printed forms have side effects. Eq. 4 multiplies by H in nats: once H falls below .18 to .34, depending on the
probe (eight binary rewards, no drift), ε stays at ε_min. And Ū_0 = 0 raises the temperature of early updates although
no batch is unusual (about 60 updates for a constant U of 1.5). Both forms are the defaults; the arguments `entropy` and
`start` offer alternatives.
"""

import math
from dataclasses import dataclass

from agpo_core.checks import check_choice
from agpo_core.probe import ProbeState, uncertainty

ENTROPY_RATE = 0.01  # weight of the newest H in EMA(H), as in the authors' code
ENTROPY_RATIO_RANGE = (0.5, 1.5)  # bounds of H / EMA(H), as in the authors' code
STEP_KL_RATE = 0.1  # weight of the newest step KL in its EMA, as in the authors' code
DENOMINATOR_MIN = 1.0e-6  # keeps Eq. 4 positive under an unclamped step KL: ε then rises to ε_max
CENTRING_EPS = 1.0e-8  # keeps (U - Ū) / Ū finite at Ū = 0, as in the authors' code
KL_ERROR_MAX = 0.2  # bound on the relative error of the KL (Ziegler et al. 2019, §2.2)
KL_GAIN_MAX = 1.0  # K beyond 1 / KL_ERROR_MAX = 5 could change the sign of β; at most 1 keeps a step within 20 %
BETA_SPAN = 1.0e6  # β stays within this factor of its start: it could otherwise overflow, or reach 0 for good


@dataclass(frozen=True)
class ClipSignals(ProbeState):
    """The signals of the clip radius: the probe's state and what AGPO Eq. 4 adds to it."""

    entropy: float  # H(π_old), nats per token, T = 1, on the training rollouts
    step_kl: float = 0.0  # D̂_step of the previous update, nats per token; 0 at the first


@dataclass(frozen=True)
class KLSignals:
    """The signals that `AdaptiveKL` reads from an update (Ziegler et al. 2019, §2.2)."""

    kl: float  # KL(π‖π_ref), nats per sequence: Σ_t of the per-token estimate, mean over sequences; may be < 0
    sequences: int  # sequences the update trained on, all ranks, >= 1


@dataclass(frozen=True)
class FixedClip:
    """GRPO's clip radius: always ε (AGPO Eq. 3)."""

    epsilon: float = 0.2  # ε, > 0

    def __post_init__(self):
        _check_positive(epsilon=self.epsilon)

    def initial_state(self):
        """Give the state before the first update."""
        return {}

    def raw(self, state, signals):
        """Give ε, which has no bounds to be clipped to."""
        return self.epsilon

    def update(self, state, signals):
        """Give this update's ε, and the state unchanged."""
        return self.epsilon, state


@dataclass(frozen=True)
class AdaptiveClip:
    """AGPO's clip radius.

    ε = clip(ε_base H (1 + δ E_probe) / (1 + α σ̂ + ζ |κ̃₃| + γ D̂_step), ε_min, ε_max)   (AGPO Eq. 4)

    Never below ε_min or above ε_max (Lemma 1). Does not fall when H or E_probe rises; does not rise
    when σ̂, |κ̃₃| or D̂_step rises. Equals `FixedClip` when the bounds meet.

    entropy: what is used for H.
        "raw"         H in nats, as printed
        "ratio_ema"   clip(H / EMA(H), .5, 1.5), as in the authors' code; 1 at the first update
        "normalised"  H / log V, in [0, 1]; needs vocabulary_size
        "off"         1
    step_kl: what is used for D̂_step.
        "clamp"       max(D̂, 0)
        "ema"         the moving average of max(D̂, 0), from 0
        "unclamped"   D̂ as measured, with the denominator kept positive

    Example:
        >>> clip = AdaptiveClip()
        >>> signals = ClipSignals(sigma=0.5, skewness=0.0, vote_entropy=1.0, entropy=1.0)
        >>> clip.update(clip.initial_state(), signals)[0]  # .2 * 1 * 1.2 / 1.5
        0.16
    """

    epsilon_base: float = 0.2  # ε_base, > 0
    epsilon_min: float = 0.05  # ε_min, > 0
    epsilon_max: float = 0.4  # ε_max, >= ε_min
    alpha: float = 1.0  # α of σ̂, >= 0
    gamma: float = 0.5  # γ of D̂_step, >= 0
    delta: float = 0.2  # δ of E_probe, >= 0
    zeta: float = 0.05  # ζ of |κ̃₃|, >= 0
    signals_mask: tuple = (1, 1, 1, 1)  # σ̂, |κ̃₃|, E_probe, D̂_step (§4.5); a fifth masks H
    entropy: str = "raw"  # raw, ratio_ema, normalised, off
    step_kl: str = "clamp"  # clamp, ema, unclamped
    vocabulary_size: int | None = None  # V, tokens; for entropy="normalised" only

    def __post_init__(self):
        _check_positive(
            epsilon_base=self.epsilon_base,
            epsilon_min=self.epsilon_min,
            epsilon_max=self.epsilon_max,
        )
        _check_ordered("epsilon", self.epsilon_min, self.epsilon_max)
        _check_not_negative(alpha=self.alpha, gamma=self.gamma, delta=self.delta, zeta=self.zeta)
        _check_signals_mask(self.signals_mask)
        check_choice("entropy", self.entropy, ("raw", "ratio_ema", "normalised", "off"))
        check_choice("step_kl", self.step_kl, ("clamp", "ema", "unclamped"))
        if self.entropy == "normalised" and (self.vocabulary_size or 0) < 2:
            raise ValueError("entropy='normalised' divides by log V: give vocabulary_size, 2 or more.")

    def initial_state(self):
        """Give the state before the first update."""
        return {"entropy_ema": None, "step_kl_ema": 0.0}

    def raw(self, state, signals):
        """Compute ε before it is clipped to its bounds."""
        _check_finite(signals)
        use_sigma, use_skewness, use_vote_entropy, use_step_kl = self.signals_mask[:4]
        use_entropy = all(self.signals_mask[4:])
        rise = 1 + use_vote_entropy * self.delta * signals.vote_entropy
        if use_entropy:
            rise *= self._entropy_factor(state, signals.entropy)
        fall = (
            1
            + use_sigma * self.alpha * signals.sigma
            + use_skewness * self.zeta * abs(signals.skewness)
            + use_step_kl * self.gamma * self._step_kl_term(state, signals.step_kl)
        )
        return self.epsilon_base * rise / max(fall, DENOMINATOR_MIN)

    def update(self, state, signals):
        """Give this update's ε within its bounds, and the state for the next."""
        epsilon = min(max(self.raw(state, signals), self.epsilon_min), self.epsilon_max)
        reference = signals.entropy if state["entropy_ema"] is None else state["entropy_ema"]
        return epsilon, {
            "entropy_ema": _fold(reference, signals.entropy, ENTROPY_RATE),
            "step_kl_ema": _fold(state["step_kl_ema"], max(signals.step_kl, 0.0), STEP_KL_RATE),
        }

    def _entropy_factor(self, state, entropy):
        if self.entropy == "raw":
            return entropy
        if self.entropy == "normalised":
            return entropy / math.log(self.vocabulary_size)
        reference = state["entropy_ema"]
        if self.entropy == "off" or not reference:  # no reference yet, or a policy without entropy
            return 1.0
        lowest, highest = ENTROPY_RATIO_RANGE
        return min(max(entropy / reference, lowest), highest)

    def _step_kl_term(self, state, step_kl):
        if self.step_kl == "unclamped":
            return step_kl
        if self.step_kl == "ema":
            return _fold(state["step_kl_ema"], max(step_kl, 0.0), STEP_KL_RATE)
        return max(step_kl, 0.0)


def same_update(begun, state):
    """Give the state that a clip controller uses for the next prompt of the same update.

    EMA(H) = state's,  EMA(D̂_step) = begun's                                      (ours, for AGPO Eq. 4)

    Where each prompt has its own radius, as in the authors' code, EMA(H) is updated with every prompt. The step KL is
    one number for the whole update. Each prompt reads its average as it was when the update began, so that the step KL
    enters the average once per update.

    Args:
        begun: the controller's state before the update's first prompt.
        state: its state after the previous prompt; for the first prompt, `begun` itself.

    Returns:
        A new state; a copy of `state` where the controller keeps no average of the step KL.

    Example:
        >>> same_update({"step_kl_ema": 0.0}, {"entropy_ema": 1.5, "step_kl_ema": 0.1})
        {'entropy_ema': 1.5, 'step_kl_ema': 0.0}
    """
    if "step_kl_ema" not in begun:
        return dict(state)
    return {**state, "step_kl_ema": begun["step_kl_ema"]}


@dataclass(frozen=True)
class FixedTemperature:
    """Plain sampling: always τ, the τ_base of AGPO Eq. 12."""

    tau: float = 1.0  # τ, > 0

    def __post_init__(self):
        _check_positive(tau=self.tau)

    def initial_state(self):
        """Give the state before the first update."""
        return {}

    def raw(self, state, signals):
        """Give τ, which has no bounds to be clipped to."""
        return self.tau

    def update(self, state, signals):
        """Give this update's τ, and the state unchanged."""
        return self.tau, state


@dataclass(frozen=True)
class AdaptiveTemperature:
    """AGPO's sampling temperature (ATS): higher on batches that are less certain than the running baseline.

    U_t = w_r σ̂ + w_e E_probe + w_k |κ̃₃|                                          (AGPO Eq. 9)
    Ũ_t = U_t - Ū_t                                                               (AGPO Eq. 10)
    Ū_t = ρ_U Ū_{t-1} + (1 - ρ_U) U_{t-1}                                         (AGPO Eq. 11)
    τ_t = clip(τ_base (1 + λ Ũ_t), τ_min, τ_max)                                  (AGPO Eq. 12)

    Never below τ_min or above τ_max (Lemma 1). Does not fall when U_t rises. Equals τ_base for λ = 0.

    start: the value of Ū before the first update.
        "zero"      Ū_0 = 0, as printed: Ũ_0 = U_0, so the first updates have a higher temperature
        "first"     Ū_0 = U_0: Ũ_0 = 0
        "debiased"  Ū_t / (1 - ρ_U^t), the weighted mean of all U so far; Ũ_0 = 0
    centring: "absolute" (Eq. 10), or "relative", Ũ_t = (U_t - Ū_t) / Ū_t, as in the authors' code.

    Example:
        >>> temperature = AdaptiveTemperature()
        >>> probe = ProbeState(sigma=0.5, skewness=0.0, vote_entropy=1.0)
        >>> temperature.update(temperature.initial_state(), probe)[0]  # 1 + .15 * 1.5
        1.225
    """

    tau_base: float = 1.0  # τ_base, > 0
    tau_min: float = 0.5  # τ_min, > 0
    tau_max: float = 1.5  # τ_max, >= τ_min
    sensitivity: float = 0.15  # λ, >= 0
    momentum: float = 0.95  # ρ_U, in [0, 1)
    weights: tuple = (1.0, 1.0, 0.1)  # w_r of σ̂, w_e of E_probe, w_k of |κ̃₃|, each >= 0
    signals_mask: tuple = (1, 1, 1, 1)  # σ̂, |κ̃₃|, E_probe (§4.5); later bits do not enter Eq. 9
    start: str = "zero"  # zero, first, debiased
    centring: str = "absolute"  # absolute, relative

    def __post_init__(self):
        _check_positive(tau_base=self.tau_base, tau_min=self.tau_min, tau_max=self.tau_max)
        _check_ordered("tau", self.tau_min, self.tau_max)
        _check_not_negative(sensitivity=self.sensitivity)
        _check_signals_mask(self.signals_mask)
        if len(self.weights) != 3:
            raise ValueError(f"weights={self.weights}: give three numbers, (w_r, w_e, w_k).")
        _check_not_negative(**dict(zip(("w_r", "w_e", "w_k"), self.weights, strict=True)))
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: give ρ_U in [0, 1).")
        check_choice("start", self.start, ("zero", "first", "debiased"))
        check_choice("centring", self.centring, ("absolute", "relative"))

    def initial_state(self):
        """Give the state before the first update."""
        return {"baseline": 0.0, "updates": 0}

    def uncertainty(self, signals):
        """Compute U_t (Eq. 9)."""
        _check_finite(signals)
        return uncertainty(signals.sigma, signals.skewness, signals.vote_entropy, self.weights, self.signals_mask)

    def baseline(self, state, signals):
        """Read Ū_t (Eq. 11), the average over the updates before this one."""
        if self.start != "zero" and state["updates"] == 0:
            return self.uncertainty(signals)
        if self.start == "debiased":
            return state["baseline"] / (1 - self.momentum ** state["updates"])
        return state["baseline"]

    def raw(self, state, signals):
        """Compute τ before it is clipped to its bounds."""
        baseline = self.baseline(state, signals)
        centred = self.uncertainty(signals) - baseline
        if self.centring == "relative":
            centred /= baseline + CENTRING_EPS
        return self.tau_base * (1 + self.sensitivity * centred)

    def update(self, state, signals):
        """Give this update's τ within its bounds, and the state for the next."""
        tau = min(max(self.raw(state, signals), self.tau_min), self.tau_max)
        held = self.baseline(state, signals) if self.start == "first" else state["baseline"]
        return tau, {
            "baseline": _fold(held, self.uncertainty(signals), 1 - self.momentum),
            "updates": state["updates"] + 1,
        }


@dataclass(frozen=True)
class FixedKL:
    """A constant weight of the KL to the reference: always β (AGPO Eq. 3)."""

    beta: float = 0.03  # β, >= 0

    def __post_init__(self):
        _check_not_negative(beta=self.beta)

    def initial_state(self):
        """Give the state before the first update."""
        return {}

    def value(self, state):
        """Read this update's β."""
        return self.beta

    def update(self, state, signals):
        """Give the next update's β, and the state that holds it."""
        return self.beta, state


@dataclass(frozen=True)
class AdaptiveKL:
    """Adaptive-KL PPO's weight of the KL to the reference: it rises while the policy is too far from the reference.

    e_t = clip((KL_t - KL_target) / KL_target, -.2, .2)
    β_{t+1} = β_t (1 + K e_t),  K = sequences / horizon                           (Ziegler et al. 2019, §2.2)

    Always above zero and finite; does not fall when the KL rises; unchanged where KL_t = KL_target.
    Equals `FixedKL` for `horizon=math.inf`.

    Example:
        >>> kl = AdaptiveKL(beta=0.1, target=6.0, horizon=1000.0)
        >>> state = kl.initial_state()
        >>> kl.value(state)
        0.1
        >>> beta, state = kl.update(state, KLSignals(kl=6.6, sequences=500))  # .1 (1 + .5 * .1)
        >>> f"{beta:.3f}"
        '0.105'
    """

    beta: float = 0.03  # β of the first update, > 0
    target: float = 6.0  # KL_target, nats per sequence, > 0
    horizon: float = 10_000.0  # sequences, > 0; over them a steady e multiplies β by about exp(e)

    def __post_init__(self):
        _check_positive(beta=self.beta, target=self.target)
        if not self.horizon > 0:
            raise ValueError(f"horizon={self.horizon}: give a number of sequences > 0; math.inf keeps β constant.")

    def initial_state(self):
        """Give the state before the first update."""
        return {"beta": self.beta}

    def value(self, state):
        """Read this update's β."""
        return state["beta"]

    def update(self, state, signals):
        """Give the next update's β, and the state that holds it."""
        _check_finite(signals)
        if signals.sequences < 1:
            raise ValueError(f"signals.sequences={signals.sequences}: give the number of sequences, 1 or more.")
        error = min(max((signals.kl - self.target) / self.target, -KL_ERROR_MAX), KL_ERROR_MAX)
        gain = min(signals.sequences / self.horizon, KL_GAIN_MAX)
        beta = min(max(state["beta"] * (1 + gain * error), self.beta / BETA_SPAN), self.beta * BETA_SPAN)
        return beta, {"beta": beta}


def _fold(average, value, rate):
    return (1 - rate) * average + rate * value


def _check_positive(**settings):
    for name, value in settings.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value}: give a finite number > 0.")


def _check_not_negative(**settings):
    for name, value in settings.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value}: give a finite number >= 0.")


def _check_ordered(name, lowest, highest):
    if lowest > highest:
        raise ValueError(f"{name}_min={lowest} lies above {name}_max={highest}; swap them.")


def _check_signals_mask(signals_mask):
    if len(signals_mask) not in (4, 5) or any(bit not in (0, 1) for bit in signals_mask):
        raise ValueError(
            f"signals_mask={signals_mask}: give four bits, each 0 or 1, for dispersion, skewness, "
            "vote entropy and step KL, and a fifth for the policy entropy if that is to be masked."
        )


def _check_finite(signals):
    for name, value in vars(signals).items():
        if not isinstance(value, (int, float)):
            raise TypeError(
                f"signals.{name} is a {type(value).__name__}, which the JSON state cannot hold; give a number: .item()."
            )
        if not math.isfinite(value):
            raise ValueError(f"signals.{name}={value} is not finite; give a finite number.")
