"""When runs reach a target on dev, in several currencies, and what decides the order (AGPO Table 2).

A run is evaluated at a few points. Between two of them the score is taken to rise in a straight line; the true moment
lies somewhere between the two. So a time has three numbers: the interpolated one, and the two evaluations around it.

Evaluation points and learning rate are functions of the consumed share of a run's horizon. Two arms are fairly compared
in a currency in which both have the same horizon (`PARTNERS`): their rates and their evaluations then stand at the same
places.
"""

import math

import numpy as np
import pandas as pd

from agpo_core.comparison import t_interval
from agpo_core.experiments import throughput
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results
from agpo_core.experiments.throughput import KEY, RUN, log_ratio
from agpo_core.training.optimisation import learning_rate

CURRENCIES = {  # column of `points` -> words
    "update": "updates", "generated": "generated tokens", "passes": "forward passes", "quiet": "seconds, quiet machine",
}  # fmt: skip
PARTNERS = {"generated": "grpo", "update": "grpo_matched_updates", "passes": "grpo_matched_compute"}  # of AGPO
RULE = 0.5  # the target lies halfway from the starts' mean on dev to GRPO's: fixed before any time was computed
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of GRPO's gain on dev


def points(results: Results) -> pd.DataFrame:
    """Every evaluation on dev, with what the run had spent by then.

    Probe tokens are taken to be spent evenly over a run's updates. `quiet` is the number of updates times the seconds
    of one in `throughput.bench`; NaN for methods that it does not have. Passes include those of a critic of its own.

    Returns:
        A row an evaluation: arm, seed, start, update, progress, dev, generated, trained, passes, quiet, rate (the
        learning rate there, as a share of its peak).
    """
    runs, frames = results.runs.drop_duplicates(KEY).set_index(KEY), []
    alone = {method: row["seconds"] for method, row in throughput.bench().items()}
    for key, trace in results.traces.sort_values("update").groupby(KEY, sort=False):
        config, run = throughput.config_of(results.meta["params"], key[0]), runs.loc[key]
        each = throughput.passes_a_token(config)
        trained = trace["tokens"].fillna(0).astype(float).cumsum()
        probed = run["tokens_probe"] * trace["update"] / run["updates"]
        spent = trace[[*KEY, "update", "progress", "dev"]].assign(
            generated=trained + probed,
            trained=trained,
            passes=trained * each["trained"] + probed * each["probe"],
            quiet=trace["update"] * alone.get(ARMS[key[0]].method, math.nan),
            rate=[learning_rate(config, progress) / config.learning_rate for progress in trace["progress"]],
        )
        frames.append(spent.dropna(subset=["dev"]))
    columns = [*KEY, "update", "progress", "dev", "generated", "trained", "passes", "quiet", "rate"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def target(seen: pd.DataFrame, share: float) -> float:
    """The score on dev that lies `share` of the way from the starts' mean to GRPO's mean at the end of training."""
    grpo = seen[seen["arm"] == "grpo"].sort_values("update").groupby(RUN)["dev"]
    first, last = grpo.first().mean(), grpo.last().mean()
    return first + share * (last - first)


def times(seen: pd.DataFrame, level: float) -> pd.DataFrame:
    """When each run first reaches a level, in every currency.

    x = x_(k-1) + (x_k - x_(k-1)) (level - dev_(k-1)) / (dev_k - dev_(k-1)),  k the first evaluation with dev_k >= level

    Returns:
        Indexed by arm, seed, start: for each currency c the columns c, c_low, c_high (interpolated; the evaluations
        before and after); NaN for a run that never reaches the level.

    Example:
        >>> run = pd.DataFrame({"arm": "grpo", "seed": 1, "start": "a", "update": [0, 10, 20], "dev": [0.4, 0.6, 0.7]})
        >>> times(run.assign(generated=0.0, passes=0.0, quiet=0.0), 0.5)[["update", "update_low", "update_high"]].values
        array([[ 5.,  0., 10.]])
    """
    rows = {}
    for key, run in seen.sort_values("update").groupby(KEY, sort=False):
        reached = np.flatnonzero(run["dev"].to_numpy() >= level)
        row = {}
        for currency in CURRENCIES:
            x, dev = run[currency].to_numpy(dtype=float), run["dev"].to_numpy(dtype=float)
            k = reached[0] if len(reached) else None
            low, high = (math.nan, math.nan) if k is None else (x[max(k - 1, 0)], x[k])
            part = 1.0 if not k else (level - dev[k - 1]) / (dev[k] - dev[k - 1])
            row |= {currency: low + part * (high - low), f"{currency}_low": low, f"{currency}_high": high}
        rows[key] = row
    index = pd.MultiIndex.from_tuples(rows, names=KEY) if rows else pd.MultiIndex.from_arrays([[]] * 3, names=KEY)
    columns = [f"{currency}{end}" for currency in CURRENCIES for end in ("", "_low", "_high")]
    return pd.DataFrame(list(rows.values()), index=index, columns=columns)


def certain(found: pd.DataFrame, arm: str, baseline: str, currency: str) -> int:
    """In how many pairs of runs the order is certain: the evaluations around one moment precede those of the other."""
    ours, theirs = (found.xs(name, level="arm") for name in (arm, baseline))
    both = ours.index.intersection(theirs.index)
    ours, theirs = ours.loc[both], theirs.loc[both]
    first = ours[f"{currency}_high"] <= theirs[f"{currency}_low"]
    second = theirs[f"{currency}_high"] <= ours[f"{currency}_low"]
    return int((first | second).sum())


def sweep(seen: pd.DataFrame, pairs, shares=SHARES) -> pd.DataFrame:
    """How the ratio of two arms' times depends on currency and target.

    Args:
        pairs: (arm, baseline, currency) of each line.
    Returns:
        A row a pair and share: arm, baseline, currency, share, ratio, low, high (of the 95 % interval over pairs that
        both reached the target), n, pairs (of runs in all), certain.
    """
    rows = []
    there = set(seen["arm"])
    for share in shares if len(seen) else ():
        found = times(seen, target(seen, share))
        for arm, baseline, currency in pairs:
            if not {arm, baseline} <= there:
                continue
            logs = log_ratio(found[currency].clip(lower=1e-9), arm, baseline)
            middle = t_interval(logs)
            ends = np.exp([middle.mean, middle.low, middle.high])
            both = len(found.xs(arm, level="arm").index.intersection(found.xs(baseline, level="arm").index))
            rows.append(
                (arm, baseline, currency, share, *ends, len(logs), both, certain(found, arm, baseline, currency))
            )
    columns = ["arm", "baseline", "currency", "share", "ratio", "low", "high", "n", "pairs", "certain"]
    return pd.DataFrame(rows, columns=columns)


def table(seen: pd.DataFrame, level: float) -> pd.DataFrame:
    """When each arm reaches a level: means over the runs that do, and in brackets the evaluations around it."""
    rows, found = {}, times(seen, level)
    units = {"update": (1, 1), "generated": (1e3, 1), "passes": (1e3, 0), "quiet": (1, 1)}
    words = {"update": "updates", "generated": "generated, k tokens", "passes": "forward passes, k",
             "quiet": "s, quiet machine"}  # fmt: skip
    for arm in arms_of(seen):
        of_arm = found.xs(arm, level="arm")
        row = {"reached by": f"{of_arm['update'].notna().sum()} of {len(of_arm)} runs"}
        for currency, (unit, digits) in units.items():
            mean, low, high = (of_arm[f"{currency}{end}"].mean() / unit for end in ("", "_low", "_high"))
            row[words[currency]] = (
                "" if math.isnan(mean) else f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
            )
        rows[ARMS[arm].title] = row
    return pd.DataFrame.from_dict(rows, orient="index")


# -- one method at two horizons ----------------------------------------------------------------


def two_horizons(seen: pd.DataFrame, long: str = "grpo", short: str = "grpo_matched_updates") -> pd.DataFrame:
    """GRPO and GRPO over a shorter horizon, where the shorter run ends and where it is first evaluated.

    Returns:
        A row a run of both: seed, start; at the shorter run's last update: rate_long, rate_short, dev_long, dev_short;
        at its first evaluation: dev_early, which was measured, and line_early, which a straight line between the longer
        run's evaluations gives for the same update.
    """
    rows = []
    for key, run in seen[seen["arm"] == short].sort_values("update").groupby(RUN):
        other = seen[(seen["arm"] == long) & (seen["seed"] == key[0]) & (seen["start"] == key[1])].sort_values("update")
        if other.empty or len(run) < 2:
            continue
        end, early = run.iloc[-1], run.iloc[1]
        at = {name: np.interp(end["update"], other["update"], other[name]) for name in ("dev", "rate")}
        rows.append(
            {"seed": key[0], "start": key[1], "update": end["update"], "rate_short": end["rate"],
             "rate_long": at["rate"], "dev_long": at["dev"], "dev_short": end["dev"], "update_early": early["update"],
             "dev_early": early["dev"], "line_early": np.interp(early["update"], other["update"], other["dev"])}
        )  # fmt: skip
    columns = ["seed", "start", "update", "rate_short", "rate_long", "dev_long", "dev_short", "update_early",
               "dev_early", "line_early"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
