"""Tables and sentences about a grid's results, for a notebook and for a terminal.

Every sentence is made from the data. Single tasks are shown, not judged.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from agpo_core import comparison, metrics, paths
from agpo_core.comparison import holm, macro, p_value, paired, speaks, t_interval
from agpo_core.experiments.grid import ARMS, arms_of, start_name
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import Pair, agreement_text, fill, judge, p_text, verdicts
from agpo_core.tasks import get_task


def measured(runs: pd.DataFrame) -> pd.DataFrame:
    """The measured table, arms x macro-average and tasks: test score in %, mean ± t-interval.

    Its corner says whether the intervals go over seeds or over starts (comparison.spread). Tasks are written with
    spaces, at which a heading may break: so the table fits a notebook's page.
    """
    rows = {}
    for arm in arms_of(runs):
        of_arm = runs[runs["arm"] == arm].set_index(["seed", "start"])
        cells = {"macro": macro(runs[runs["arm"] == arm])}
        cells |= {task: 100 * of_arm.loc[of_arm["task"] == task, "score"] for task in tasks_of(runs)}
        rows[ARMS[arm].title] = {
            # These are all starts, not a sample of them: no interval.
            name.replace("_", " "): f"{values.mean():.1f}" if arm == "start" else t_interval(values).text()
            for name, values in cells.items()
        } | {"runs": str(len(cells["macro"]))}
    return _frame(rows, about(runs))


def about(runs: pd.DataFrame) -> str:
    """What the intervals of a table of runs go over, such as "± over starts"; "" where there are none."""
    return comparison.about(t_interval(macro(runs[runs["arm"] == arm])) for arm in arms_of(runs) if arm != "start")


def gaps(runs: pd.DataFrame, baseline: str = "grpo") -> dict[str, tuple[str, str]]:
    """Each arm's paired difference from the baseline, mean ± t-interval, and its p, corrected by Holm, as text.

    Both are empty for the baseline and the supervised start.
    """
    found = {arm: paired(runs, arm, baseline) for arm in arms_of(runs) if arm not in (baseline, "start")}
    adjusted = holm([p_value(gap) for gap in found.values()])
    texts = {arm: (t_interval(gap).text("+"), p_cell(p)) for (arm, gap), p in zip(found.items(), adjusted, strict=True)}
    return {arm: texts.get(arm, ("", "")) for arm in arms_of(runs)}


def p_cell(p: float) -> str:
    """A p-value in a table: three decimals, or that it lies below .001; empty where nothing was tested."""
    return "" if np.isnan(p) else p_text(p).removeprefix("p ").removeprefix("= ")


def differences(runs: pd.DataFrame, baseline: str = "grpo") -> pd.DataFrame:
    """What every arm gains over its start, and how it differs from the baseline, paired; points.

    p is corrected by Holm over all differences from the baseline. The table's corner says what the intervals go over.
    """
    rows = {}
    for arm, (gap, p) in gaps(runs, baseline).items():
        if arm == "start":
            continue
        pairs = len(paired(runs, arm, baseline)) if arm != baseline else 0
        rows[ARMS[arm].title] = {
            "gain over the start": t_interval(paired(runs, arm, "start")).text("+"),
            f"difference from {ARMS[baseline].title}": gap,
            "p (Holm)": p,
            "pairs": str(pairs or ""),
        }
    return _frame(rows, about(runs))


def budgets(runs: pd.DataFrame) -> pd.DataFrame:
    """What every arm spent, mean over its runs, and whether all of them met their token budget."""
    rows = {}
    for arm in arms_of(runs):
        if arm == "start":
            continue
        of_arm = runs[runs["arm"] == arm].drop_duplicates(["seed", "start"])
        spent = of_arm["tokens_train"] + of_arm["tokens_probe"]
        within = "no token budget"
        if (of_arm["horizon_unit"] == "tokens").all():
            within = "NO" if off_budget(of_arm) else "yes"
        rows[ARMS[arm].title] = {
            "updates": f"{of_arm['updates'].mean():.1f}",
            "tokens": f"{spent.mean():,.0f}",
            "trained on": f"{of_arm['tokens_train'].mean():,.0f}",
            "probe": f"{of_arm['tokens_probe'].mean():,.0f}",
            "seconds": f"{of_arm['seconds'].mean():.1f}",
            "within one update": within,
        }
    return _frame(rows)


def overview(runs: pd.DataFrame, baseline: str = "grpo") -> pd.DataFrame:
    """One row per method: what it reached, what it spent, what it needed; means over runs, ± 95 % t-interval.

    p is corrected by Holm over all differences from the baseline. The table's corner says what the intervals go over.
    Var ‖∇‖ is the variance of the gradient norm before clipping (AGPO §4.5): its median over runs, divided by the
    baseline's, because one spike in one run would dominate a mean. Memory is the peak of a run's process above what its
    libraries take.
    """
    rows = {}
    reference = _by_run(runs, baseline)["grad_norm_variance"].median()
    for arm, (gap, p) in gaps(runs, baseline).items():
        of_arm = _by_run(runs, arm)
        row = {"test, %": t_interval(macro(runs[runs["arm"] == arm])).text()}
        if arm == "start":
            row["test, %"] = f"{of_arm['macro'].mean() * 100:.1f}"
        else:
            tokens = of_arm["tokens_train"] + of_arm["tokens_probe"]
            row |= {
                f"from {ARMS[baseline].title}": gap,
                "p (Holm)": p,
                "updates": f"{of_arm['updates'].mean():.0f}",
                "tokens": f"{tokens.mean():,.0f}",
                "trained on": f"{of_arm['tokens_train'].mean() / tokens.mean():.0%}",
                "memory, MiB": f"{of_arm['memory_mb'].mean():.0f}",
                "Var ‖∇‖": f"{of_arm['grad_norm_variance'].median() / reference:.2f}",
            }
        rows[ARMS[arm].title] = row
    return _frame(rows, about(runs)).fillna("")


def _by_run(runs: pd.DataFrame, arm: str) -> pd.DataFrame:
    return runs[runs["arm"] == arm].drop_duplicates(["seed", "start"])


def warnings(results: Results) -> str:
    """The warnings of the runs, each once, with the arms and the number of runs that gave it."""
    heard = {}
    for line in results.meta.get("warnings", []):
        # Shares and temperatures differ from run to run; the sentence up to its first number is the same.
        key = re.split(r"\d", line["warning"])[0]
        heard.setdefault(key, []).append(line)
    blocks = []
    for lines in heard.values():
        counts = pd.Series([ARMS[line["arm"]].title for line in lines]).value_counts(sort=False)
        arms = ", ".join(f"{arm} ({n})" for arm, n in counts.items())
        blocks.append(f"{fill(lines[0]['warning'], bullet='- ')}\n{fill(arms, bullet='  runs: ')}")
    return "\n".join(blocks) or "No run warned of anything."


def feedback(traces: pd.DataFrame, arm: str, params: dict) -> dict[str, float]:
    """How much a rise of τ raises the uncertainty that would set the next τ, if rollouts took the probe's place.

    slope  least-squares slope, through zero, of U(rollouts at τ_t) - U(probe at τ_base) against τ_t - τ_base
    gain   λ τ_base slope: what a rise of τ by one adds to the next τ, where a free probe closes the loop

    With a gain well below 1 a rise dies out; with 1 or more, τ would run away to a bound.
    """
    updates = traces[traces["arm"] == arm].dropna(subset=["uncertainty_train"])
    heat = updates["tau"] - params["tau_base"]
    rise = updates["uncertainty_train"] - updates["uncertainty"]
    slope = float((heat * rise).sum() / (heat**2).sum())
    return {"slope": slope, "gain": params["sensitivity"] * params["tau_base"] * slope}


def off_budget(runs: pd.DataFrame) -> list[str]:
    """Hashes of the runs that did not meet their budget of tokens to within one update.

    A run stops at the first update at or past its horizon:
    horizon <= tokens < horizon + tokens of the last update.
    """
    budgeted = runs[runs["horizon_unit"] == "tokens"].drop_duplicates("hash")
    over = budgeted["tokens_train"] + budgeted["tokens_probe"] - budgeted["horizon"]
    return budgeted.loc[(over < 0) | (over >= budgeted["tokens_last"]), "hash"].tolist()


def controllers(traces: pd.DataFrame, params: dict) -> pd.DataFrame:
    """What the controllers did, over all updates of an arm's runs.

    at floor     share of updates with ε = ε_min; blank where ε is fixed
    clip binds   share of tokens whose gradient the clip stops (metrics.clip_saturation)
    cooled       share of updates with τ < τ_base; blank where τ is fixed
    """
    rows = {}
    traces = traces.dropna(subset=["epsilon"])  # DPO has no clip, and row 0 no update
    for arm in arms_of(traces):
        updates = traces[traces["arm"] == arm]
        moved = ARMS[arm].adapts
        saturation = metrics.clip_saturation(
            *(updates[name].tolist() for name in ("epsilon_at_bound", "clip_fraction", "tokens"))
        )
        last = updates.groupby(["seed", "start"])["update"].transform("max") == updates["update"]
        rows[ARMS[arm].title] = {
            "H, nats": f"{updates['entropy'].mean():.2f}",
            "ε": f"{updates['epsilon'].mean():.3f}",
            "at floor": f"{floor_share(updates, params):.0%}" if "epsilon" in moved else "",
            "clip binds": f"{saturation['tokens_clipped']:.1%}",
            "τ first": f"{updates.loc[updates['update'] == 1, 'tau'].mean():.2f}",
            "τ last": f"{updates.loc[last, 'tau'].mean():.2f}",
            "cooled": f"{cooled_share(updates, params):.1%}" if "tau" in moved else "",
        }
    return _frame(rows)


def floor_share(updates: pd.DataFrame, params: dict) -> float:
    """Share of updates whose ε lies at ε_min, up to the rounding of a record."""
    return float(np.isclose(updates["epsilon"].astype(float), params["epsilon_min"]).mean())


def cooled_share(updates: pd.DataFrame, params: dict) -> float:
    """Share of updates that were sampled below τ_base."""
    return float((updates["tau"] < params["tau_base"]).mean())


def legend(tasks: list[str]) -> pd.DataFrame:
    """What each task is and which benchmark it stands in for."""
    found = [get_task(name) for name in tasks]
    columns = {"what it asks": [task.title for task in found]}
    columns["stands in for"] = [task.stands_in_for for task in found]
    return pd.DataFrame(columns, index=pd.Index(tasks, name="task"))


def tasks_of(runs: pd.DataFrame) -> list[str]:
    """The tasks of a table of runs, in the order in which they were given."""
    return list(runs["task"].unique())


def text(table: pd.DataFrame, columns: int = 6) -> str:
    """A table for the terminal, in blocks of so many columns."""
    blocks = [table.iloc[:, i : i + columns] for i in range(0, table.shape[1], columns)]
    return "\n\n".join(block.to_string() for block in blocks) if blocks else "(nothing was run)"


def markdown(table: pd.DataFrame) -> str:
    """A table of texts in Markdown; an empty cell stays empty, and a bar does not end its cell."""
    texts = table.fillna("").astype(str).replace(r"(?<!\w)-(?=\d)", "−", regex=True)
    rows = (f"| {' | '.join(row)} |" for row in texts.replace(r"\|", r"\\|", regex=True).to_numpy())
    return "\n".join([f"| {' | '.join(table.columns)} |", "|---" * len(table.columns) + "|", *rows])


def _frame(rows: dict, corner: str | None = None) -> pd.DataFrame:
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


# -- in words --------------------------------------------------------------------------------


def reading(results: Results, judged: pd.DataFrame) -> str:
    """What the numbers say, sentence by sentence."""
    if results.runs.empty:
        return "Nothing was run, so there is nothing to read."
    sentences = [*_answer(judged), _order(results.runs), _counts(judged), *_seeds_of_starts(results)]
    updates = results.traces[results.traces["update"] > 0]
    for arm in arms_of(updates):
        of_arm = updates[updates["arm"] == arm]
        if "epsilon" in ARMS[arm].adapts:
            sentences.append(_epsilon(arm, of_arm, results.meta["params"]))
        if "tau" in ARMS[arm].adapts:
            sentences.append(_tau(arm, of_arm, results.meta["params"]))
    return "\n".join(fill(sentence, bullet="- ") for sentence in sentences)


def _answer(judged: pd.DataFrame) -> list[str]:
    """Whether AGPO scores higher, with and without the probe's cost; nothing where AGPO was not run."""
    rows = judged[judged["n"] > 0].set_index(["arm", "baseline"])
    found = []
    equal = {"tokens": "grpo", "updates": "grpo_matched_updates", "compute": "grpo_matched_compute"}
    for what, baseline in equal.items():
        if ("agpo", baseline) in rows.index:
            row = rows.loc[("agpo", baseline)]
            judgement = "" if row["verdict"] == "no claim" else f" (the claim is {row['verdict']})"
            found.append(f"{row['mean']:+.1f} points at equal {what}{judgement}")
    return [f"The question's answer at this scale: AGPO differs from GRPO by {', '.join(found)}."] if found else []


