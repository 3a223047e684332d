"""Critic-free reinforcement learning for language models: AGPO's estimators, controllers and losses.

The names below need torch alone. Tasks, the training loop and experiments live in `agpo_core.tasks`,
`agpo_core.training` and `agpo_core.experiments`.
"""

from agpo_core.advantages import group_advantages
from agpo_core.controllers import (
    AdaptiveClip,
    AdaptiveTemperature,
    ClipSignals,
    FixedClip,
    FixedTemperature,
)
from agpo_core.horizon import Horizon, philox, uniforms
from agpo_core.kl import categorical_kl, k1, k2, k3, step_drift
from agpo_core.losses import aggregate, clipped_surrogate, importance_ratio, kl_penalty
from agpo_core.metrics import clip_binds, clip_saturation, gradient_norm_variance, pass_at_k
from agpo_core.probe import (
    ProbeState,
    dispersion,
    equal_rewards,
    prompt_statistics,
    skewness,
    uncertainty,
    vote_entropy,
)

__all__ = [
    "AdaptiveClip",
    "AdaptiveTemperature",
    "ClipSignals",
    "FixedClip",
    "FixedTemperature",
    "Horizon",
    "ProbeState",
    "aggregate",
    "categorical_kl",
    "clip_binds",
    "clip_saturation",
    "clipped_surrogate",
    "dispersion",
    "equal_rewards",
    "gradient_norm_variance",
    "group_advantages",
    "importance_ratio",
    "k1",
    "k2",
    "k3",
    "kl_penalty",
    "pass_at_k",
    "philox",
    "prompt_statistics",
    "skewness",
    "step_drift",
    "uncertainty",
    "uniforms",
    "vote_entropy",
]
