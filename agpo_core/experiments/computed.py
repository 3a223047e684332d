"""Tables of a notebook that take long to compute: computed once, recorded, and replayed.

In a notebook, where `compute` is a function of keyword arguments that returns a DataFrame:

    table = computed.table("monte_carlo", compute, params, NAME, profile, run_mode)

`run_mode = "replay"` reads `outputs/reference/<profile>/<notebook>/monte_carlo.csv`; `"train"` computes it, unless
`outputs/runs/<notebook>/<profile>/` has it already with the same parameters and from the same commit. Beside each CSV
lies a JSON file with the parameters, the commit, versions and hardware. This command turns computed tables into the
record:

    python -m agpo_core.experiments.computed promote rpp_appendix_a_bias tiny
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pandas as pd

from agpo_core import paths, provenance
from agpo_core.checks import check_choice
from agpo_core.settings import ConfigError, checked

DIGITS = 8  # significant, in a CSV


def table(name: str, compute: Callable, params: dict, notebook: str, profile: str, run_mode: str) -> pd.DataFrame:
    """A recorded table, or one computed now.

    Args:
        name: of the table, and of its files.
        compute: called with `params` as keyword arguments; returns a DataFrame of numbers and text.
        params: the plain values (numbers, text, lists) that the numbers depend on; written beside the table.
        notebook, profile: where the files lie.
        run_mode: "replay" or "train".

    Returns:
        The table as it was written, so that a replay shows the same digits as the run that made it.

    Raises:
        FileNotFoundError: replay, and nothing is recorded.
        ValueError: replay, and the record was made with other parameters; or an unknown run_mode.
    """
    check_choice("run_mode", run_mode, ("replay", "train"))
    file = folder(notebook, profile, run_mode) / f"{name}.csv"
    if run_mode == "replay":
        if not file.is_file():
            raise FileNotFoundError(f"no record of {name} for profile {profile!r}: set run_mode to 'train'.")
        made_with = provenance.read_json(file.with_suffix(".json"))["params"]
        if made_with != params:
            other = sorted(key for key in made_with | params if made_with.get(key) != params.get(key))
            raise ValueError(f"the record of {name} has another {', '.join(other)}: set run_mode to 'train'.")
    elif not _is_current(file, params):
        _write(file, compute, params)
    return pd.read_csv(file)


def check(notebook: str, params: dict) -> None:
    """Refuse settings that no record can answer, before any cell computes.

    Args:
        notebook: its name.
        params: its settings in effect; profile and run_mode among them.

    Raises:
        ConfigError: run_mode is unknown; or it is "replay", and the record is missing or has other parameters.
    """
    profile, run_mode = params["profile"], params["run_mode"]
    checked("run_mode", Literal["replay", "train"], run_mode)
    if run_mode == "train":
        return
    notes = sorted(folder(notebook, profile, run_mode).glob("*.json"))
    if not notes:
        raise ConfigError(f"there is no record of {notebook} under profile {profile!r}: set run_mode to train.")
    for note in map(provenance.read_json, notes):
        for name, recorded in note["params"].items():
            if params.get(name, recorded) != recorded:
                raise ConfigError(
                    f"{name} is {recorded!r} in the record, and {params[name]!r} here: set run_mode to train, to "
                    f"compute with yours (the record took {note['seconds']:.0f} seconds)."
                )


def about(name: str, notebook: str, profile: str, run_mode: str) -> dict:
    """Where a table comes from: params, commit, versions, hardware, seconds."""
    return provenance.read_json(folder(notebook, profile, run_mode) / f"{name}.json")


def folder(notebook: str, profile: str, run_mode: str) -> Path:
    """The folder of the record, or of what was computed here."""
    if run_mode == "replay":
        return paths.reference() / profile / notebook
    return paths.runs() / notebook / profile


def _is_current(file: Path, params: dict) -> bool:
    note = file.with_suffix(".json")
    if not (file.is_file() and note.is_file()):
        return False
    made = provenance.read_json(note)
    commit = provenance.git_commit()  # that of a dirty tree does not identify the code that made the table
    return made["params"] == params and made["commit"] == commit and len(commit) == 40


def _write(file: Path, compute: Callable, params: dict) -> None:
    started, begun = datetime.now(UTC), time.perf_counter()
    computed = compute(**params)
    note = {
        "function": f"{compute.__module__}.{compute.__qualname__}",
        "params": params,
        "commit": provenance.git_commit(),
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
        "started": started.isoformat(timespec="milliseconds"),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with provenance.explain_full_disk(file):
        computed.to_csv(file, index=False, float_format=f"%.{DIGITS}g")
    provenance.write_json(file.with_suffix(".json"), note)


def promote(notebook: str, profile: str) -> list[str]:
    """Copy what was computed into the record.

    Returns:
        The names of the tables.

    Raises:
        FileNotFoundError: nothing was computed.
        ValueError: a table was computed from uncommitted code.
    """
    here = folder(notebook, profile, "train")
    tables = sorted(file for file in here.glob("*.csv") if file.with_suffix(".json").is_file())
    if not tables:
        raise FileNotFoundError(f"{notebook}, profile {profile}: nothing was computed; execute it with run_mode train.")
    for file in tables:
        commit = provenance.read_json(file.with_suffix(".json"))["commit"]
        if len(commit) != 40:  # -dirty, or unknown
            raise ValueError(f"{file.stem} comes from commit {commit}: commit the code, compute again, then promote.")
    to = folder(notebook, profile, "replay")
    to.mkdir(parents=True, exist_ok=True)
    for file in tables:
        for part in (file, file.with_suffix(".json")):
            shutil.copyfile(part, to / part.name)
    return [file.stem for file in tables]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make computed tables the record.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("promote", help="copy a notebook's tables from outputs/runs to outputs/reference")
    command.add_argument("notebook")
    command.add_argument("profile")
    args = parser.parse_args(argv)
    try:
        for name in promote(args.notebook, args.profile):
            print(f"recorded {name}")
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
