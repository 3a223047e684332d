"""Reads the rows of a release from its files or from the hub, each with its place.

The readers are strict: the first error raises `ValueError` with file and line. Callers use all rows or none.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agpo_core.files import text_of
from agpo_core.tasks.benchmarks.schemas import Schema

Rows = Iterable[tuple[object, str]]  # row, and "file, line n"


class Incomplete(FileNotFoundError):
    """Some files of a split exist and others are missing."""


@dataclass(frozen=True)
class Files:
    """The files of one split; every pattern must match at least one file."""

    patterns: tuple[str, ...]
    read: Callable[[Path], Rows]
    schema: Schema


@dataclass(frozen=True)
class Hub:
    """One split of a data set on the hub; several configurations are read one after the other."""

    id: str
    split: str
    schema: Schema | None = None  # None: the task reads the rows itself
    configs: tuple[str | None, ...] = (None,)
    data_files: str | None = None  # the files of this data set, in a repository with several
    columns: tuple[str, ...] | None = None  # the columns that are read; None: all


def official_folder(data_dir: str | Path | None, release: str, hub_id: str | None, own: str = "") -> Path | None:
    """The folder of a task's official files; None: they come from the hub.

    Args:
        data_dir: the folder that was asked for, or None.
        release, hub_id: for the message: the files in words, and their id on the hub.
        own: name of the task's own folder, if `data_dir` has a folder for each of several benchmarks.
    Raises:
        FileNotFoundError: there is no such folder.
    """
    if data_dir is None:
        return None
    folder = Path(data_dir).expanduser()
    if own and (folder / own).is_dir():
        folder = folder / own
    if not folder.is_dir():
        or_hub = f", or null for the hub's {hub_id}" if hub_id else ""
        raise FileNotFoundError(f"data_dir: no folder {str(folder)!r}; give one with {release}{or_hub}")
    return folder


def jsonl(path: Path) -> Rows:
    """Rows with one JSON value on each line. Only a newline ends a line: a text may contain Unicode's other ends."""
    lines = text_of(path).split("\n")
    if not lines[-1].strip():
        lines.pop()
    return [(_json(line, f"{path}, line {number}"), f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _json(text: str, where: str):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of more digits than Python converts
        raise ValueError(f"{where} is not JSON ({error or type(error).__name__})") from error


def _json_file(path: Path):
    text = text_of(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno} is not JSON ({error.msg}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error})") from error


def json_object(path: Path) -> Rows:
    """The one record of a file."""
    return [(_json_file(path), str(path))]


def json_array(path: Path) -> Rows:
    """The records of a file that contains a list of them."""
    rows = _json_file(path)
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds a {type(rows).__name__} instead of a list of records")
    return [(row, f"{path}, record {index}") for index, row in enumerate(rows)]


def parquet(path: Path, columns: tuple[str, ...] | None = None, at_once: int = 65_536) -> Rows:
    """The rows of a parquet file, read `at_once` at a time, because DAPO's file has each prompt a hundred times."""
    import pyarrow
    import pyarrow.parquet

    index = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(at_once, columns=columns and list(columns)):
            for row in batch.to_pylist():
                yield row, f"{path}, row {index}"
                index += 1
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as parquet ({str(error).splitlines()[0]})") from error


def _csv(path: Path) -> list[tuple[list[str], int]]:
    """The rows of a CSV file, each with the line on which it ends."""
    reader = csv.reader(io.StringIO(text_of(path), newline=""), strict=True)
    rows = []
    try:
        for row in reader:
            rows.append((row, reader.line_num))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num} is not CSV ({error})") from error
    return rows


def mmlu_csv(path: Path) -> Rows:
    """The rows of an MMLU file, without a header: question, four options, a letter; the file name has the subject."""
    subject = path.stem.rpartition("_")[0]
    rows = []
    for row, line in _csv(path):
        if len(row) != 6:
            raise ValueError(f"{path}, line {line} has {len(row)} columns instead of 6")
        question, *options, answer = row
        record = {"question": question, "choices": options, "answer": answer, "subject": subject}
        rows.append((record, f"{path}, line {line}"))
    return rows


def matharena(path: Path) -> Rows:
    """The problems of a MathArena competition, given its answers.csv.

    Every answer needs a file problems/<id>.tex, and config.yaml, if it exists, must say the same number of problems.
    """
    import yaml

    header, *answers = _csv(path)
    seen = set()
    if header[0] != ["id", "answer"]:
        raise ValueError(f"{path}, line 1 has the columns {', '.join(header[0])} instead of id, answer")
    rows = []
    for row, line in answers:
        if len(row) != 2:
            raise ValueError(f"{path}, line {line} has {len(row)} columns instead of 2")
        problem = path.parent / "problems" / f"{row[0]}.tex"
        if not row[0].isdigit() or not problem.is_file():
            raise ValueError(f"{path}, line {line} names the problem {row[0]!r}, and {problem} is not there")
        if int(row[0]) in seen:
            raise ValueError(f"{path}, line {line} names the problem {row[0]!r} for the second time")
        seen.add(int(row[0]))
        rows.append(({"problem": text_of(problem), "answer": row[1]}, f"{path}, line {line}"))
    config = path.parent / "config.yaml"
    if config.is_file():
        try:
            expected = yaml.safe_load(text_of(config))["n_problems"]
        except (yaml.YAMLError, TypeError, KeyError) as error:
            raise ValueError(f"{config} is not YAML with a field `n_problems` ({type(error).__name__})") from error
        if expected != len(rows):
            raise ValueError(f"{path} has {len(rows)} answers, and {config.name} says {expected}")
    return rows


_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})")


def all_shards(paths: list[Path]) -> list[Path]:
    """The paths, after a check that no set of numbered files (train-00000-of-00002…) lacks one.

    Raises:
        Incomplete: a file is missing; the message names the first.
    """
    parts: dict[tuple[Path, str, str], set[int]] = {}
    for path in paths:
        if match := _SHARD.match(path.name):
            name, number, total = match.groups()
            parts.setdefault((path.parent, name, total), set()).add(int(number))
    for (folder, name, total), numbers in parts.items():
        if missing := set(range(int(total))) - numbers:
            raise Incomplete(
                f"data_dir: {str(folder)!r} has {len(numbers)} of the {int(total)} files of {name}, and not "
                f"{name}-{min(missing):05}-of-{total}"
            )
    return paths


def from_hub(name: str, hub: Hub, release: str) -> Rows:
    """The rows of a split on the hub.

    Raises:
        ConnectionError: the hub cannot be read and no copy is cached.
    """
    from datasets import load_dataset

    found = []
    for config in hub.configs:
        arguments = [hub.id] if config is None else [hub.id, config]
        keywords = {} if hub.data_files is None else {"data_files": {hub.split: hub.data_files}}
        try:
            rows = load_dataset(*arguments, split=hub.split, **keywords)
            if hub.columns is not None:
                rows = rows.select_columns(list(hub.columns))
        except Exception as error:  # the client raises a dozen types; all mean that the data cannot be had
            raise ConnectionError(
                f"{name}: the hub's {hub.id} cannot be read ({type(error).__name__}); go online, or set data_dir to a "
                f"folder with {release}"
            ) from error
        found.append((rows, " ".join(filter(None, (hub.id, config, hub.split)))))
    return ((row, f"{place}, row {index}") for rows, place in found for index, row in enumerate(rows))
