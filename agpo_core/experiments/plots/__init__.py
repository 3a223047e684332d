"""One function per figure. Each returns the figure and the data that it draws, for asserts and for the words in `alt`.

Example:
    >>> figure, drawn = plots.main_results(results)  # doctest: +SKIP
    >>> plots.show(figure, plots.alt.main_results(drawn))  # doctest: +SKIP
"""

from agpo_core.experiments.plots import alt
from agpo_core.experiments.plots.bias import bias_curves, bias_decay, bias_signs, binary_weights
from agpo_core.experiments.plots.claims import claims_overview
from agpo_core.experiments.plots.convergence import convergence_clipping, convergence_constants, convergence_rates
from agpo_core.experiments.plots.families import family_contrasts, family_gaps
from agpo_core.experiments.plots.kl import (
    kl_descents,
    kl_equal_beta,
    kl_estimator_curves,
    kl_expectations,
    kl_loss_gradients,
    kl_running_means,
)
from agpo_core.experiments.plots.knights import people_scores
from agpo_core.experiments.plots.learn import (
    binary_advantages,
    binary_dispersions,
    clip_radius,
    entropy_terms,
    free_range,
    prompt_weights,
    temperature_run,
)
from agpo_core.experiments.plots.learned_reward import reward_against_kl, reward_dynamics, reward_gaps
from agpo_core.experiments.plots.loop import clip_map, probe_train_loop
from agpo_core.experiments.plots.methods import method_curves, method_scores
from agpo_core.experiments.plots.normaliser import dev_over_kl, factor_effects, gain_by_level
from agpo_core.experiments.plots.picture import show
from agpo_core.experiments.plots.reading import three_runs
from agpo_core.experiments.plots.robust import robust_dispersion, vanishing_dispersion
from agpo_core.experiments.plots.runs import controller_traces, learning_curves, main_results
from agpo_core.experiments.plots.signals import masked_courses, signal_leverage
from agpo_core.experiments.plots.sizes import group_mean_worth, group_size_scores
from agpo_core.experiments.plots.small_data import (
    learning_times,
    matched_levels,
    overfitting_curves,
    overfitting_ends,
)
from agpo_core.experiments.plots.throughput import horizon_pair, speed_ratios, target_sweep
from agpo_core.experiments.plots.tools import silent_groups, tool_curves, tool_scores
from agpo_core.experiments.plots.traces import (
    controllers_again,
    radius_factors,
    radius_traces,
    temperature_lags,
    temperature_starts,
    temperature_traces,
)
from agpo_core.experiments.plots.transfer import domain_gaps, domain_scores
from agpo_core.experiments.plots.votes import majority_votes, vote_chances, vote_gains

__all__ = [
    "alt",
    "bias_curves",
    "bias_decay",
    "bias_signs",
    "binary_advantages",
    "binary_dispersions",
    "binary_weights",
    "claims_overview",
    "clip_map",
    "clip_radius",
    "controller_traces",
    "controllers_again",
    "convergence_clipping",
    "convergence_constants",
    "convergence_rates",
    "dev_over_kl",
    "domain_gaps",
    "domain_scores",
    "entropy_terms",
    "factor_effects",
    "family_contrasts",
    "family_gaps",
    "free_range",
    "gain_by_level",
    "group_mean_worth",
    "group_size_scores",
    "horizon_pair",
    "kl_descents",
    "kl_equal_beta",
    "kl_estimator_curves",
    "kl_expectations",
    "kl_loss_gradients",
    "kl_running_means",
    "learning_curves",
    "learning_times",
    "main_results",
    "majority_votes",
    "masked_courses",
    "matched_levels",
    "method_curves",
    "method_scores",
    "overfitting_curves",
    "overfitting_ends",
    "people_scores",
    "probe_train_loop",
    "prompt_weights",
    "radius_factors",
    "radius_traces",
    "reward_against_kl",
    "reward_dynamics",
    "reward_gaps",
    "robust_dispersion",
    "show",
    "signal_leverage",
    "silent_groups",
    "speed_ratios",
    "target_sweep",
    "temperature_lags",
    "temperature_run",
    "temperature_starts",
    "temperature_traces",
    "three_runs",
    "tool_curves",
    "tool_scores",
    "vanishing_dispersion",
    "vote_chances",
    "vote_gains",
]
