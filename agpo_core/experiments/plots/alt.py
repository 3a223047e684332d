"""The alternative text of each figure: what it shows, in one or two sentences with the numbers that are drawn.

Each function has the name of its figure, and takes the data that the figure returns. The texts are computed, so they
hold for other parameters and other runs as well.
"""

import pandas as pd

from agpo_core.experiments import families, stability
from agpo_core.experiments.grid import ARMS
from agpo_core.theory import convergence

EMPTY = "An empty figure: there was nothing to draw."

# -- runs


def main_results(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    low, high = data["score"].idxmin(), data["score"].idxmax()
    tested = data[data["pairs"] > 0].dropna(subset=["gap_half"])
    above, below = (int((sign * tested["gap"] > tested["gap_half"]).sum()) for sign in (1, -1))
    return (
        f"Left, the mean test scores of {len(data)} arms: from {data['score'].min():.1f} % ({ARMS[low].title}) to "
        f"{data['score'].max():.1f} % ({ARMS[high].title}). Right, the paired differences from GRPO "
        f"with {len(tested)} intervals: wholly above zero {above}, wholly below {below}."
    )


method_scores = main_results


def learning_curves(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    curves = data.sort_values("evaluation").groupby("arm")["dev"]
    first, last = curves.first(), curves.last()
    low, high = last.idxmin(), last.idxmax()
    return (
        f"Lines of the dev score of {len(last)} arms over the horizon. They begin near {first.mean():.0f} % and end "
        f"between {last[low]:.1f} % ({ARMS[low].title}) and {last[high]:.1f} % ({ARMS[high].title})."
    )


method_curves = learning_curves


def controller_traces(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    arm = "agpo" if "agpo" in set(data["arm"]) else data["arm"].iloc[0]
    names = {"epsilon": "the clip radius", "tau": "the temperature", "uncertainty": "the uncertainty",
             "entropy": "the entropy"}  # fmt: skip
    course = data[data["arm"] == arm].sort_values("update")
    return f"Four panels over the updates of {data['arm'].nunique()} arms. {_moves(ARMS[arm].title, course, names)}"


def radius_traces(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    names = {"entropy": "the entropy", "epsilon": "the clip radius", "step_kl": "the step KL",
             "clip_fraction": "the share of tokens on which the clip binds",
             "reference_kl": "the KL to the reference"}  # fmt: skip
    names = {name: words for name, words in names.items() if name in data}
    return f"A panel for each of {len(names)} quantities along training. {_of_each_arm(data, names)}"


def radius_factors(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    shares = ", ".join(f"{name} {share:.0f} %" for name, share in data["share"].items())
    return (
        "Left, the clip radius of every update against the entropy, beside a straight line through zero. Right, bars "
        f"with the share of each signal in the variance of ln ε: {shares}."
    )


def temperature_traces(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    names = {"tau": "the temperature", "uncertainty": "the uncertainty", "reward": "the reward"}
    heats = data.dropna(subset=["uncertainty"])
    return (
        "Four panels along training: temperature, uncertainty, reward and accuracy on dev. "
        f"{_of_each_arm(heats if len(heats) else data, names)}"
    )


def temperature_starts(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("update").groupby("arm", sort=False).last()
    parts = [
        f"{ARMS[arm].title} ends at τ = {row['tau']:.3f}, where a constant U gives {row['warm_up']:.3f} and the "
        f"debiased baseline {row['debiased']:.3f}"
        for arm, row in ends.iterrows()
    ]
    return f"Three lines of τ over the updates, a panel an arm: {'; '.join(parts)}."


def controllers_again(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{symbol} from {data[f'{name}_again'].min():.3f} to {data[f'{name}_again'].max():.3f}, recorded "
        f"{data[name].min():.3f} to {data[name].max():.3f}"
        for name, symbol in (("epsilon", "ε"), ("tau", "τ"))
    ]
    return f"Radius and temperature over the updates, recomputed and as recorded: {'; '.join(parts)}."


def temperature_lags(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    now = data[data["lag"] == 0]
    parts = [f"{ARMS[row.arm].title} {row.mean:+.2f}" for row in now.itertuples(index=False)]
    return (
        "Left, every update by temperature and reward. Right, the correlation of their changes by lag"
        f"{'; at lag zero ' + ', '.join(parts) if parts else ''}."
    )


def signal_leverage(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{ARMS[arm].title} multiplies ε by {row['factor']:.3f}, shifts τ by {row['shift']:+.3f} and the score by "
        f"{row['gap']:+.1f} points"
        for arm, row in data.iterrows()
    ]
    return f"Three panels with a row for each masked signal. {'; '.join(parts)}."


def masked_courses(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("update").groupby("arm", sort=False)[["epsilon", "tau"]].last()
    parts = [f"{ARMS[arm].title} ε {row['epsilon']:.3f}, τ {row['tau']:.3f}" for arm, row in ends.iterrows()]
    return f"Radius and temperature over the updates, with a line for each mask. They end at: {'; '.join(parts)}."


def vanishing_dispersion(data: pd.DataFrame) -> str:
    peaks = data.groupby("mode", sort=False)["collapsed"].max()
    parts = " and ".join(f"{share:.0%} of groups for the {mode.upper()}" for mode, share in peaks.items())
    return (
        "Left, the chance that a robust dispersion is zero although the rewards differ, over the chance of a right "
        f"answer: it reaches {parts}. Right, the size of the advantages by the number of right rollouts."
    )


def robust_dispersion(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    words = {"score": "points of the score", stability.VARIANCE: "times the variance of the gradient norm",
             stability.KL: "nats a token of KL to the reference"}  # fmt: skip
    parts = [f"{ARMS[row.arm].title} {row.mean:.3g} {words[row.measure]}" for row in data.itertuples()]
    return f"MAD and IQR against the standard deviation, in a panel for each measure. Means: {'; '.join(parts)}."


def domain_scores(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    words = []
    for domain, rows in data.groupby("domain", sort=False):
        arms = (f"{ARMS[row.arm].title} {row.one:.1f} % and {row.many:.1f} %" for row in rows.itertuples())
        words.append(f"{domain}: {', '.join(arms)}")
    k = data["k"].iloc[0]
    return f"pass@{k} over pass@1, a panel a domain. Means of pass@1 and pass@{k}, {'; '.join(words)}."


def domain_gaps(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [f"{ARMS[row.arm].title} {row.domain} pass@{row.k} {row.mean:+.1f}" for row in data.itertuples()]
    return f"Differences from GRPO in points, a panel a domain and number of samples: {'; '.join(parts)}."


def reward_gaps(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{measure} {', '.join(f'{ARMS[row.arm].title} {row.mean:+.2f}' for row in of.itertuples(index=False))}"
        for measure, of in data.groupby("measure", sort=False)
    ]
    return f"Paired differences from GRPO, a panel for each measure. Means: {'; '.join(parts)}."


def reward_against_kl(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = []
    for (record, arm), of in data.groupby(["record", "arm"], sort=False):
        names = [name for name in of if f"{name}_half" in of]
        last = of.sort_values("evaluation").iloc[-1]
        gains = ", ".join(f"{name} {last[name]:+.2f}" for name in names)
        parts.append(f"{record}, {ARMS[arm].title}: {gains} at {last['kl']:.2f} nats")
    return f"Gains above the start over the KL to it, a line for each arm. They end at: {'; '.join(parts)}."


def reward_dynamics(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = []
    for arm, of in data.groupby("arm", sort=False):
        ends = of.sort_values("update").groupby("quantity")["mean"].agg(["first", "last"])
        words = (f"{name} {row['first']:.2f} to {row['last']:.2f}" for name, row in ends.iterrows())
        parts.append(f"{ARMS[arm].title}: {', '.join(words)}")
    return f"Reward and KL along training, and their differences from GRPO below. {'; '.join(parts)}."


def family_gaps(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{families.title(row.start)} {ARMS[row.arm].title} {row.gap:+.1f}"
        for row in data[data["pairs"] > 0].itertuples()
    ]
    return (
        f"Left, test scores of {data['arm'].nunique()} arms in {data['start'].nunique()} families, from "
        f"{data['score'].min():.1f} to {data['score'].max():.1f} %. Right, paired differences from GRPO in points: "
        f"{', '.join(parts) or 'none'}."
    )


def family_contrasts(data: pd.DataFrame) -> str:
    if data.empty:
        return "An empty figure: there is one family, or no arm to compare with GRPO."
    parts = [
        f"{ARMS[row.arm].title} {families.title(row.one)} minus {families.title(row.other)} {row.mean:+.1f}"
        for row in data.itertuples()
    ]
    return f"Marks with intervals, one an arm and pair of families, in points: {', '.join(parts)}."


def speed_ratios(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{ARMS[row.arm].title} {row.ratio:.2f}"
        for row in data[(data["kind"] == "generated") & (data["measure"] == "recorded")].itertuples()
    ]
    return (
        "Speeds as multiples of GRPO's on logarithmic axes, generated tokens on the left and tokens trained on at the "
        f"right; by the recorded seconds, generated: {', '.join(parts) or 'none'}."
    )


def horizon_pair(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("evaluation").groupby("arm", sort=False).last()
    parts = [f"{ARMS[arm].title} {100 * row['dev']:.1f} % after {row['update']:.0f}" for arm, row in ends.iterrows()]
    return (
        "Left, the learning rate over the updates of GRPO at two horizons. Right, the scores on dev, which end at "
        f"{', '.join(parts)} updates."
    )


def target_sweep(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{ARMS[row.arm].title} to {ARMS[row.baseline].title} {row.ratio:.2f} ({row.currency})"
        for row in data[data["share"] == data["share"].min()].itertuples()
    ]
    return (
        "Three panels, a currency each, with ratios of times to a target over the target. At the lowest one: "
        f"{', '.join(parts)}."
    )


def claims_overview(data: pd.DataFrame) -> str:
    counts = data["verdict"].value_counts()
    parts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    return (
        "Above, bars with the number of claims of each paper by verdict. Below, the judged differences with their "
        f"intervals: {parts or 'none'}."
    )


def three_runs(data: pd.DataFrame) -> str:
    parts = []
    for kind, runs in data[data["metric"] == "reward"].groupby("kind", sort=False):
        first = runs[runs["seed"] == runs["seed"].iloc[0]].sort_values("update")["value"]
        parts.append(f"{kind}, from {first.iloc[0]:.2f} to {first.iloc[-1]:.2f}")
    return f"Twelve panels, a metric each, over the updates of three kinds of run. The reward goes: {'; '.join(parts)}."


def tool_curves(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("update").groupby("arm", sort=False).last()
    parts = [f"{ARMS[arm].title} {row['dev']:.0f} % and {row['calls']:.2f} calls" for arm, row in ends.iterrows()]
    return (
        "Three panels over the updates: accuracy on dev, its paired lead over GRPO, calls an answer. At the end: "
        f"{'; '.join(parts)}."
    )


def tool_scores(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    means = data.groupby(level="arm", sort=False)[["accuracy", "area"]].mean()
    parts = [f"{ARMS[arm].title} {row['accuracy']:.1f} % and {row['area']:.1f} %" for arm, row in means.iterrows()]
    return (
        "A mark for each run by test accuracy, left, and by area under its learning curve, right, a row an arm; the "
        f"runs of one start are joined. Means: {'; '.join(parts)}."
    )


def silent_groups(data: pd.DataFrame) -> str:
    last = data[data["silent"] == data["silent"].max()].set_index("arm")
    parts = [f"{ARMS[arm].title} {row['live']:.2f} and {row['void']:.2f}" for arm, row in last.iterrows()]
    return (
        "Left and middle, advantages over the share of silent groups, of a right answer in a live group and of an "
        f"answer in a silent group; at {last['silent'].iloc[0]:.0%} they are: {'; '.join(parts)}. Right, the share of "
        "silent groups in the runs, over the updates."
    )


def people_scores(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = []
    for arm, of_arm in data.groupby("arm", sort=False):
        first, last = of_arm.iloc[0], of_arm.iloc[-1]
        parts.append(
            f"{ARMS[arm].title} {first['score']:.1f} % at {first['people']:.0f} people and {last['score']:.1f} % at "
            f"{last['people']:.0f}"
        )
    return f"Left, test scores by number of people: {'; '.join(parts)}. Right, the paired leads over GRPO."


# -- one update


def probe_train_loop(data: pd.DataFrame, values: dict | None = None) -> str:
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in (values or {}).items())
    return (
        f"Diagram of one update of AGPO, with {len(data)} arrows. A probe of the policy sets temperature and clip "
        "radius; training rollouts at that temperature give the loss, and the loss the new policy."
        f"{f' The numbers of this update: {numbers}.' if numbers else ''}"
    )


def clip_map(data: pd.DataFrame) -> str:
    return (
        f"{len(data)} tokens by their ratio, from {data['ratio'].min():.2f} to {data['ratio'].max():.2f}, and the "
        f"advantage of their rollout. Crosses mark the {data['binds'].sum()} tokens whose gradient the clip stops."
    )


# -- lessons


def binary_advantages(data: pd.DataFrame) -> str:
    first, last = data.iloc[0], data.iloc[-1]
    return (
        f"Two falling lines over the number of right rollouts. The advantage of a right one falls from "
        f"{first['a_right']:.3f} to {last['a_right']:.3f}, that of a wrong one from {first['a_wrong']:.3f} to "
        f"{last['a_wrong']:.3f}."
    )


def prompt_weights(data: pd.DataFrame) -> str:
    spans = data.groupby("estimator", sort=False)["ratio"].agg(["min", "max"])
    parts = ", ".join(f"{name} {row['min']:.2f} to {row['max']:.2f}" for name, row in spans.iterrows())
    return (
        "Left, the expected gradient of a prompt over its accuracy, for three estimators. Right, its ratio to the true "
        f"gradient: {parts}."
    )


def binary_dispersions(data: pd.DataFrame) -> str:
    positive = {mode: data.loc[data[mode] > 0, "right"].tolist() for mode in ("std", "mad", "iqr")}
    parts = ", ".join(f"the {mode} at {', '.join(map(str, at)) or 'none'}" for mode, at in positive.items())
    return f"Three dispersions over the number of right rollouts. They are positive at these numbers: {parts}."


def clip_radius(data: pd.DataFrame) -> str:
    names = {"entropy": "H", "vote_entropy": "vote entropy", "sigma": "dispersion", "skewness": "skewness",
             "step_kl": "step KL"}  # fmt: skip
    ends = data.groupby("signal", sort=False)["epsilon"].agg(["first", "last"])
    parts = ", ".join(f"{names[name]} {row['first']:.3f} to {row['last']:.3f}" for name, row in ends.iterrows())
    return f"Five panels, in each of which one signal grows and the others stay. The clip radius moves with {parts}."


def free_range(data: pd.DataFrame) -> str:
    return (
        "Over the number of right probe rollouts, the entropies between which the clip radius moves. It lies at its "
        f"floor below {data['floor'].min():.2f} to {data['floor'].max():.2f} nats, and at its ceiling above "
        f"{data['ceiling'].min():.2f} to {data['ceiling'].max():.2f} nats."
    )


def entropy_terms(data: pd.DataFrame) -> str:
    ends = data.groupby("term", sort=False)["epsilon"].last()
    parts = ", ".join(f"{epsilon:.3f} under {term}" for term, epsilon in ends.items())
    H = data["entropy"]
    return (
        f"Left, an entropy that goes from {H.iloc[0]:.2f} to {H.iloc[-1]:.2f} nats. Right, the clip radius under four "
        f"terms that may stand for it; it ends at {parts}."
    )


def temperature_run(data: pd.DataFrame) -> str:
    ends = data.groupby(["course", "start"], sort=False)["tau"].agg(["first", "last"])
    parts = "; ".join(
        f"{course}, start {start}: {row['first']:.3f} to {row['last']:.3f}" for (course, start), row in ends.iterrows()
    )
    return f"Above, courses of U with their running means. Below, the temperature: {parts}."


# -- KL estimators


def kl_estimator_curves(data: pd.DataFrame) -> str:
    lowest = data.groupby("estimator")["value"].min()
    parts = ", ".join(f"{value + 0.0:.1f} for {name}" for name, value in lowest.round(6).items())
    return (
        f"k1, k2 and k3 over the log-ratio of a token, from {data['d'].min():.1f} to {data['d'].max():.1f} nats. Left, "
        f"their values, whose smallest is {parts}. Right, their derivatives: constant, linear and 1 − exp(−d)."
    )


def kl_running_means(data: pd.DataFrame) -> str:
    last = data.groupby("estimator").last()
    parts = ", ".join(f"{name} {row['mean']:.3f} ± {row['error']:.3f}" for name, row in last.iterrows())
    return f"Running means of three estimators over up to {data['n'].max():,} drawn tokens. They end at {parts} nats."


def kl_expectations(data: pd.DataFrame) -> str:
    largest = data.groupby("estimator")["std"].max()
    parts = ", ".join(f"{std:.3g} nats for {name}" for name, std in largest.items())
    return (
        "Above, the means of k1, k2 and k3 as the policy leaves the reference in two directions; k1 and k3 lie on the "
        f"reverse KL. Below, their standard deviations, at most {parts}."
    )


def kl_loss_gradients(data: pd.DataFrame) -> str:
    most = data[data["estimator"] != "k1"].groupby("estimator")["tokens"].max()
    parts = " and ".join(f"{tokens:,.0f} for {name}" for name, tokens in most.items())
    return (
        "Above, the norm of each estimator's expected gradient, which is zero for k1. Below, the tokens that resolve "
        f"the gradient, at most {parts}."
    )


def kl_descents(data: pd.DataFrame) -> str:
    ends = data[data["step"] == data["step"].max()].set_index(["start", "kind", "loss"])["median"]
    parts = "; ".join(
        f"from {start}, {kind}: " + ", ".join(f"{loss} {kl:.3g}" for loss, kl in of.droplevel([0, 1]).items())
        for (start, kind), of in ends.groupby(level=[0, 1], sort=False)
    )
    return f"The KL to the reference over the steps of a descent, a panel for each start and kind. It ends at: {parts}."


def kl_equal_beta(data: pd.DataFrame) -> str:
    names = {"sequence": "the KL of the answer", "k2": "k2 per token", "k3": "k3 per token"}
    spans = data.groupby("penalty", sort=False)["kl"].agg(["first", "last"])
    parts = ", ".join(f"{names[name]} {row['first']:.3f} to {row['last']:.3f}" for name, row in spans.iterrows())
    gap = data["kl_gap"].abs().max()
    return (
        f"Left, the KL of the answer over β: {parts} nats. Right, the paired differences from the KL of the answer as "
        f"penalty, up to {gap:.3f} nats."
    )


# -- bias


def bias_curves(data: pd.DataFrame) -> str:
    far = data[data["epsilon"] == data["epsilon"].max()].set_index("N")["exact"]
    parts = ", ".join(f"{value:.2f} at N = {N}" for N, value in far.items())
    return (
        f"The expected advantage over the reward, a line for each group size. At {data['epsilon'].max():g} standard "
        f"deviations it is {parts}. The sampled points lie within {data['z'].abs().max():.1f} standard errors."
    )


def bias_signs(data: pd.DataFrame) -> str:
    parts = []
    for ddof, divisor in ((0, "N"), (1, "N - 1")):
        crossing = data[data["ddof"] == ddof].dropna(subset=["crossing"]).set_index("N")["crossing"]
        if len(crossing):
            parts.append(
                f"with divisor {divisor} from {crossing.iloc[0]:.2f} at N = {crossing.index[0]} to "
                f"{crossing.iloc[-1]:.2f} at N = {crossing.index[-1]}"
            )
    return (
        "Left, the bias over the reward for both divisors. Right, the largest reward that is over-estimated, in "
        f"standard deviations: {' and '.join(parts)}."
    )


def binary_weights(data: pd.DataFrame) -> str:
    spans = data.groupby("N")["weight"].agg(["min", "max"])
    parts = ", ".join(f"N = {N}: {row['min']:.2f} to {row['max']:.2f}" for N, row in spans.iterrows())
    return (
        f"Left, the weight of a prompt over its chance of a right answer, a line for each group size ({parts}). Right, "
        "the share of groups whose rewards are all equal."
    )


def bias_decay(data: pd.DataFrame) -> str:
    first, last, name = data.iloc[0], data.iloc[-1], data.columns[1]
    return (
        f"The bias falls over N on logarithmic axes: its {name} from {first[name]:.3f} at N = {first['N']:.0f} to "
        f"{last[name]:.5f} at N = {last['N']:.0f}, along a straight line."
    )


# -- votes


def vote_chances(data: pd.DataFrame) -> str:
    ends = data.sort_values("k").groupby(["right", "rivals"], sort=False)["chance"].agg(["first", "last"])
    rises = ends.index[ends["last"] > ends["first"]]
    parts = [f"p = {right:g} against {rivals} wrong" for right, rivals in rises]
    return (
        f"Lines of the chance that a vote is right over its size, for {len(ends)} problems. It rises for "
        f"{'; '.join(parts)}; it falls for the other {len(ends) - len(rises)}."
    )


def majority_votes(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("k").groupby("arm", sort=False)
    scores = [
        f"{ARMS[arm].title} from {rows['score'].iloc[0]:.1f} to {rows['score'].iloc[-1]:.1f} %" for arm, rows in ends
    ]
    gaps = data[data["pairs"] > 0].dropna(subset=["gap_half"])
    clear = int((gaps["gap"].abs() > gaps["gap_half"]).sum())
    return (
        f"Left, right answers by votes of {data['k'].min()} to {data['k'].max()} samples: {'; '.join(scores)}. Right, "
        f"paired differences from GRPO with {len(gaps)} intervals, of which {clear} leave out zero."
    )


def vote_gains(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = [
        f"{ARMS[arm].title} {rows['gain'].mean():+.1f} points on average, below zero on {(rows['gain'] < 0).sum()} of "
        f"{len(rows)}"
        for arm, rows in data.groupby("arm", sort=False)
    ]
    return (
        "Left, bars of what a large vote gains and loses against one sample. Right, its gain on each task over the "
        f"share that one sample gets right: {'; '.join(parts)}."
    )


# -- convergence


def convergence_rates(data: pd.DataFrame) -> str:
    return f"The mean squared gradient over T, both logarithmic, a panel a problem. {_over_horizons(data, '.2g')}"


def convergence_constants(data: pd.DataFrame) -> str:
    return f"√T times the mean squared gradient over T, a panel a problem. {_over_horizons(data, '.3f')}"


def convergence_clipping(data: pd.DataFrame) -> str:
    return f"The share of rollouts that the clip stops, over T, a panel a problem. {_over_horizons(data, '.2g')}"


def _over_horizons(data: pd.DataFrame, form: str) -> str:
    parts = []
    for (problem, arm), rows in data.groupby(["problem", "arm"], sort=False):
        if arm in ("fixed", "adaptive"):
            ends = rows.sort_values("horizon")["mean"]
            title = convergence.ARMS[arm].title
            parts.append(f"{problem}, {title}: {ends.iloc[0]:{form}} to {ends.iloc[-1]:{form}}")
    return f"From the smallest to the largest T: {'; '.join(parts)}."


def _of_each_arm(data: pd.DataFrame, names: dict) -> str:
    courses = data.sort_values("update").groupby("arm", sort=False)
    return " ".join(_moves(ARMS[arm].title, course, names) for arm, course in courses)


def _moves(title: str, course: pd.DataFrame, names: dict) -> str:
    parts = []
    for column, words in names.items():
        values = course[column].dropna()
        if len(values):
            parts.append(f"{words} goes from {values.iloc[0]:.3g} to {values.iloc[-1]:.3g}")
    return f"{title}: {', '.join(parts)}."


# -- training on few problems


def overfitting_ends(data: pd.DataFrame) -> str:
    return EMPTY if data.empty else f"Above, a row an arm. {_measures(data, '.1f', ' %')} Below, {_gaps(data)}"


def learning_times(data: pd.DataFrame) -> str:
    return EMPTY if data.empty else f"Above, a row an arm. {_measures(data, '.1f', ' updates')} Below, {_gaps(data)}"


def _measures(data: pd.DataFrame, form: str, unit: str) -> str:
    sentences = []
    for measure, rows in data.groupby("measure", sort=False):
        parts = ", ".join(f"{ARMS[row.arm].title} {row.mean:{form}}{unit}" for row in rows[rows["n"] > 0].itertuples())
        sentences.append(f"{measure}: {parts or 'no run'}.")
    return " ".join(sentences)


def _gaps(data: pd.DataFrame) -> str:
    tested = data[data["pairs"] > 0].dropna(subset=["gap_half"])
    above, below = (int((sign * tested["gap"] > tested["gap_half"]).sum()) for sign in (1, -1))
    return (
        f"the paired differences from GRPO with {len(tested)} intervals: wholly above zero {above}, wholly below "
        f"{below}."
    )


def matched_levels(data: pd.DataFrame) -> str:
    rows = data[data["n"] > 0]
    if rows.empty:
        return "Paths of the gain on other problems over the way gone on those trained on, and nothing to compare."
    parts = ", ".join(f"{ARMS[row.arm].title} {row.mean:+.1f} at {row.at}" for row in rows.itertuples())
    return (
        "Left, a path an arm: the gain on other problems over the way gone on those trained on. Right, the paired "
        f"differences from GRPO on other problems, in points: {parts}."
    )


def overfitting_curves(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    sentences = []
    for panel, points in data.groupby("panel", sort=False):
        courses = points.sort_values("update").groupby("arm", sort=False)["mean"]
        parts = ", ".join(
            f"{ARMS[arm].title} {course.iloc[0]:.0f} to {course.iloc[-1]:.0f} %, at most {course.max():.0f} %"
            for arm, course in courses
        )
        sentences.append(f"{panel}: {parts}.")
    return f"Three panels over the updates. {' '.join(sentences)}"


# -- prompts or rollouts


def group_mean_worth(data: pd.DataFrame) -> str:
    batch = data[data["mean"] == "batch"].groupby("prompts")["worth"].first()
    seen = f" and {batch['runs']:.0%} as in these runs" if "runs" in batch else ""
    return (
        "Left, the share of silent groups over p, for groups of two, four and eight. Right, the worth of a rollout "
        "over the group's size: under the group's mean it rises from zero, past 50 % at two; under the batch's mean it "
        f"is {batch['uniform']:.0%} for p uniform{seen}, whatever the size."
    )


def group_size_scores(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    parts = []
    for baseline, of in data.sort_values("G").groupby("baseline", sort=False):
        points = ", ".join(f"{row.score:.1f} % at G = {row.G}" for row in of.itertuples())
        parts.append(f"{baseline} {points}")
    tested = data[data["pairs"] > 0].dropna(subset=["gap_half"])
    above, below = (int((sign * tested["gap"] > tested["gap_half"]).sum()) for sign in (1, -1))
    return (
        f"Left, test scores over the rollouts a prompt: {'; '.join(parts)}. Right, differences from "
        f"REINFORCE++-baseline with {len(tested)} intervals: wholly above zero {above}, wholly below {below}."
    )


# -- normaliser and KL


def factor_effects(data: pd.DataFrame) -> str:
    known = data.dropna(subset=["low"])
    if known.empty:
        return EMPTY if data["n"].sum() == 0 else "Five contrasts in a panel a measure, as points without intervals."
    clear = known[(known["low"] > 0) | (known["high"] < 0)]
    parts = [f"{row.contrast} in {row.measure}" for row in clear.itertuples()]
    return (
        f"Five contrasts in each of {data['measure'].nunique()} measures, as points with intervals. The intervals that "
        f"leave out zero: {'; '.join(parts) or 'none of them'}."
    )


def dev_over_kl(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    ends = data.sort_values("evaluation").groupby("arm", sort=False).last()
    parts = [f"{ARMS[arm].title} {row['dev']:.1f} % at {row['kl']:.3f} nats" for arm, row in ends.iterrows()]
    return f"The score on dev over the KL to the reference along training; lines end at: {'; '.join(parts)}."


def gain_by_level(data: pd.DataFrame) -> str:
    if data.empty:
        return EMPTY
    means = data.groupby("third", observed=True)[["level", "gap"]].mean()
    parts = [f"{row.gap:+.1f} points on tasks {row.Index} ({row.level:.0f} % on average)" for row in means.itertuples()]
    return f"Difference in gain between the two normalisers over the start's score on a task: {', '.join(parts)}."
