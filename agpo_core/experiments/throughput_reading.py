"""What the notebook of AGPO's Table 2 says about its runs: predictions answered, statements to be judged.

Every number is computed from the runs that are shown, and an answer whose runs are missing says so.
"""

import pandas as pd

from agpo_core.comparison import t_interval
from agpo_core.experiments import published, throughput, time_to_target
from agpo_core.experiments.predictions import answered
from agpo_core.experiments.records import Results
from agpo_core.experiments.throughput import Statement, log_ratio

# Pairs of the sweep: AGPO against the arm of equal horizon in each currency, then what misleads
FAIR = [("agpo", baseline, currency) for currency, baseline in time_to_target.PARTNERS.items()]
OTHER_HORIZON = [("agpo", "grpo", "update"), ("agpo", "grpo", "passes")]
SAME_METHOD = [
    ("grpo_matched_updates", "grpo", "generated"), ("grpo_matched_updates", "grpo", "update"),
    ("grpo_matched_compute", "grpo", "passes"),
]  # fmt: skip
LINES = [*FAIR, *OTHER_HORIZON, *SAME_METHOD]


def of_table2(results: Results, seen: pd.DataFrame) -> str:
    """The four predictions of agpo_table2_throughput, answered.

    Args:
        seen: `time_to_target.points`.
    """
    return answered(
        (results, ("grpo", "agpo"), lambda: speed_of_agpo(results)),
        (results, ("grpo", "agpo"), lambda: what_a_slower_agpo_would_need(results)),
        (results, ("grpo", "grpo_matched_updates"), lambda: one_method_twice(seen)),
        (results, ("grpo", "agpo"), lambda: order_by_currency(seen)),
    )


def speed_of_agpo(results: Results) -> str:
    """AGPO's two speeds as multiples of GRPO's, by each measure."""
    found = throughput.ratios(results)
    found = found[found["arm"] == "agpo"]
    words = {"counted": "by the count of passes", "alone": "on a quiet machine", "recorded": "as recorded"}
    parts = []
    for kind, verb in (("generated", "generates"), ("trained", "trains on")):
        of_kind = found[found["kind"] == kind].set_index("measure")["ratio"]
        texts = ", ".join(f"{of_kind[measure]:.2f} {words[measure]}" for measure in words if measure in of_kind)
        parts.append(f"it {verb} {texts}")
    return f"Tokens a second of AGPO as multiples of GRPO's: {'; '.join(parts)}."


def sampling_share(ratio: float) -> float:
    """The share of GRPO's time that goes into sampling, if AGPO generates `ratio` times as many tokens a second.

    ratio = (s + t) / (s + t / 2)  gives  s / (s + t) = 2 / ratio - 1;  s, t: time of a token's sampling and training.
    Half of AGPO's tokens are the probe's, which are sampled alone. Above 1: no such share exists.
    """
    return 2 / ratio - 1


def printed_ratio() -> float:
    """AGPO's throughput as a multiple of GRPO's, as the paper prints both."""
    (ours,) = published.find("AGPO Table 2 | AGPO (full) | throughput")
    (theirs,) = published.find("AGPO Table 2 | GRPO (fixed ε) | throughput")
    return ours.value / theirs.value


def what_a_slower_agpo_would_need(results: Results) -> str:
    """What AGPO's speed says of the share of sampling, here and in print."""
    here = throughput.counted(results.meta["params"], "agpo")["generated"]
    print_share = sampling_share(printed_ratio())
    return (
        "Not by this account: if sampling takes all of the time the two are equally fast, and whatever training takes "
        f"makes AGPO the faster. Here the counted ratio {here:.2f} says that {sampling_share(here):.0%} of GRPO's time "
        f"is sampling. The printed ratio {printed_ratio():.2f} would need a share of {print_share:.0%}"
        f"{', which does not exist' if print_share > 1 else ''}: the printed fall must come from something else than "
        "tokens, such as what the controllers cost, or longer answers at a higher temperature."
    )


def one_method_twice(seen: pd.DataFrame) -> str:
    """GRPO over two horizons: the rates, the scores at one update, and what a straight line makes of the first part."""
    found = time_to_target.two_horizons(seen).set_index(["seed", "start"])
    gap = t_interval(100 * (found["dev_short"] - found["dev_long"]))
    line = t_interval(100 * (found["dev_early"] - found["line_early"]))
    which = "shorter" if gap.mean > 0 else "longer"
    return (
        f"After {found['update'].mean():.0f} updates the shorter run has ended, at {found['rate_short'].mean():.0%} of "
        f"the peak rate, and the longer one is at {found['rate_long'].mean():.0%}. The {which} one is ahead: shorter − "
        f"longer is {gap.text('+')} points on dev. After {found['update_early'].mean():.0f} updates the shorter run "
        f"scores {100 * found['dev_early'].mean():.1f} %. The longer one is not evaluated there, and the straight line "
        f"between its evaluations says {100 * found['line_early'].mean():.1f} %, {line.text()} points less, although "
        "the two runs differ in little but the rate until then."
    )


