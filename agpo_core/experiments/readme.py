"""Write the tables of the README files from their sources: the record, the tasks, the logged metrics.

    python -m agpo_core.experiments.readme

Each table lies between two markers, `<!-- name -->` and `<!-- end -->`; the text around them is written by hand. A test
holds the files to what this module writes, so no number in a table is typed. The README's picture is drawn from the
record, too.
"""

import re
from collections import Counter
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from agpo_core import paths, provenance
from agpo_core.comparison import about, macro, speaks, t_interval
from agpo_core.experiments import arm_tables, claim_tables, plots, published, records, report, verdicts
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.metrics import LOGGED
from agpo_core.recipes import RECIPES
from agpo_core.tasks import MICRO_TASKS

TABLE1, METHODS = "agpo_table1_main_results", "methods_overview"
HOLM = "p is corrected by Holm over all differences of the table."
LEARNED = {"4,000": "rpp_table1_general_rlhf", "500": "rpp_table1_weak_reward"}  # pairs of the reward model: record

# Tables of recorded experiments by `arm_tables`. name: (what a row is, what tells the stacked parts apart or "" for a
# single part, {part: (record, function that makes its table)}).
OF_ARMS = {
    # R++ Table 1, the 2 x 2 on learned rewards, for each quality of the reward model; its main effects
    "learned": ("arm", "pairs", {pairs: (record, arm_tables.rlhf) for pairs, record in LEARNED.items()}),
    "effects": ("effect", "pairs", {pairs: (record, arm_tables.main_effects) for pairs, record in LEARNED.items()}),
    # R++ Table 2, thirty training problems, tested on others
    "few": ("arm", "", {"": ("rpp_table2_small_data_overfitting", arm_tables.few_problems)}),
    # R++ Fig. 4, Knights and Knaves by number of people
    "knights": ("arm", "", {"": ("rpp_fig4_knights_knaves", arm_tables.by_task)}),
    # R++ Table 4, a calculator
    "tools": ("arm", "", {"": ("rpp_table4_tool_use", arm_tables.tool_use)}),
}
# Grids with one row per arm. name: (record, the arm that the others are compared with)
OVERVIEWS = {
    "methods": (METHODS, "grpo"),
    "ablations": ("agpo_table4_signal_ablation", "agpo"),
    "dispersions": ("agpo_table5_robust_dispersion", "agpo"),
    "mixed": ("mixed_scaling", "grpo"),
}
# Tables that a command wrote with its record, as lines under "table". name: file in outputs/reference
AS_RECORDED = {"speed": "bench/core.json", "grading": "bench/grading.json", "golds": "golds.json"}
PICTURE = "methods_overview.png"  # in outputs/reference
# Verdicts on claims, by what gave them, in the order in which they are counted; of one claim, of several.
OF_RUNS = ("supported", "contradicted", "inconclusive", "mixed")
OF_TESTS = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "in part": ("holds in part", "hold in part"),
}


def picture(to: Path) -> None:
    """Draw the README's picture, the scores of all methods in the recorded overview, into a PNG file."""
    figure, _ = plots.method_scores(records.load(METHODS, "tiny"))
    figure.savefig(to, dpi=130, metadata={"Software": None})  # matplotlib would write its version into the file
    plt.close(figure)


def coverage(folder: str = "notebooks/", missing: bool = True) -> str:
    """Every item of the papers and of ours: its question, its notebook or "to come", verdicts on its claims, its times.

    Args:
        folder: of the notebooks, as links from where the table stands need it.
        missing: name items whose notebook is to come, too.
    """
    there = {file.stem for file in paths.notebooks().glob("*.ipynb")}
    known = claim_tables.tallies()
    rows = [
        {
            "item": item.title,
            "the question": item.asks,
            "notebook": f"[{item.notebook}]({folder}{item.notebook}.ipynb)" if item.notebook in there else "to come",
            "verdicts here": _counted(known[c.number] for c in published.claims() if c.notebook == item.notebook),
            "to read; to run": f"{item.to_read} min; {item.to_run}" if item.to_run else "",
        }
        for item in published.items()
        if missing or item.notebook in there
    ]
    return _markdown(pd.DataFrame(rows))


def _counted(found) -> str:
    """How many claims got which verdict, from runs and from tests; see `claim_tables.tallies`."""
    counts = Counter(verdict for of_claim in found for verdict in of_claim)
    of_runs = ", ".join(f"{counts[word]} {word}" for word in OF_RUNS if counts[word])
    of_tests = ", ".join(f"{n} {words[n > 1]}" for word, words in OF_TESTS.items() if (n := counts[word]))
    return "; ".join(filter(None, (of_runs, of_tests and f"by test: {of_tests}")))


