"""A method is data: the settings that tell it apart, on top of the defaults of `TrainConfig`.

Every on-policy method runs in the same loop (`training.train`); reading two recipes side by side shows all of their
difference. `python -m agpo_core.recipes` prints them.
"""

from dataclasses import dataclass, field

from agpo_core.config import FIELDS, ConfigError, TrainConfig


@dataclass(frozen=True)
class Recipe:
    """A named method: a title, where it comes from, and the settings that make it."""

    title: str
    source: str
    settings: dict = field(default_factory=dict)


RECIPES = {
    "grpo": Recipe("GRPO (fixed ε)", "AGPO Eqs. 1-3, after Shao et al. 2024"),
    "grpo_ats": Recipe("GRPO + ATS", "AGPO §4.2.2, Eqs. 8-12", {"temperature": "adaptive"}),
    "agpo_no_ats": Recipe("AGPO (−ATS)", "AGPO §4.2.2, Eqs. 4-7", {"clip": "adaptive"}),
    "agpo": Recipe("AGPO", "AGPO Eqs. 1-12", {"clip": "adaptive", "temperature": "adaptive"}),
}


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
    if method not in RECIPES:
        raise ConfigError(f"unknown method {method!r}: choose one of {', '.join(RECIPES)}.")
    return TrainConfig.from_dict({**RECIPES[method].settings, **params, "method": method})


def load(path) -> TrainConfig:
    """Read a run's `config.yaml`; the method's recipe fills in what the file does not say.

    Raises:
        ConfigError: see `resolve`; the file names no method.
    """
    import yaml

    with open(path, encoding="utf-8") as file:
        params = yaml.safe_load(file) or {}
    if "method" not in params:
        raise ConfigError(f"{path} names no method: add one of {', '.join(RECIPES)}.")
    return resolve(**params)


def difference(method: str, other: str) -> dict[str, tuple]:
    """The settings in which two methods differ, as {setting: (value, other value)}."""
    a, b = resolve(method), resolve(other)
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in FIELDS if name != "method"}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def main() -> None:
    for name, recipe in RECIPES.items():
        settings = ", ".join(f"{k}={v}" for k, v in recipe.settings.items()) or "(the defaults)"
        print(f"{name:14}{recipe.title:18}{settings:44}{recipe.source}")


if __name__ == "__main__":
    main()