def order_by_currency(seen: pd.DataFrame) -> str:
    """Whether AGPO comes first, by currency and target."""
    found = time_to_target.sweep(seen, [("agpo", "grpo", currency) for currency in ("generated", "update", "passes")])
    texts = []
    for currency, rows in found.groupby("currency", sort=False):
        sooner = rows.loc[rows["ratio"] < 1, "share"]
        later = rows.loc[rows["ratio"] > 1, "share"]
        parts = [
            f"sooner at {_listed(sooner)}" if len(sooner) else "",
            f"later at {_listed(later)}" if len(later) else "",
        ]
        texts.append(
            f"in {time_to_target.CURRENCIES[currency]} {' and '.join(part for part in parts if part) or 'never'}"
        )
    return (
        "AGPO reaches the target before or after GRPO, by the mean of those pairs of which both reach it; targets as "
        f"shares of GRPO's gain: {'; '.join(texts)}."
    )


def _listed(shares: pd.Series) -> str:
    return ", ".join(f"{share:.0%}" for share in shares)


def statements(results: Results, seen: pd.DataFrame) -> tuple[dict[int, list[Statement]], list[Statement]]:
    """The statements of claims 14 and 15, and the questions beside them. A ratio above 1 is what is stated."""
    speed = throughput.speeds(results)
    found = time_to_target.times(seen, time_to_target.target(seen, time_to_target.RULE))

    def sooner(says: str, arm: str, baseline: str, currency: str, claims: bool = True) -> Statement:
        if not {arm, baseline} <= set(seen["arm"]):
            return Statement(says, pd.Series(dtype=float), claims)
        logs = log_ratio(found[currency].clip(lower=1e-9), baseline, arm)
        sure = time_to_target.certain(found, arm, baseline, currency)
        note = f"the order is certain, whatever lies between two evaluations, in {sure} of {len(logs)} pairs"
        caveat = "as far as straight lines between evaluations can be trusted" if sure < len(logs) else ""
        return Statement(says, logs, claims, note, caveat)

    claimed = {
        14: [
            Statement("GRPO generates more tokens a second than AGPO.", log_ratio(speed["generated"], "grpo", "agpo")),
            Statement(
                "AGPO generates more tokens a second than PPO with a separate critic.",
                log_ratio(speed["generated"], "agpo", "ppo_critic"),
            ),
        ],
        15: [
            sooner("AGPO reaches the target in fewer generated tokens than GRPO.", "agpo", "grpo", "generated"),
            sooner(
                "AGPO reaches it in fewer forward passes than GRPO at AGPO's compute.",
                "agpo", "grpo_matched_compute", "passes",
            ),
            sooner(
                "AGPO reaches it in fewer generated tokens than PPO with a separate critic.",
                "agpo", "ppo_critic", "generated",
            ),
        ],
    }  # fmt: skip
    asked = [
        Statement(
            "Does AGPO train on more tokens a second than GRPO?", log_ratio(speed["trained"], "agpo", "grpo"), False
        ),
        Statement(
            "Is Dr. GRPO, which does GRPO's work, any faster? (What the machine's other work does to a ratio.)",
            log_ratio(speed["generated"], throughput.SAME_WORK, "grpo"), False,
        ),
        sooner(
            "Does AGPO reach the target in fewer updates than GRPO at AGPO's updates?",
            "agpo", "grpo_matched_updates", "update", False,
        ),
        sooner(
            "In fewer forward passes than GRPO, whose horizon in passes is longer?", "agpo", "grpo", "passes", False
        ),
        sooner(
            "Does GRPO at AGPO's updates, the same method over a shorter horizon, reach it in fewer updates than GRPO?",
            "grpo_matched_updates", "grpo", "update", False,
        ),
    ]  # fmt: skip
    return claimed, asked


def tokens_at_target() -> pd.DataFrame:
    """The paper's Table 2, and what its two columns make together: generated tokens at the target, in millions."""
    table = published.table("AGPO Table 2")
    speed, hours = table.columns
    table["tokens at the target, M"] = table[speed] * table[hours] * 3.6
    return table
