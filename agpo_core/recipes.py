"""Each method as data: the settings in which it differs from the defaults of `TrainConfig`.

Every on-policy method runs in the same loop (`training.train`); two recipes side by side show everything in which they
differ. `python -m agpo_core.recipes` prints all recipes; `python -m agpo_core.recipes agpo grpo` prints the settings in
which two differ.

Methods share the settings that their papers leave open (inner steps, nucleus, weight of the KL), so that two results
differ by the method alone.
"""

import argparse
import itertools
import reprlib
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from agpo_core.config import FIELDS, ConfigError, TrainConfig, read_yaml


@dataclass(frozen=True)
class Recipe:
    """A named method: a title, where it comes from, and the settings that make it."""

    title: str
    source: str
    settings: dict = field(default_factory=dict)


KIND = ("advantage", "clip", "temperature")  # the settings that give a method its name
WIDTH, SOURCE = 120, 34  # characters of a printed line, which a notebook's cell holds, and of the sources in it
CONTROLLERS = {"clip": "adaptive", "temperature": "adaptive"}
KL_IN_REWARD = {"kl_estimator": "k1", "kl_placement": "reward"}
PPO = {"advantage": "gae", "critic": "head", **KL_IN_REWARD}
REINFORCE_PP = {"advantage": "reinforce_pp", **KL_IN_REWARD}
BASELINE = {"advantage": "reinforce_pp_baseline", "population": "sequences"}

RECIPES = {
    # -- with a critic
    "ppo": Recipe("PPO, value head", "Schulman et al. 2017; AGPO §4.2.2", PPO),
    "ppo_critic": Recipe("PPO, separate critic", "Ouyang et al. 2022; R++ §2", {**PPO, "critic": "model"}),
    "adaptive_kl_ppo": Recipe(
        "Adaptive-KL PPO", "AGPO §4.2.2, after Ziegler et al. 2019", {**PPO, "kl_control": "adaptive"}
    ),
    # -- offline
    "dpo": Recipe("DPO", "Rafailov et al. 2023; AGPO §4.2.2", {"beta": 0.0}),  # its loss holds the reference itself
    # -- critic-free
    "grpo": Recipe("GRPO (fixed ε)", "AGPO Eqs. 1-3, after Shao et al. 2024"),
    "dr_grpo": Recipe("Dr. GRPO", "Liu et al. 2025", {"advantage": "dr_grpo", "aggregation": "constant"}),
    "rloo": Recipe(
        "RLOO", "Ahmadian et al. 2024", {"advantage": "leave_one_out", "ratio": "sequence", **KL_IN_REWARD}
    ),
    "remax": Recipe("ReMax", "Li et al. 2023", {"advantage": "greedy_baseline", "group_size": 1, **KL_IN_REWARD}),
    "reinforce_pp": Recipe("REINFORCE++ (k = 1)", "R++ Eqs. 4, 5", {**REINFORCE_PP, "group_size": 1}),
    "reinforce_pp_k": Recipe("REINFORCE++ (k > 1)", "R++ Eqs. 4, 5", REINFORCE_PP),
    "reinforce_pp_baseline": Recipe("REINFORCE++-baseline", "R++ Eqs. 6-8", {**BASELINE, "kl_estimator": "k2"}),
    # -- AGPO and its ablations
    "grpo_ats": Recipe("GRPO + ATS", "AGPO §4.2.2, Eqs. 8-12", {"temperature": "adaptive"}),
    "agpo_no_ats": Recipe("AGPO (−ATS)", "AGPO §4.2.2, Eqs. 4-7", {"clip": "adaptive"}),
    "agpo": Recipe("AGPO", "AGPO Eqs. 1-12", CONTROLLERS),
    "agpo_no_dispersion": Recipe("AGPO − σ̂", "AGPO §4.5, Table 4", {**CONTROLLERS, "signals_mask": (0, 1, 1, 1)}),
    "agpo_no_skewness": Recipe("AGPO − |κ̃₃|", "AGPO §4.5, Table 4", {**CONTROLLERS, "signals_mask": (1, 0, 1, 1)}),
    "agpo_no_vote_entropy": Recipe("AGPO − E", "AGPO §4.5, Table 4", {**CONTROLLERS, "signals_mask": (1, 1, 0, 1)}),
    "agpo_no_step_kl": Recipe("AGPO − D_step", "AGPO §4.5, Table 4", {**CONTROLLERS, "signals_mask": (1, 1, 1, 0)}),
    "agpo_mad": Recipe("AGPO, MAD", "AGPO §4.5, Table 5", {**CONTROLLERS, "dispersion": "mad"}),
    "agpo_iqr": Recipe("AGPO, IQR", "AGPO §4.5, Table 5", {**CONTROLLERS, "dispersion": "iqr"}),
    "agpo_official_code": Recipe(
        "AGPO, authors' code", "wandugu/paper_agpo, commit 11e5596, where it departs from the paper",
        {
            **CONTROLLERS,
            "controller_scope": "prompt",  # ε, τ and H of each prompt; all averages but the step KL's fold by prompt
            "clip_entropy": "ratio_ema",
            "step_kl": "ema",
            "delta": 0.1,
            "zeta": 0.0,
            "centring": "relative",
            "baseline_start": "first",
            "momentum": 0.9,
            "weights": (1.0, 1.0, 0.0),
            "tau_min": 0.6,
            "tau_max": 1.3,
            "top_p": 0.9,
            "ratio_temperature": "model",
            "beta": 0.0,  # their reference is off under LoRA, and k1 as a loss elsewhere: it holds nothing
        },
    ),
    # -- ours
    "mixed_scaling": Recipe(
        "Mixed scaling", "ours: GRPO's σ and that of R++ Eq. 7, an open question of R++", {"advantage": "mixed"}
    ),
    "agpo_global": Recipe("AGPO, global", "ours: AGPO Eqs. 4-12 with R++ Eqs. 6, 7", {**CONTROLLERS, **BASELINE}),
    "agpo_part_probe": Recipe("AGPO, part probe", "ours: probes some prompts", {**CONTROLLERS, "probe_share": 0.25}),
    "agpo_free_probe": Recipe(
        "AGPO, free probe", "ours: the controllers see the former update's rollouts",
        {**CONTROLLERS, "probe_source": "previous_update"},
    ),
}  # fmt: skip


