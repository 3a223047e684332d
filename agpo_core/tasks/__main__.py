"""`python -m agpo_core.tasks`: the tasks' command line."""

from __future__ import annotations

import argparse
import sys


def grade(arguments: argparse.Namespace) -> None:
    """Grade a file of cases and print how the grader does."""
    from agpo_core.tasks.grading.cases import judge, load_cases, report

    print(report(judge(load_cases(arguments.cases))))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agpo_core.tasks", description="Tasks and their grader.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("grade", help="grade JSON lines of collected cases and report accuracy by kind")
    command.add_argument(
        "cases", metavar="CASES.jsonl", help="one case a line: benchmark, gold, candidate, should_match, kind"
    )
    command.set_defaults(run=grade)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except (FileNotFoundError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
