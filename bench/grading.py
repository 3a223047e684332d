"""CPU seconds for a thousand gradings, compared with math-verify alone; and whether copying a question is rewarded.

    python bench/grading.py [--rounds 3] [--data-dir FOLDER] [--record]

The cases are the repository's own, `tests/grading/grading_cases.jsonl`: pairs of a gold and an answer over all
benchmarks, most of them near misses. Each round and way has a process of its own, which goes through the cases twice;
the first time loads code, and every answer is parsed again each time.

Time is CPU time: on an idle core it equals the waiting time. The table shows medians over rounds, and the ratio of
math-verify's to ours. math-verify runs with its defaults and knows nothing of the benchmarks; it serves as a measure of
speed alone. Its own timeouts of five seconds end some cases. With `--data-dir`, a folder of the benchmarks' official
files, every expression of every question is put into a box and graded as a training reward: the share of questions on
which an expression is rewarded should be 0. `--record` writes the figures and the tables to
`outputs/reference/bench/grading.json`, from which the bench's README takes the first table.
"""

import argparse
import logging
import multiprocessing
import statistics
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

from agpo_core import paths, provenance
from agpo_core.grading import equivalent
from agpo_core.grading.cases import Case, load_cases, math_verify_alone, seconds_per_thousand
from agpo_core.grading.forms import expressions_of
from agpo_core.tasks import get_task

CASES = Path("tests", "grading", "grading_cases.jsonl")
LIBRARY, ALONE = "agpo_core", "math-verify alone"
COPIED = (("math500", "test"), ("gsm8k", "test"), ("orz", "train"))
KINDS = {
    "cold": "a thousand gradings, the first time",
    "warm": "a thousand gradings, the second time",
}
GOAL = 2.0  # seconds for a thousand gradings, on one core


def measure_way(name: str, cases: list[Case]) -> dict[str, float]:
    """One way's CPU seconds for each of KINDS, in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(name, cases, sender))
    process.start()
    sender.close()
    found = receiver.recv()
    process.join()
    return found


def _send(name: str, cases: list[Case], sender) -> None:
    grader = {LIBRARY: equivalent, ALONE: math_verify_alone}[name]
    logging.disable(logging.ERROR)  # math-verify logs what its timeouts end
    sender.send({kind: seconds_per_thousand(cases, grader, time.process_time) for kind in KINDS})


def measure(cases: list[Case], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Each way's CPU seconds for each of KINDS, one per round."""
    seen = {LIBRARY: [], ALONE: []}
    for _ in range(rounds):
        for name, several in seen.items():
            several.append(measure_way(name, cases))
    return {name: {kind: [found[kind] for found in several] for kind in KINDS} for name, several in seen.items()}


def table(measured: dict[str, dict[str, list[float]]]) -> list[str]:
    """The figures in Markdown, a row for each of KINDS."""
    lines = [
        f"| what is graded | `{LIBRARY}`, s | goal | {ALONE}, s | ratio |",
        "|---|---|---|---|---|",
    ]
    for kind, words in KINDS.items():
        ours, alone = (statistics.median(measured[name][kind]) for name in (LIBRARY, ALONE))
        goal = f"≤ {GOAL:g}, {'met' if ours <= GOAL else 'missed'}"
        lines.append(f"| {words} | {ours:.3f} | {goal} | {alone:.3f} | {alone / ours:.3g} |")
    return lines


def pays(task, problem) -> str | None:
    """The first rewarded expression of a question, apart from numbers, names and the gold as written."""
    for text in expressions_of(problem.question if hasattr(problem, "question") else problem.prompt):
        worked = any(c in text for c in "+-*/^=\\<>") and text.replace(" ", "") != problem.answer.replace(" ", "")
        if worked and task.grade(problem, rf"\boxed{{{text}}}").reward:
            return text
    return None


def copying(data_dir: str) -> list[str]:
    """A table of the questions on which an expression of theirs is rewarded, in Markdown, with the first three."""
    lines = ["| task | split | questions | a copy pays | share | which |", "|---|---|---:|---:|---:|---|"]
    for name, split in COPIED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of a split
            task = get_task(name, data_dir)
            problems = task.problems(split)
        found = [(problem.id, text) for problem in problems if (text := pays(task, problem))]
        which = "; ".join(f"{identity}: `{text}`" for identity, text in found[:3])
        share = f"{len(found) / len(problems):.4f}"
        lines.append(f"| `{name}` | {split} | {len(problems):,} | {len(found)} | {share} | {which} |")
    return lines


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Seconds for a thousand gradings, compared with math-verify alone.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-dir", metavar="FOLDER", help="official files, to test whether copying a question pays")
    parser.add_argument("--record", action="store_true", help="write outputs/reference/bench/grading.json")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more.")
    commit = provenance.git_commit()
    if args.record and len(commit) != 40:  # -dirty, or unknown
        parser.error(f"--record from commit {commit}: commit the code first.")
    started = datetime.now(UTC)
    cases = load_cases(paths.root() / CASES)
    measured = measure(cases, args.rounds)
    lines = table(measured)
    print("\n".join(lines))
    copied = copying(args.data_dir) if args.data_dir else None
    if copied:
        print("\n".join(["", *copied]))
    if args.record:
        to = paths.reference() / "bench" / "grading.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        about = provenance.measurement(commit, started) | {"rounds": args.rounds, "cases": len(cases)}
        provenance.write_json(to, {**about, "table": lines, "measured": measured, "copied": copied})


if __name__ == "__main__":
    main()
