"""The command line of the tasks: `python -m agpo_core.tasks`."""

from __future__ import annotations

import argparse
import os
import sys

from agpo_core.sandbox import SandboxRefused
from agpo_core.tasks import SPLITS


def grade(arguments: argparse.Namespace) -> None:
    """Grade a file of cases and print the grader's errors."""
    from agpo_core.grading.cases import judge, load_cases, report

    print(report(judge(load_cases(arguments.cases))))


def list_benchmarks(arguments: argparse.Namespace) -> None:
    """Print every benchmark and training set."""
    from agpo_core.tasks.benchmarks.listing import table

    print(table(arguments.data_dir))


def show(arguments: argparse.Namespace) -> None:
    """Print one record."""
    from agpo_core.tasks.benchmarks.listing import show

    print(show(arguments.name, arguments.index, arguments.split, arguments.data_dir))


def download(arguments: argparse.Namespace) -> None:
    """Copy benchmarks from the hub into a folder."""
    from agpo_core.tasks.benchmarks.download import download

    for name in arguments.names:
        for file in download(name, arguments.to):
            print(file)


def check(arguments: argparse.Namespace) -> None:
    """Put every gold of a folder into answer sentences, and print whether the grader finds it again."""
    from agpo_core.tasks.benchmarks import checking

    print("\n".join(checking.record(arguments.data_dir) if arguments.record else checking.table(arguments.data_dir)))


def overlap(arguments: argparse.Namespace) -> None:
    """Print the training questions that are also in evaluation sets."""
    from agpo_core.tasks.decontamination import load_sets, overlaps, report

    train = load_sets(arguments.train.split(","), "train", arguments.data_dir)
    evaluation = load_sets(arguments.evaluation.split(","), "test", arguments.data_dir)
    print(report(overlaps(train, evaluation, arguments.n)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agpo_core.tasks", description="Tasks and their grader.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("grade", help="grade JSON lines of collected cases and report accuracy by kind")
    command.add_argument(
        "cases", metavar="CASES.jsonl", help="one case a line: benchmark, gold, candidate, should_match, kind"
    )
    command.set_defaults(run=grade)
    folder = {"default": None, "metavar": "FOLDER", "help": "the official files, each benchmark's in its own folder"}
    command = commands.add_parser("list", help="list benchmarks and training sets, with the number of their records")
    command.add_argument("--data-dir", **folder)
    command.set_defaults(run=list_benchmarks)
    command = commands.add_parser("show", help="print a record, its prompt and its canonical answer")
    command.add_argument("name", help="a task")
    command.add_argument("index", type=int, help="the record's place in the split, from 0")
    command.add_argument("--split", choices=SPLITS, default="test")
    command.add_argument("--data-dir", **folder)
    command.set_defaults(run=show)
    command = commands.add_parser("download", help="copy benchmarks from the hub into a folder that data_dir can name")
    command.add_argument("names", nargs="+", metavar="NAME", help="as `list` shows them")
    command.add_argument("--to", required=True, metavar="FOLDER", help="receives a folder for each benchmark")
    command.set_defaults(run=download)
    command = commands.add_parser("check", help="put every gold into answer sentences: does the grader find it again?")
    command.add_argument("--data-dir", **folder | {"required": True})
    command.add_argument("--record", action="store_true", help="write outputs/reference/golds.json")
    command.set_defaults(run=check)
    command = commands.add_parser("overlap", help="find training prompts that are also in evaluation sets")
    names = "tasks, with commas between them; another split after a colon: cmath:dev"
    command.add_argument("--train", required=True, metavar="TASKS", help=f"{names}; default split: train")
    command.add_argument("--evaluation", required=True, metavar="TASKS", help="the same; default split: test")
    command.add_argument("--n", type=int, default=13, help="words of an n-gram")
    command.add_argument("--data-dir", **folder)
    command.set_defaults(run=overlap)
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader stopped reading, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConnectionError, FileNotFoundError, SandboxRefused, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