def _order(runs: pd.DataFrame) -> str:
    means = macro(runs).groupby("arm").mean().sort_values(ascending=False)
    ranked = ", ".join(f"{ARMS[arm].title} ({mean:.1f})" for arm, mean in means.items())
    return f"Macro-averages as measured, highest first: {ranked}. Order alone decides nothing."


def _counts(judged: pd.DataFrame) -> str:
    counts = judged["verdict"].value_counts()
    found = [f"{counts[v]} {v}" for v in ("supported", "contradicted", "inconclusive", "not run")
             if v in counts]  # fmt: skip
    total = int((judged["verdict"] != "no claim").sum())
    if not total:
        return "No claim of the papers is about these arms."
    sentence = f"Verdicts at this scale on {total} pair{'s' * (total > 1)} with a claim: {', '.join(found)}."
    if counts.get("inconclusive"):
        sentence += " Inconclusive means that neither direction is shown; a difference may still exist."
    return sentence


def _seeds_of_starts(results: Results) -> list[str]:
    """How many seeds each start had, where that is not the same number."""
    trained = results.runs[results.runs["arm"] != "start"].drop_duplicates(["seed", "start"])
    counts = dict.fromkeys(map(start_name, results.meta["params"].get("models", [])), 0)
    counts |= trained["start"].value_counts(sort=False).to_dict()
    if len(set(counts.values())) < 2:
        return []
    shares = ", ".join(f"{start} {n}" for start, n in counts.items())
    return [f"The starts did not have equally many seeds: {shares}. A mean over runs weights them accordingly."]


