"""Warnings about runs that do not do what their settings suggest, one line each, given once per run.

A rule reads the settings and the updates' metrics, and gives a sentence with a remedy, or None. There is no rule for a
beta without a reference or for k1 as a loss, because `config` refuses them.
"""

from collections.abc import Iterable

from agpo_core.config import TrainConfig

ENOUGH = 10  # updates needed before a share of them is judged
PINNED = 0.5  # share of updates with the radius at one bound
SILENT = 5  # updates in a row without any reward signal
FAR = 0.1  # distance from 1 of a sampling temperature that the ratio ignores
COLLAPSED = 0.05  # share of groups whose MAD or IQR is zero with unequal rewards


def clip_is_inert(config: TrainConfig, rows: list[dict]) -> str | None:
    """The first gradient step of a rollout batch has ratio 1 everywhere: a single step never meets the clip."""
    if config.minibatches * config.epochs == 1:
        return "clip radius is inert: with one gradient step per batch the ratio is 1; raise minibatches or epochs."
    return None


def ratio_at_another_temperature(config: TrainConfig, rows: list[dict]) -> str | None:
    """With log-probabilities at temperature 1, the ratio does not compare with the policy that sampled."""
    tau = rows[-1].get("tau", 1.0) if rows else config.tau_base  # DPO has no ratio
    if config.ratio_temperature == "model" and abs(tau - 1) > FAR:
        return (
            f"tokens were sampled at temperature {tau:.2f}, but the ratio is computed at 1: set ratio_temperature to "
            "rollout, or keep the temperature near 1."
        )
    return None


def kl_noise_is_normalised(config: TrainConfig, rows: list[dict]) -> str | None:
    """Where task rewards are equal, only the k1 terms differ, and normalisation scales them up whatever their size."""
    if not rows or config.beta == 0 or config.kl_placement != "reward":
        return None
    some, all_equal = rows[-1]["equal_groups"] > 0, rows[-1]["equal_groups"] == 1
    groups = {"group": some, "mixed": some, "reinforce_pp_baseline": all_equal}
    if groups.get(config.advantage, config.advantage == "reinforce_pp" and rows[-1]["reward_std"] == 0):
        return (
            "k1 inside the reward: where task rewards are equal, the KL's noise is scaled up to advantages of unit "
            "size (set kl_placement to loss with k2 or k3, or equal_groups to drop)."
        )
    return None


def no_signal(config: TrainConfig, rows: list[dict]) -> str | None:
    """Equal rewards give no advantage: the policy then learns nothing but to stay near the reference."""
    last = [row for row in rows[-SILENT:] if "reward_std" in row]
    grouped = config.group_size > 1
    silent = [row["equal_groups"] == 1 if grouped else row["reward_std"] == 0 for row in last]
    if len(last) == SILENT and all(silent):
        return (
            f"no signal: in {SILENT} updates in a row all rewards {'of every group ' * grouped}were equal. Take tasks "
            "that the start sometimes solves, a larger group_size, or a graded reward."
        )
    return None


def radius_is_pinned(config: TrainConfig, rows: list[dict]) -> str | None:
    """Eq. 4 multiplies by H in nats: for H below .18 to .34, depending on the probe, the radius lies at its floor."""
    if config.clip != "adaptive" or len(rows) < ENOUGH:
        return None
    bounds = {"epsilon_min": "lower epsilon_min", "epsilon_max": "raise epsilon_max"}
    for name, remedy in bounds.items():
        share = sum(row["epsilon"] == getattr(config, name) for row in rows) / len(rows)
        if share > PINNED and config.epsilon_min < config.epsilon_max:
            return (
                f"the clip radius lay at {name} in {share:.0%} of {len(rows)} updates, so it was in effect fixed: "
                f"{remedy}, or set clip_entropy to ratio_ema."
            )
    return None


def dispersion_collapses(config: TrainConfig, rows: list[dict]) -> str | None:
    """MAD and IQR are zero for most groups of binary rewards; what replaces them then decides the result."""
    measured = [row["dispersion_fallback"] for row in rows if "dispersion_fallback" in row]
    if config.dispersion == "std" or len(measured) < ENOUGH:
        return None
    share = sum(measured) / len(measured)
    if share > COLLAPSED:
        return (
            f"{config.dispersion} was zero although the rewards differed in {share:.0%} of the probe's groups, and "
            f"was replaced by their {config.dispersion_fallback}: with such rewards dispersion_fallback decides more "
            "than dispersion."
        )
    return None


def start_solves_nothing(point: dict) -> str | None:
    """With the tokenizer of another model every text has wrong tokens, which a check of the files cannot show."""
    if point["macro"] == 0:
        return (
            "the start solved none of its dev problems: see in samples.jsonl whether it writes as the model should. If "
            "not, tokenizer or chat template are not the model's own; if so, take tasks that it sometimes solves."
        )
    return None


RULES = (
    clip_is_inert,
    ratio_at_another_temperature,
    kl_noise_is_normalised,
    no_signal,
    radius_is_pinned,
    dispersion_collapses,
)


class RunWarnings:
    """Applies the rules to a run.

    Args:
        config: the run's settings.
        rows: metrics of the updates that are already done.
        said: names of the rules that have already warned in this run's folder.
    """

    def __init__(self, config: TrainConfig, rows: Iterable[dict] = (), said: Iterable[str] = ()):
        self.config, self.rows, self.said = config, list(rows), set(said)

    def see(self, row: dict | None = None) -> list[tuple[str, str]]:
        """Add an update; returns (rule, sentence) for each rule that warns for the first time."""
        if row is not None:
            self.rows.append(row)
        return [found for rule in RULES for found in self.once(rule.__name__, rule(self.config, self.rows))]

    def see_start(self, point: dict) -> list[tuple[str, str]]:
        """Check the start's evaluation on dev, a point of eval.json; returns as `see` does."""
        return self.once(start_solves_nothing.__name__, start_solves_nothing(point))

    def once(self, rule: str, sentence: str | None) -> list[tuple[str, str]]:
        """[(rule, sentence)] if there is a sentence and the rule warns for the first time; else an empty list."""
        if sentence is None or rule in self.said:
            return []
        self.said.add(rule)
        return [(rule, sentence)]
