"""Test cases for graders (a gold, a candidate and the right verdict), and the report of a grader's errors on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agpo_core.files import text_of
from agpo_core.grading.benchmark_profiles import get_profile
from agpo_core.grading.grader import equivalent, forget

FIELDS = {"benchmark": str, "gold": str, "candidate": str, "should_match": bool, "kind": str}


@dataclass(frozen=True)
class Case:
    benchmark: str
    gold: str
    candidate: str
    should_match: bool
    kind: str


def load_cases(path: str | Path) -> list[Case]:
    """The cases of a JSON-lines file; fields other than those of `Case` are ignored.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is not UTF-8, is not a case, or names an unknown benchmark; the message names file and line.
    """
    path, cases = Path(path), []
    if not path.is_file():
        raise FileNotFoundError(f"cases: no file {str(path)!r}; give JSON lines with {', '.join(FIELDS)}")
    try:
        lines = text_of(path).split("\n")
    except ValueError as error:
        raise ValueError(f"cases: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: also an integer of too many digits
            raise ValueError(f"cases: {path}, line {number} is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"cases: {path}, line {number} is not an object with {', '.join(FIELDS)}")
        for field, kind in FIELDS.items():
            if not isinstance(row.get(field), kind):
                raise ValueError(f"cases: {path}, line {number}: {field} should be of type {kind.__name__}")
        try:
            get_profile(row["benchmark"])
        except ValueError as error:
            raise ValueError(f"cases: {path}, line {number}: {error}") from error
        cases.append(Case(**{field: row[field] for field in FIELDS}))
    return cases


def judge(cases: Iterable[Case], grader: Callable[[str, str, str], bool] = equivalent) -> list[tuple[Case, bool]]:
    """Each case with the grader's verdict."""
    return [(case, grader(case.gold, case.candidate, case.benchmark)) for case in cases]


def report(judged: list[tuple[Case, bool]]) -> str:
    """A table of accuracy, false accepts and false rejects by kind; then every wrong verdict; then a line of totals."""
    kinds: dict[str, list[tuple[Case, bool]]] = {}
    for case, verdict in judged:
        kinds.setdefault(case.kind, []).append((case, verdict))
    lines = [f"{'kind':24} {'cases':>5} {'accuracy':>8} {'false accepts':>13} {'false rejects':>13}"]
    for kind in sorted(kinds):
        right, accepts, rejects = _counts(kinds[kind])
        total = len(kinds[kind])
        lines.append(f"{kind:24} {total:5d} {right / total:8.3f} {accepts:13d} {rejects:13d}")
    for case, verdict in judged:
        if verdict != case.should_match:
            what = "false accept" if verdict else "false reject"
            lines.append(f"{what}: {case.benchmark}, {case.kind}: gold {case.gold!r}, candidate {case.candidate!r}")
    right, accepts, _ = _counts(judged)
    lines.append(f"accuracy {right / len(judged):.4f} false_accepts {accepts} cases {len(judged)}")
    return "\n".join(lines)


def _counts(judged: list[tuple[Case, bool]]) -> tuple[int, int, int]:
    """The numbers of right verdicts, false accepts and false rejects."""
    accepts = sum(verdict and not case.should_match for case, verdict in judged)
    rejects = sum(case.should_match and not verdict for case, verdict in judged)
    return len(judged) - accepts - rejects, accepts, rejects


def math_verify_alone(gold: str, candidate: str, benchmark: str = "") -> bool:
    """The verdict of the library math-verify with its default settings, for comparison.

    Its default timeout of five seconds works by a signal, so call this from the main thread. Without the timeout, a
    factorial such as (5^12)! takes minutes.
    """
    from math_verify import parse, verify

    wrapped = [text if "$" in text or "\\boxed" in text else f"${text}$" for text in (gold, candidate)]
    right, given = (parse(text) for text in wrapped)
    return verify(right, given)


def seconds_per_thousand(
    cases: list[Case],
    grader: Callable[[str, str, str], bool] = equivalent,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that a thousand gradings take, by `clock`, with an empty cache at the start; `bench` reports this."""
    forget()
    start = clock()
    for case in cases:
        grader(case.gold, case.candidate, case.benchmark)
    return (clock() - start) / len(cases) * 1000
