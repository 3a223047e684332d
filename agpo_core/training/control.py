"""How the loop gets τ, ε and β from its controllers.

All controllers are called in the same way. A state goes in; the value for this update, the state for the next update
and the metrics to log come out. No state is kept here: the loop holds them all.

    tau_P, temperature_state, log = control.temperatures(temperature_state, signals)      (AGPO Eq. 12)
    epsilon_P, clip_state, log = control.radii(clip_state, signals, entropies, step_kl)   (AGPO Eq. 4)
    beta, kl_state, log = control.kl_weight(kl_state, measured)                           (Ziegler et al. 2019, §2.2)
"""

from torch import Tensor

from agpo_core import kl, probe
from agpo_core.config import TrainConfig
from agpo_core.controllers import (
    AdaptiveClip,
    AdaptiveKL,
    AdaptiveTemperature,
    ClipSignals,
    FixedClip,
    FixedKL,
    FixedTemperature,
    KLSignals,
    same_update,
)
from agpo_core.probe import ProbeState
from agpo_core.rollouts.rollout import Rollouts
from agpo_core.training.batch import Measured
from agpo_core.training.ranks import Ranks


class Control:
    """The controllers of a run, and the signals that they read.

    Args:
        config: how prompts are measured, and the controllers' settings.
        ranks: signals are computed from the prompts of all ranks.
        vocabulary_size: number of tokens of the policy's vocabulary, for a normalised entropy.
    """

    def __init__(self, config: TrainConfig, ranks: Ranks, vocabulary_size: int):
        self.config, self.ranks = config, ranks
        self.clip, self.temperature, self.kl = make_controllers(config, vocabulary_size)

    def signals(
        self, probed: Rollouts | None, former: ProbeState | None
    ) -> tuple[list[ProbeState] | None, dict]:  # fmt: skip
        """The signals that the controllers read in this update, and the metrics to log.

        Args:
            probed: the probe, graded; None: there is none.
            former: what `remember` gave in the previous update, used as a free probe. None: there is nothing yet.
        Returns:
            One state, or one for each of all ranks' prompts, in order; None if there is no signal: the controllers then
            keep their base values. And the metrics.
        """
        if probed is None:
            return ([former], vars(former)) if former else (None, {})
        statistics = self._statistics(probed)
        mean = ProbeState.mean(statistics)
        states = [mean]
        if self.config.controller_scope == "prompt":  # as in the authors' code: one state per prompt, in order
            states = [
                ProbeState.mean({name: values_P[i : i + 1] for name, values_P in statistics.items()})
                for i in range(self.config.prompts_per_update)
            ]
        rewards_P = probed.rewards_B.view(-1, probed.group).mean(dim=1)
        return states, {
            **vars(mean),
            "probe_reward": self.ranks.gather(rewards_P).mean().item(),
            "dispersion_fallback": statistics["fallback"].mean().item(),
        }

    def remember(self, rollouts: Rollouts) -> tuple[ProbeState | None, dict]:
        """The training rollouts' statistics, a free probe for the next update, and the metrics to log.

        They were drawn at tau_t, while a probe is drawn at tau_base. A comparison of `uncertainty_train` with
        `uncertainty` shows how much a higher temperature raises the uncertainty that would set the next temperature.
        """
        if not self.config.adapts:
            return None, {}
        state = ProbeState.mean(self._statistics(rollouts))
        if not isinstance(self.temperature, AdaptiveTemperature):
            return state, {}
        return state, {"uncertainty_train": self.temperature.uncertainty(state)}

    def _statistics(self, rollouts: Rollouts) -> dict[str, Tensor]:
        """The statistics of each prompt's group, over all ranks (Eqs. 1, 5, 8)."""
        c = self.config
        statistics = probe.prompt_statistics(
            rollouts.rewards_B.view(-1, rollouts.group),
            rollouts.grouped(rollouts.answers),
            mode=c.dispersion,
            fallback=c.dispersion_fallback,
            estimator=c.skewness,
            guard=c.skewness_guard,
            missing=c.missing_answers,
            sigma_min=c.sigma_min,
            kappa_max=c.kappa_max,
        )
        return {name: self.ranks.gather(values_P) for name, values_P in statistics.items()}

    def temperatures(self, state: dict, signals: list[ProbeState] | None) -> tuple[Tensor, dict, dict]:
        """tau of each prompt of this rank (Eq. 12), one value for all unless controller_scope is "prompt"."""
        values, heard = [], []
        if signals is None:  # no signal: the base value
            values = [(self.config.tau_base, self.config.tau_base)]
        for one in signals or []:
            raw = self.temperature.raw(state, one)
            if isinstance(self.temperature, AdaptiveTemperature):
                heard.append((self.temperature.uncertainty(one), self.temperature.baseline(state, one)))
            value, state = self.temperature.update(state, one)
            values.append((value, raw))
        log = _summary("tau", values)
        if heard:
            U, baseline = zip(*heard, strict=True)
            log |= {"uncertainty": sum(U) / len(U), "uncertainty_baseline": sum(baseline) / len(baseline)}
        return self.ranks.per_prompt([value for value, _ in values]), state, log

    def radii(
        self, state: dict, signals: list[ProbeState] | None, entropies: list[float], step_kl: float
    ) -> tuple[Tensor, dict, dict]:  # fmt: skip
        """epsilon of each prompt of this rank (Eq. 4), which is a constant in the loss.

        Args:
            state: of the clip controller.
            signals: what `signals` gave.
            entropies: H of the policy, one for each signal.
            step_kl: drift of the previous update.
        """
        begun, values = state, []
        if signals is None:  # no signal: the base value
            values = [(self.config.epsilon_base, self.config.epsilon_base)]
        for one, entropy in zip(signals or [], entropies, strict=signals is not None):
            state = same_update(begun, state)
            heard = ClipSignals(**vars(one), entropy=entropy, step_kl=step_kl)
            raw = self.clip.raw(state, heard)
            value, state = self.clip.update(state, heard)
            values.append((value, raw))
        return self.ranks.per_prompt([value for value, _ in values]), state, _summary("epsilon", values)

    def kl_weight(self, state: dict, measured: Measured) -> tuple[float, dict, dict]:
        """beta of this update; the KL measured before the update's steps sets the beta of the next update."""
        c, beta = self.config, self.kl.value(state)
        if c.kl_control != "adaptive":
            return beta, state, {}
        d_B_T = kl.k1(measured.old_logps_T1_B_T, measured.reference_logps_B_T)
        sequences = c.prompts_per_update * c.group_size
        total = self.ranks.total((d_B_T * measured.mask_B_T).sum().double())
        _, state = self.kl.update(state, KLSignals(total / sequences, sequences))
        return beta, state, {"beta": beta}


