"""Prompts or rollouts: runs with equally many rollouts an update, of many prompts or of few, under three baselines.

REINFORCE++-baseline subtracts the group's mean, "batch's mean" the batch's. Both divide by the batch's deviation and
have the KL as k2 in the loss, so that between them the mean alone differs. GRPO subtracts the group's mean, divides by
the group's deviation, and has the KL as k3 in the loss.
"""

import pandas as pd

from agpo_core.comparison import about, estimate, macro, paired, t_interval
from agpo_core.experiments import predictions, report, traces
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part
from agpo_core.experiments.verdicts import fill
from agpo_core.recipes import RECIPES
from agpo_core.theory import group_means

GRPO, GROUP, BATCH = "GRPO", "REINFORCE++-baseline", "batch's mean"
SWEEP = {  # baseline -> its arms, from few rollouts a prompt to many
    GRPO: ("grpo_2", "grpo_4", "grpo"),
    GROUP: ("baseline_2", "baseline_4", "reinforce_pp_baseline"),
    BATCH: ("batch_mean_1", "batch_mean_2", "batch_mean_4", "batch_mean_8"),
}
FAMILY = {arm: baseline for baseline, arms in SWEEP.items() for arm in arms}


def size(arm: str, params: dict) -> int:
    """The rollouts a prompt of an arm: its own, or those of the grid."""
    settings = RECIPES[ARMS[arm].method].settings | ARMS[arm].settings
    return settings.get("group_size", params["group_size"])