def resolve(method: str, **params) -> TrainConfig:
    """The full configuration of a method: defaults, then its recipe, then `params`.

    Args:
        method: a name in RECIPES.
        params: settings that override the recipe; names and types as in TrainConfig.
    Returns:
        TrainConfig.
    Raises:
        ConfigError: the method or a setting is unknown, mistyped or out of range.
    """
    return TrainConfig.from_dict({**_recipe(method).settings, **params, "method": method})


def load(path) -> TrainConfig:
    """Read a run's `config.yaml`; the method's recipe fills in what the file does not say.

    Raises:
        ConfigError: see `config.read_yaml` and `resolve`; the file names no method, or its settings are those of
            another method.
    """
    params = read_yaml(path)
    if "method" not in params:
        raise ConfigError(f"{path} names no method: add one of {', '.join(RECIPES)}.")
    config = resolve(**params)
    if (other := _truer_name(config)) is not None:
        settings = ", ".join(f"{name} {getattr(config, name)}" for name in KIND)
        raise ConfigError(
            f"{Path(path).name}: method {config.method} has other settings than {settings}, which are those of "
            f"{other}: set method to {other}, or leave these settings out."
        )
    return config


def _truer_name(config: TrainConfig) -> str | None:
    """The recipe that has a configuration's estimator and controllers, if the configuration's own method has others."""
    wanted = [getattr(config, name) for name in KIND]
    kinds = {method: [getattr(resolve(method), name) for name in KIND] for method in RECIPES if method != "dpo"}
    if config.method == "dpo" or kinds[config.method] == wanted:
        return None
    return next((method for method, kind in kinds.items() if kind == wanted), None)


def difference(method: str, other: str) -> dict[str, tuple]:
    """The settings in which two methods differ, as {setting: (value, other value)}."""
    a, b = resolve(method), resolve(other)
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in FIELDS if name != "method"}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def show(*methods: str) -> None:
    """Print a table of methods; for two methods, the settings in which they differ.

    Args:
        methods: names in RECIPES; none: all of them.
    """
    if len(methods) == 2:
        pairs = difference(*methods)
        rows = [("", *methods), *((name, *map(_text, pair)) for name, pair in pairs.items())]
    else:
        rows = [("method", "title", "source", "settings")]
        for name in methods or RECIPES:
            recipe = _recipe(name)
            settings = ", ".join(f"{key}={_text(value)}" for key, value in recipe.settings.items()) or "(the defaults)"
            rows.append((name, recipe.title, recipe.source, settings))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if len(methods) != 2:  # the last two columns are long
        widths[2] = min(widths[2], SOURCE)
        widths[3] = min(widths[3], WIDTH - sum(widths[:3]) - 2 * 3)
    for row in rows:
        cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            print("  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip())


def _text(value) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def _recipe(method: str) -> Recipe:
    if not isinstance(method, str) or method not in RECIPES:
        raise ConfigError(f"unknown method {reprlib.repr(method)}: choose one of {', '.join(RECIPES)}.")
    return RECIPES[method]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print methods; for two, their difference.")
    parser.add_argument("methods", nargs="*", help=f"names among {', '.join(RECIPES)}; default: all")
    try:
        show(*parser.parse_args(argv).methods)
    except ConfigError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