def results() -> str:
    """The recorded Table 1, one row per arm."""
    record = records.load(TABLE1, "tiny")
    runs = record.runs
    budgets = report.budgets(runs)
    rows = []
    for arm, (gap, p) in report.gaps(runs).items():
        title, scores = ARMS[arm].title, macro(runs[runs["arm"] == arm])
        row = {"arm": title, "macro-average, %": f"{scores.mean():.1f}"}
        if arm != "start":
            row["macro-average, %"] = t_interval(scores).text()
            row |= {"difference from GRPO": gap, "p (Holm)": p}
            row |= budgets.loc[title, ["updates", "tokens", "trained on"]]
            row["seconds in updates"] = budgets.loc[title, "seconds"]
        rows.append(row)
    return _markdown(pd.DataFrame(rows), speaks(report.about(runs)), HOLM)


def overview(name: str) -> str:
    """A table of OVERVIEWS: one row per arm of a recorded grid, compared with one of the arms."""
    record, baseline = OVERVIEWS[name]
    runs = records.load(record, "tiny").runs
    rows = report.overview(runs, baseline).reset_index(names="method")
    return _markdown(rows, speaks(report.about(runs)), HOLM)


def controls() -> str:
    """The measured differences about which no paper claims anything, from the two recorded comparisons."""
    tables, found = [], []
    for experiment in (TABLE1, METHODS):
        runs = records.load(experiment, "tiny").runs
        pairs = verdicts.controls(experiment, arms_of(runs))
        judged = verdicts.judge(runs, pairs)
        found += verdicts.intervals(judged)
        tables.append(
            pd.DataFrame(
                {
                    "grid": f"`{experiment}`",
                    "pair": [pair.title for pair in pairs],
                    "question": [pair.asks for pair in pairs],
                    "difference": [interval.text("+") for interval in verdicts.intervals(judged)],
                    "p (Holm)": [report.p_cell(p) for p in judged["p_holm"]],
                }
            )
        )
    return _markdown(
        pd.concat(tables),
        speaks(about(found)),
        HOLM.replace("differences of the table", "pairs of its grid in this table"),
    )


def of_arms(name: str) -> str:
    """A table of OF_ARMS: its parts stacked, with their keys in a column; a single part has no such column."""
    row, part, makers = OF_ARMS[name]
    tables = {key: make(records.load(record, "tiny")) for key, (record, make) in makers.items()}
    corners = dict.fromkeys(table.columns.name for table in tables.values())
    table = pd.concat(tables).reset_index(names=[part, row]).rename(columns=lambda name: name.removeprefix("knights_"))
    found = "A star marks a difference that is not zero"
    if not table.astype(str).apply(lambda column: column.str.endswith(" *")).any(axis=None):
        found = "No difference differs from zero"
    family = f"all differences with the same {part}" if part else "all differences of the table"
    star = f"{found} after Holm's correction over {family}."
    return _markdown(table if part else table.drop(columns=part), *map(speaks, corners), star)


def as_recorded(name: str) -> str:
    """A table of AS_RECORDED."""
    return "\n".join(provenance.read_json(paths.reference() / AS_RECORDED[name])["table"])


def _markdown(table: pd.DataFrame, *notes: str) -> str:
    """A table of texts, and notes under it."""
    lines = report.markdown(table).replace("\u00a0", " ")  # GitHub's tables scroll; a search finds a plain space
    return "\n\n".join(filter(None, (lines, " ".join(filter(None, notes)))))