def by_size(results: Results) -> pd.DataFrame:
    """The arms that were run: arm, baseline, G, P (prompts an update), and the test score in %: score, half, n."""
    params, scores = results.meta["params"], macro(results.runs)
    rollouts = params["prompts_per_update"] * params["group_size"]
    rows = []
    for arm, baseline in FAMILY.items():
        if arm in scores.index:
            G = size(arm, params)
            rows.append((arm, baseline, G, rollouts // G, *t_interval(scores[arm])[:3]))
    return pd.DataFrame(rows, columns=["arm", "baseline", "G", "P", "score", "half", "n"])


def score_table(results: Results) -> pd.DataFrame:
    """Test score in %, mean ± t-interval: a row a baseline, a column a group size with its number of prompts."""
    scores, rows = macro(results.runs), {}
    for row in by_size(results).sort_values("G").itertuples():
        heading = f"G = {row.G}, {row.P} prompts"
        rows.setdefault(row.baseline, {})[heading] = t_interval(scores[row.arm]).text()
    table = pd.DataFrame.from_dict(rows, orient="index").reindex([name for name in SWEEP if name in rows])
    corner = about(t_interval(scores[arm]) for arm in FAMILY if arm in scores.index)
    return table.fillna("").rename_axis(columns=corner or None)


def batches(results: Results) -> pd.DataFrame:
    """What the batches of each arm held, means over all updates, and what the runs spent.

    silent groups   share of groups with equal rewards
    with a signal   rollouts an update that a group's mean leaves something of; under the batch's mean all count
    KL at the end   of the last update's policy to the reference, nats a token
    """
    updates, rows = results.traces[results.traces["update"] > 0], {}
    runs = results.runs.drop_duplicates(["arm", "seed", "start"]).groupby("arm")[["updates", "seconds"]].mean()
    for row in by_size(results).itertuples():
        of_arm = updates[updates["arm"] == row.arm]
        equal, N = of_arm["equal_groups"].mean(), row.P * row.G
        last = of_arm.loc[of_arm.groupby(traces.RUN)["update"].idxmax(), "reference_kl"].mean()
        rows[ARMS[row.arm].title] = {
            "G": str(row.G),
            "prompts": str(row.P),
            "silent groups": f"{equal:.0%}",
            "with a signal": f"{N if row.baseline == BATCH else N * (1 - equal):.0f}",
            "KL at the end": f"{last:.3f}",
            "updates": f"{runs.loc[row.arm, 'updates']:.1f}",
            "seconds": f"{runs.loc[row.arm, 'seconds']:.0f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def contrasts(results: Results) -> dict[str, Part]:
    """The notebook's questions beside the claims, each as one paired difference a run; nothing is claimed of them.

    A question is left out if an arm of it was not run, or if its two arms do not differ in their group size (as they
    may not after an edit of the parameters).
    """
    table = by_size(results)
    arm = {(row.baseline, row.G): row.arm for row in table.itertuples()}
    found = {}

    def gap(one: tuple, other: tuple) -> pd.Series | None:
        return paired(results.runs, arm[one], arm[other]) if {one, other} <= set(arm) else None

    def ask(key: str, says: str, values: pd.Series | None) -> None:
        if values is not None:
            found[key] = Part(says, values, 0, 1)

    sizes = sorted(set(table["G"]))
    for G in sizes:
        ask(f"mean {G}", f"G = {G}: batch's mean less the group's", gap((BATCH, G), (GROUP, G)))
    for G in sizes:
        ask(f"divisor {G}", f"G = {G}: GRPO less REINFORCE++-baseline", gap((GRPO, G), (GROUP, G)))
    few, many = min((G for G in sizes if G > 1), default=0), max(sizes, default=0)
    for baseline in SWEEP if few < many else ():
        ask(f"size {baseline}", f"{baseline}: G = {few} less G = {many}", gap((baseline, few), (baseline, many)))
    ends = [found[f"mean {G}"].values for G in (few, many) if f"mean {G}" in found]
    if few < many and len(ends) == 2:
        ask("both", f"batch's less group's mean: G = {few} less G = {many}", (ends[0] - ends[1]).dropna())
    return found


def contrast_table(asked: dict[str, Part]) -> pd.DataFrame:
    """The paired differences of `contrasts` in points, ± t-interval, with Holm's p over all of them."""
    if not asked:
        return pd.DataFrame()
    judged = traces.judge_parts(list(asked.values()))
    rows = {
        part.says: {
            "points": t_interval(part.values).text("+"),
            "p": report.p_cell(estimate(part.values).p),
            "p (Holm)": report.p_cell(row.p_holm),
            "pairs": str(row.n),
        }
        for part, row in zip(asked.values(), judged.itertuples(), strict=True)
    }
    corner = about(t_interval(part.values) for part in asked.values())
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


def variances(results: Results) -> pd.DataFrame:
    """The variance of the rewards of a batch within prompts (W) and between them (B), a row a run of an arm of pairs.

    W = share of pairs whose rewards differ / 2,  W + B = variance of all rewards; means over the updates

    A pair of 0/1 rewards differs with chance 2 p (1 - p), so that no p has to be known. One task pays parts of a
    reward; there a pair that differs a little counts as one that differs in full.
    """
    pairs = [row.arm for row in by_size(results).itertuples() if row.G == 2]
    updates = results.traces[(results.traces["update"] > 0) & results.traces["arm"].isin(pairs)]
    mean = (
        updates.assign(within=(1 - updates["equal_groups"]) / 2, total=updates["reward_std"] ** 2)
        .groupby(["arm", *traces.RUN])[["within", "total"]]
        .mean()
    )
    return mean.assign(between=mean["total"] - mean["within"])


# -- the predictions, answered ----------------------------------------------------------------


def answers(results: Results) -> str:
    """The five predictions of beyond_prompts_or_rollouts, answered."""
    asked = contrasts(results)
    needs = [
        ([], silent_pairs),
        (["reinforce_pp_baseline", "baseline_2"], lambda: seen_silent(results)),
        (["baseline_2"], lambda: break_evens(results)),
        ([*SWEEP[GROUP], *SWEEP[BATCH][1:]], lambda: which_mean(asked)),
        (["baseline_2", "reinforce_pp_baseline"], lambda: which_size(asked)),
    ]
    return predictions.answered(*((results, arms, answer) for arms, answer in needs))


def silent_pairs() -> str:
    """The share of silent groups at p = 1/2 and at p = .9, for two and for eight rollouts."""
    parts = [
        f"at p = {p:g}, {group_means.silent_share(2, p):.0%} of pairs and {group_means.silent_share(8, p):.1%} of the "
        "groups of eight are silent"
        for p in (0.5, 0.9)
    ]
    return f"{'; '.join(parts)}.".capitalize()


def seen_silent(results: Results) -> str:
    """How many rollouts of an update kept a signal under the group's mean, for the smallest and the largest G."""
    table = batches(results)
    rows = [table.loc[ARMS[arm].title] for arm in SWEEP[GROUP] if ARMS[arm].title in table.index]
    ends = [f"G = {row['G']}: {row['with a signal']} ({row['silent groups']} of groups silent)" for row in rows]
    N = int(rows[0]["G"]) * int(rows[0]["prompts"])
    return f"Rollouts an update with a signal, of {N}, under REINFORCE++-baseline: {'; '.join(ends)}."


def break_evens(results: Results) -> str:
    """The group size from which the group's mean is worth more: for uniform p, and with the runs' own variances."""
    found = variances(results)
    within, between = found["within"].mean(), found["between"].mean()
    uniform = f"For p uniform on [0, 1]: above G = {group_means.break_even(1 / 6, 1 / 12):.0f}. "
    if between <= 0:
        return uniform + "In these runs the prompts do not differ: no group is large enough."
    G = group_means.break_even(within, between)
    batch = group_means.worth("batch", 2, within, between)
    return (
        f"{uniform}In these runs W is {within:.3f} and B {between:.3f}, so that the group's mean is worth more above "
        f"G = {G:.1f}; the batch's mean keeps {batch:.0%} of a rollout's worth, the group's {1 / 2:.0%} at G = 2 and "
        f"{7 / 8:.0%} at G = 8."
    )


def which_mean(asked: dict[str, Part]) -> str:
    """The paired differences between the two means at each size, and between the sizes."""
    texts = [_words(key, part) for key, part in asked.items() if key.startswith("mean ")]
    text = f"Batch's mean less the group's, points: {'; '.join(texts)}."
    if "both" in asked:
        found = t_interval(asked["both"].values)
        text += f" The first of these less the last: {found.text('+')} ({_zero(found)})."
    return text


def which_size(asked: dict[str, Part]) -> str:
    """The paired differences between few and many rollouts a prompt, baseline by baseline."""
    texts = [f"{part.says} {_interval(part)}" for key, part in asked.items() if key.startswith("size ")]
    return f"{'; '.join(texts)} points." if texts else "Not answered: all arms have one group size."


def _words(key: str, part: Part) -> str:
    return f"G = {key.removeprefix('mean ')} {_interval(part)}"


def _interval(part: Part) -> str:
    found = t_interval(part.values)
    return f"{found.text('+')} ({_zero(found)})"


def _zero(found) -> str:
    if pd.isna(found.half):
        return "no interval"
    return "zero lies outside" if found.low > 0 or found.high < 0 else "zero lies within"


def reading(results: Results) -> str:
    """What the record shows of the question whether the group's mean matters with few rollouts and not with many."""
    asked = contrasts(results)
    if not asked:
        return "No two arms were run that could be compared."
    judged = dict(zip(asked, traces.judge_parts(list(asked.values())).itertuples(), strict=True))
    lines = []
    for key in [key for key in asked if key.startswith("mean ")]:
        row, G = judged[key], key.removeprefix("mean ")
        lines.append(f"G = {G}: {_verdict(row)}")
    if "both" in judged:
        lines.append(f"That the mean matters more with few rollouts than with many: {_verdict(judged['both'])}")
    return "\n".join(fill(line, bullet="- ") for line in lines)


def _verdict(row) -> str:
    if not row.n or pd.isna(row.half):
        return "without an interval nothing is decided."
    ends = f"[{row.mean - row.half:+.1f}, {row.mean + row.half:+.1f}]"
    side = "above zero" if row.mean > 0 else "below zero"
    if row.p_holm < 0.05:
        return f"{side}, {row.mean:+.1f} points {ends}, also after Holm's correction."
    if abs(row.mean) > row.half:
        return f"{side} by its own interval, {row.mean:+.1f} points {ends}, but not after Holm's correction."
    return f"not resolved, {row.mean:+.1f} points {ends}; a difference within these ends may exist."