def _epsilon(arm: str, updates: pd.DataFrame, params: dict) -> str:
    updates = updates.dropna(subset=["sigma"])  # the first update of a free probe has no signals, and Eq. 4 is not used
    low, high = updates["epsilon_raw"].min(), updates["epsilon_raw"].max()
    return (
        f"{ARMS[arm].title}: ε lies at its floor, {params['epsilon_min']}, in "
        f"{floor_share(updates, params):.0%} of updates. Before its bounds, Eq. 4 gives {low:.3f} to "
        f"{high:.3f}, with H from {updates['entropy'].min():.2f} to {updates['entropy'].max():.2f} nats."
    )


def _tau(arm: str, updates: pd.DataFrame, params: dict) -> str:
    tau = updates["tau"]
    last = updates.loc[updates.groupby(["seed", "start"])["update"].idxmax()]
    caught_up = (last["uncertainty_baseline"] / last["uncertainty"]).mean()
    return (
        f"{ARMS[arm].title}: τ ranges from {tau.min():.2f} to {tau.max():.2f} and is below τ_base in "
        f"{cooled_share(updates, params):.1%} of updates. At the end the baseline Ū has reached "
        f"{caught_up:.0%} of U."
    )


def summary(results: Results, pairs: list[Pair], record: Results | None, baseline: str = "grpo") -> str:
    """Everything that was measured, as one text for a terminal; differences are from the baseline."""
    if results.runs.empty:
        return "Nothing was run."
    judged = judge(results.runs, pairs)
    meta = results.meta
    sections = {
        f"{meta['experiment']}, {results.title}": f"commit {', '.join(meta['commit'])}",
        "Measured: test score, %, mean ± 95 % t-interval": _noted(measured(results.runs), results.runs),
        "Paired differences of the macro-average, points": _noted(differences(results.runs, baseline), results.runs),
        "Budgets, mean over runs": text(budgets(results.runs)),
        "Controllers, all updates": text(controllers(results.traces, meta["params"]), columns=7),
        "Claims": verdicts(judged, pairs),
        "Reading": reading(results, judged),
        "Agreement with the record": agreement_text(results, record),
    }
    return "\n\n".join(f"{title}\n{'=' * len(title)}\n{body}" for title, body in sections.items())