def small() -> str:
    """The recorded runs of a real language model, one row each, with the score of its start."""
    columns = ("task", "updates", "reward, first and last four", "τ, lowest to highest", "ε, lowest to highest",
               "greedy on test, before and after", "seconds")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for folder in sorted(path.parent for path in paths.reference().glob("small/*/agpo-*/metrics.jsonl")):
        start = next(folder.parent.glob("start-*"))
        rows = pd.DataFrame(provenance.read_jsonl(folder / "metrics.jsonl"))
        before, after = (provenance.read_json(run / "eval.json")["test"] for run in (start, folder))
        task = folder.parent.name
        cells = [
            f"[`{task}`]({folder.relative_to(paths.reference()).as_posix()})",
            f"{rows['update'].max()}",
            f"{rows['reward'][:4].mean():.3f}, {rows['reward'][-4:].mean():.3f}",
            f"{rows['tau'].min():.3f} to {rows['tau'].max():.3f}",
            f"{rows['epsilon'].min():.3f} to {rows['epsilon'].max():.3f}",
            f"{before['macro']:.2f}, {after['macro']:.2f} of {after['problems']} problems",
            f"{rows['seconds'].iloc[-1]:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def evaluation() -> str:
    """The recorded evaluations of the small model, one row per task and metric."""
    tables = [pd.read_csv(path) for path in sorted(paths.reference().glob("small/evaluation*/table.csv"))]
    rows = [
        {
            "task": f"`{row['task']}`",
            "prompt": row["prompt"],
            "template": row["template"],
            "problems": row["n"],
            "metric": row["metric"],
            "%": f"{100 * row['value']:.1f}",
            "95 % interval": f"{100 * row['low']:.1f} to {100 * row['high']:.1f}",
            "truncated": f"{100 * row['truncated']:.0f} %",
            "tokens": f"{row['tokens']:,}",
            "seconds": f"{row['seconds']:.0f}",
        }
        for row in pd.concat(tables).to_dict("records")
    ]
    return _markdown(pd.DataFrame(rows))


def tasks() -> str:
    """The micro-tasks, what they stand in for, and where the shipped model starts on them."""
    from agpo_core.tasks import get_task

    starts = provenance.read_json(paths.models() / "starts.json")
    start = starts["tiny-qwen2-a"]["tasks"]
    lines = ["| task | an example | stands in for | `tiny-qwen2-a` before training: greedy, % | pass@8, % |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name in MICRO_TASKS:
        task = get_task(name)
        first = task.problems("test")[0]
        lines.append(
            f"| `{name}` | `{first.prompt}` → `{first.answer}` | {task.stands_in_for} "
            f"| {100 * start[name]['greedy']:.1f} | {100 * start[name]['pass_at_8']:.1f} |"
        )
    return "\n".join(lines)


def metrics() -> str:
    """Every entry of metrics.jsonl."""
    rows = (f"| `{k}` | {text.replace('|', chr(92) + '|')} | {unit} |" for k, (text, unit) in LOGGED.items())
    return "\n".join(["| metric | what it is | unit |", "|---|---|---|", *rows])


def claims() -> str:
    """Every claim of the papers, and what is known of it here."""
    known = claim_tables.answers()
    rows = [
        {
            "#": str(claim.number),
            "where": f"{claim.paper} {claim.place}",
            "the paper says": claim.says,
            "here": "; ".join(known[claim.number]),
            "notebook": f"`{claim.notebook}`",
        }
        for claim in published.claims()
    ]
    return _markdown(pd.DataFrame(rows))


def faults() -> str:
    """What is wrong in the papers' texts."""
    rows = [
        {
            "text": fault.text,
            "where": fault.place,
            "it says": fault.says,
            "what is wrong": fault.wrong,
            "found by": fault.found,
        }
        for fault in published.faults()
    ]
    table = pd.DataFrame(rows)
    return _markdown(table)


def throughput() -> str:
    """The recorded figures of bench/throughput.py."""
    figures = provenance.read_json(paths.reference() / "bench" / "throughput.json")["figures"]
    columns = ("method", "generated, tokens/s", "to PPO, value head", "to PPO, separate critic", "trained on, tokens/s")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for method, row in figures.items():
        ratios = (f"{row['generated'] / figures[base]['generated']:.2f}" for base in ("ppo", "ppo_critic"))
        cells = [RECIPES[method].title, f"{row['generated']:,.0f}", *ratios, f"{row['trained']:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def benchmarks() -> str:
    """The papers' benchmarks and training sets."""
    from agpo_core.tasks.benchmarks import listing

    return listing.markdown()


TABLES = {  # name in the markers: function that gives the text
    **{table.__name__: table for table in (
        coverage, results, controls, small, evaluation, tasks, metrics, claims, faults, throughput, benchmarks)},
    **{name: partial(overview, name) for name in OVERVIEWS},
    **{name: partial(of_arms, name) for name in OF_ARMS},
    **{name: partial(as_recorded, name) for name in AS_RECORDED},
}  # fmt: skip
DOCUMENTS = {  # a file: its tables
    "README.md": ("coverage",),
    "agpo_core/experiments/published/README.md": ("claims", "faults"),
    "agpo_core/tasks/README.md": ("tasks", "benchmarks", "golds"),
    "agpo_core/training/README.md": ("metrics",),
    "bench/README.md": ("speed", "throughput", "grading"),
    "outputs/reference/README.md": (
        "results", "methods", "controls", "ablations", "dispersions", "mixed", "learned", "effects", "few", "knights",
        "tools", "small", "evaluation",
    ),
    "params/README.md": (),
}  # fmt: skip


def fill(document: str) -> str:
    """The text of a document with each of its tables written anew."""
    text = (paths.root() / document).read_text(encoding="utf-8")
    for name in DOCUMENTS[document]:
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        if not re.search(pattern, text, flags=re.DOTALL):
            raise ValueError(f"{document} lacks the markers of its table {name!r}.")
        body = f"\n{TABLES[name]()}\n\n"
        text = re.sub(pattern, lambda found: found[1] + body + found[2], text, flags=re.DOTALL)
    return text


def main() -> None:
    for document in DOCUMENTS:
        (paths.root() / document).write_text(fill(document), encoding="utf-8")
    picture(paths.reference() / PICTURE)


if __name__ == "__main__":
    main()
