"""What the papers say, as data: their numbers, their claims, and the faults in their texts.

    agpo.csv, rpp.csv   every number of their tables and texts, one a row
    claims.yaml         every claim, and what answers it here
    faults.yaml         what is wrong in the texts
    items.csv           every table, figure and theorem, and the notebook that re-makes it or will

AGPO's numbers are the paper's own. For REINFORCE++ we have only a long commentary, so every number of R++ is as the
commentary gives it, and the numbers whose place is "commentary" are the commentary's own arithmetic. Numbers that it
read off a figure are marked approximate; it gives none for Fig. 3. The papers' numbers never share an axis or a row
with ours.

A reference names numbers by place, row and column; row and column may be left out. "AGPO Table 1 | PPO | GSM8K" is one
number, "R++ Table 4 | GRPO" is a row, and "AGPO §4.2.3" is every number of that section.
"""

import csv
import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
import yaml

FILES = {"AGPO": "agpo.csv", "R++": "rpp.csv"}

# The rows of a paper's tables that correspond to each of our arms.
ROWS = {
    "AGPO": {
        "ppo": ("PPO",),
        "dpo": ("DPO",),
        "adaptive_kl_ppo": ("Adaptive-KL PPO",),
        "grpo": ("GRPO (fixed ε)",),
        "grpo_ats": ("GRPO + ATS",),
        "agpo_no_ats": ("AGPO (-ATS)",),
        "agpo": ("AGPO (full)", "std (default)"),
        "agpo_no_dispersion": ("− Dispersion σ̂",),
        "agpo_no_skewness": ("− Skewness |κ̃₃|",),
        "agpo_no_vote_entropy": ("− Probe entropy E",),
        "agpo_no_step_kl": ("− Step KL",),
        "agpo_mad": ("1.4826 × MAD",),
        "agpo_iqr": ("IQR/1.349",),
    },
    "R++": {
        "grpo": ("GRPO",),
        "rloo": ("RLOO",),
        "remax": ("ReMax",),
        "ppo": ("PPO",),
        "ppo_critic": ("PPO",),
        "reinforce_pp": ("REINFORCE++ (k = 1)",),
        "reinforce_pp_k": ("REINFORCE++ (k > 1)",),
        "reinforce_pp_baseline": ("REINFORCE++-baseline",),
    },
}
SCORES = ("%", "points", "points of a judge")  # units of numbers that say how good a policy is
MEANS = ("Avg", "average")  # columns that are means of the others
MACRO = "macro-average"  # over tasks: the measure that is judged


@dataclass(frozen=True)
class Number:
    """One published number.

    Attributes:
        paper: "AGPO" or "R++".
        place: table, figure or section.
        row, column: of the table; outside tables, what the number is about, and which quantity it is.
        value: in `unit`; the middle of a range.
        spread: what follows ±, or half of a range; None where the text gives none.
        unit: "" where there is none.
        approximate: read off a figure, or called approximate by the text.
        printed: the number as the text writes it, where that says more than the value.
        source: the text it was taken from: "paper", or of R++ "commentary".
    """

    paper: str
    place: str
    row: str
    column: str
    value: float
    spread: float | None
    unit: str
    approximate: bool
    printed: str
    source: str

    @property
    def reference(self) -> str:
        return f"{self.paper} {self.place} | {self.row} | {self.column}"


@cache
def numbers() -> tuple[Number, ...]:
    """Every published number, in the papers' order."""
    found = []
    for paper, file in FILES.items():
        with open(Path(__file__).parent / file, encoding="utf-8", newline="") as lines:
            for line in csv.DictReader(lines):
                typed = {
                    "value": float(line["value"]),
                    "spread": float(line["spread"]) if line["spread"] else None,
                    "approximate": line["approximate"] == "yes",
                }
                found.append(Number(paper, **{**line, **typed}))
    return tuple(found)


def find(reference: str) -> list[Number]:
    """The numbers that a reference names.

    Raises:
        KeyError: there is none; the message lists similar names.
    """
    found = [n for n in numbers() if n.reference == reference or n.reference.startswith(f"{reference} | ")]
    if not found:
        names = {" | ".join(n.reference.split(" | ")[:depth]): None for n in numbers() for depth in (1, 2, 3)}
        near = ", ".join(map(repr, difflib.get_close_matches(reference, names, n=3))) or "nothing near"
        raise KeyError(f"no published number is named {reference!r}: there is {near}.")
    return found


def table(place: str) -> pd.DataFrame:
    """A published table as printed: its rows and columns, NaN where the text gives no number.

    Args:
        place: such as "AGPO Table 1".
    """
    found = find(place)
    rows, columns = (list(dict.fromkeys(getattr(n, axis) for n in found)) for axis in ("row", "column"))
    cells = {(n.row, n.column): n.value for n in found}
    return pd.DataFrame([[cells.get((row, column)) for column in columns] for row in rows], rows, columns, dtype=float)