def _noted(table: pd.DataFrame, runs: pd.DataFrame) -> str:
    """A table, and under it the sentence about its intervals (comparison.speaks)."""
    note = speaks(about(runs))
    return "\n\n".join([text(table.rename_axis(columns=None)), *([fill(note)] if note else [])])


def write_summary(results: Results, pairs: list[Pair], record: Results | None, baseline: str = "grpo") -> Path:
    """Write the summary beside the runs, as `summary.txt`."""
    folder = paths.runs() / results.meta["experiment"] / results.meta["profile"]
    file = folder / "summary.txt"
    file.write_text(summary(results, pairs, record, baseline) + "\n", encoding="utf-8")
    return file


def provenance(results: Results) -> str:
    """Where the numbers come from, one line each."""
    names = ("experiment", "profile", "commit", "numerics_version", "python", "versions",
             "hardware", "command", "started", "finished")  # fmt: skip
    rows = {name: _plain(results.meta.get(name)) for name in names}
    rows["runs"] = str(len(results.meta.get("runs", [])))
    return "\n".join(fill(value, bullet=f"{name:18}") for name, value in rows.items() if value)


def _plain(value) -> str:
    if isinstance(value, list):
        return "; ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}".strip() for name, part in value.items())
    return "" if value is None else str(value)