def make_controllers(config: TrainConfig, vocabulary_size: int):
    """The controllers of clip radius, temperature and KL weight that a configuration asks for."""
    c = config
    clip = FixedClip(c.epsilon_base)
    if c.clip == "adaptive":
        clip = AdaptiveClip(
            epsilon_base=c.epsilon_base,
            epsilon_min=c.epsilon_min,
            epsilon_max=c.epsilon_max,
            alpha=c.alpha,
            gamma=c.gamma,
            delta=c.delta,
            zeta=c.zeta,
            signals_mask=c.signals_mask,
            entropy=c.clip_entropy,
            step_kl=c.step_kl,
            vocabulary_size=vocabulary_size,
        )
    temperature = FixedTemperature(c.tau_base)
    if c.temperature == "adaptive":
        temperature = AdaptiveTemperature(
            tau_base=c.tau_base,
            tau_min=c.tau_min,
            tau_max=c.tau_max,
            sensitivity=c.sensitivity,
            momentum=c.momentum,
            weights=c.weights,
            signals_mask=c.signals_mask,
            start=c.baseline_start,
            centring=c.centring,
        )
    kl = FixedKL(c.beta)
    if c.kl_control == "adaptive":
        kl = AdaptiveKL(c.beta, c.kl_target, c.kl_horizon)
    return clip, temperature, kl


def _summary(name: str, values: list[tuple[float, float]]) -> dict:
    """A controller's mean value, its mean before clipping, and the share of values that a bound holds."""
    n = len(values)
    return {
        name: sum(value for value, _ in values) / n,
        f"{name}_raw": sum(raw for _, raw in values) / n,
        f"{name}_at_bound": sum(value != raw for value, raw in values) / n,
    }
