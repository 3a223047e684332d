"""CPU seconds for a thousand gradings, beside math-verify alone.

    python bench/grading.py [--rounds 3] [--record]

The cases are the repository's own, `tests/tasks/grading_cases.jsonl`: pairs of a gold and an answer over all
benchmarks, most of them near misses. Each round and way has a process of its own, which goes through the cases twice;
the first time loads code, and every answer is read anew each time. None of them needs our symbolic worker, a process
that reads what the fast reader has no word for. So an integral is graded after them, also twice: with the start of the
worker, and with the worker running.

Time is the CPU time of that process and of the worker that it starts: on an idle core it is what one waits. The table
shows medians over rounds, and the ratio of math-verify's to ours. math-verify has its defaults and no notion of a
benchmark, and is a measure for speed here; its own timeouts of five seconds end some cases. `--record` writes
the figures and the table to `outputs/reference/bench/grading.json`, where the bench's README takes the table from.
"""

import argparse
import logging
import multiprocessing
import os
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil

from agpo_core import paths, provenance
from agpo_core.tasks.grading.cases import Case, load_cases, math_verify_alone, seconds_per_thousand
from agpo_core.tasks.grading.core import equivalent
from agpo_core.tasks.grading.workers import READER

CASES = Path("tests", "tasks", "grading_cases.jsonl")
LIBRARY, ALONE = "agpo_core", "math-verify alone"
INTEGRAL = Case("math", r"\int_0^1 x dx", r"\frac{1}{2}", should_match=True, kind="integral")
KINDS = {
    "cold": "a thousand gradings, the first time",
    "warm": "a thousand gradings, the second time",
    "start": "an integral, which starts the worker",
    "integral": "an integral, with the worker running",
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
    logging.disable(logging.ERROR)  # math-verify's, about what its timeouts end
    found = {kind: seconds_per_thousand(cases, grader, cpu_seconds) for kind in ("cold", "warm")}
    found |= {kind: seconds_per_thousand([INTEGRAL], grader, cpu_seconds) / 1000 for kind in ("start", "integral")}
    READER.close()
    sender.send(found)


def cpu_seconds() -> float:
    """CPU time of this process and of those it has started, also of those that run."""
    ended = os.times()
    running = (child.cpu_times() for child in psutil.Process().children(recursive=True))
    started = ended.children_user + ended.children_system + sum(times.user + times.system for times in running)
    return time.process_time() + started


def measure(cases: list[Case], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Each way's CPU seconds for each of KINDS, one a round."""
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
        goal = f"≤ {GOAL:g}, {'met' if ours <= GOAL else 'missed'}" if kind in ("cold", "warm") else ""
        lines.append(f"| {words} | {ours:.3f} | {goal} | {alone:.3f} | {alone / ours:.3g} |")
    return lines


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Seconds for a thousand gradings, beside math-verify alone.")
    parser.add_argument("--rounds", type=int, default=3)
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
    if args.record:
        to = paths.reference() / "bench" / "grading.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        about = provenance.measurement(commit, started) | {"rounds": args.rounds, "cases": len(cases)}
        provenance.write_json(to, {**about, "table": lines, "measured": measured})


if __name__ == "__main__":
    main()