def compared(arm: str, baseline: str) -> dict[str, pd.DataFrame]:
    """The published tables that score both of two arms.

    Args:
        arm, baseline: names in grid.ARMS.
    Returns:
        {place: one row per column of that table, with `ours`, `theirs` and `gap`}; empty where no table has both.
        Columns that are means of others are left out. AGPO Table 4 prints differences from AGPO, so AGPO is 0 there.
    """
    found = {}
    for place in dict.fromkeys(f"{n.paper} {n.place}" for n in numbers() if n.place.startswith("Table")):
        pair = pd.DataFrame({"ours": _scores(place, arm), "theirs": _scores(place, baseline)}, dtype=float).dropna()
        if not pair.empty:
            found[place] = pair.assign(gap=pair["ours"] - pair["theirs"])
    return found


def _scores(place: str, arm: str) -> dict[str, float]:
    scored = [n for n in find(place) if n.unit in SCORES and n.column not in MEANS]
    if (place, arm) == ("AGPO Table 4", "agpo"):
        return {n.column: 0.0 for n in scored}
    return {n.column: n.value for n in scored if n.row in ROWS[n.paper].get(arm, ())}


# -- claims ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """What a claim says about two arms.

    Attributes:
        arm, baseline: names in grid.ARMS.
        relation: "above": the arm scores higher; "equal": neither does.
        measure: what is compared; the macro-average over tasks unless said otherwise. `verdicts.judge` judges those of
            `verdicts.MEASURES`, and no other.
    """

    arm: str
    baseline: str
    relation: str = "above"
    measure: str = MACRO


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what answers it.

    Attributes:
        number: its place in the list; it never changes, and a claim is never dropped.
        paper: "AGPO" or "R++" (by the commentary).
        place: where the paper says it.
        says: the claim, in one plain sentence.
        numbers: references of the published numbers that it rests on.
        contrasts: pairs of arms that answer it.
        tests: names of test functions that answer it.
        experiments: names of the experiments, each with a record or to come, in which the contrasts are judged.
        holds: whether the claim holds, if tests answer it in full; None if runs decide, or nothing has yet.
        gpu: the part that only a GPU can test; "" if there is none.
        planned: the experiment planned for what nothing answers yet; "" if there is none.
        notebook: the notebook that shows it, or will.
    """

    number: int
    paper: str
    place: str
    says: str
    notebook: str
    numbers: tuple[str, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    experiments: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    holds: bool | None = None
    gpu: str = ""
    planned: str = ""

    @property
    def title(self) -> str:
        return f"{self.paper} {self.place}, claim {self.number}"


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim of both papers, in order of their numbers."""
    found = []
    for entry in _read("claims.yaml"):
        lists = {name: tuple(entry.pop(name, ())) for name in ("numbers", "contrasts", "experiments", "tests")}
        lists["contrasts"] = tuple(Contrast(**contrast) for contrast in lists["contrasts"])
        found.append(Claim(**entry, **lists))
    return tuple(found)


# -- faults ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that is wrong in a text. The test `test_<name>` repeats how it was found.

    Attributes:
        name: short.
        text: whose fault it is: "AGPO", or "commentary" (on R++). We cannot tell whether a fault of the commentary is
            also in the R++ paper.
        place: where it stands.
        says: what the text says.
        wrong: what is wrong with it.
        found: how that was found.
    """

    name: str
    text: str
    place: str
    says: str
    wrong: str
    found: str


@cache
def faults() -> tuple[Fault, ...]:
    """Every fault, in the texts' order."""
    return tuple(Fault(**entry) for entry in _read("faults.yaml"))


# -- items -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A table, figure, theorem or appendix of a paper, or a further topic, and the notebook on it.

    Attributes:
        paper: "AGPO" or "R++"; "lesson"; "beyond": an experiment of ours.
        item: which one.
        asks: the question, in one plain sentence.
        notebook: its name; whether it is there already, the folder says.
        to_read: minutes, estimated; None: the notebook is to come.
        to_run: how long its cells take, measured on one core from the record; "": the notebook is to come.
    """

    paper: str
    item: str
    asks: str
    notebook: str
    to_read: int | None = None
    to_run: str = ""

    @property
    def title(self) -> str:
        return f"{self.paper}: {self.item}" if self.paper in ("beyond", "lesson") else f"{self.paper} {self.item}"


@cache
def items() -> tuple[Item, ...]:
    """Every item: the lessons, those of the papers in their order, and what goes beyond them."""
    with open(Path(__file__).parent / "items.csv", encoding="utf-8", newline="") as lines:
        return tuple(
            Item(**{**line, "to_read": int(line["to_read"]) if line["to_read"] else None})
            for line in csv.DictReader(lines)
        )


def _read(file: str) -> list[dict]:
    return yaml.safe_load((Path(__file__).parent / file).read_text(encoding="utf-8"))
