"""Reads the records of a benchmark, as its entry in the table says."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from agpo_core import grading
from agpo_core.tasks.benchmarks.schemas import Malformed, Record, Schema
from agpo_core.tasks.benchmarks.sources import Files, Incomplete, Rows, all_shards, from_hub, jsonl
from agpo_core.tasks.benchmarks.table import LISTED, Benchmark

MAX_PLAIN = 200  # characters; a formula up to this length is taken to be readable without trying

_log = logging.getLogger(__name__)


def load(benchmark: Benchmark, split: str, data_dir: Path | None) -> tuple[Record, ...]:
    """All records of an official split, from the files in `data_dir`, or from the hub where that is None.

    Raises:
        FileNotFoundError, ValueError: a file is missing, unreadable, empty or another benchmark's, or a record is not
            in its schema; the message names file and line. No part of a split is returned.
        ConnectionError: the hub cannot be read.
    """
    if data_dir is None:
        if split not in benchmark.hub:
            raise ValueError(
                f"{benchmark.name}: the {split} split is not on the hub; set data_dir to a folder with "
                f"{benchmark.release}"
            )
        source, origin, remedy = benchmark.hub[split], benchmark.name, "set data_dir to a folder with"
        place = source.id
        rows = from_hub(benchmark.name, source, benchmark.release)
    else:
        (paths, source), origin, remedy = _find(benchmark, split, data_dir), "data_dir", "give"
        place = paths[0] if len(paths) == 1 else data_dir
        rows = (row for path in paths for row in source.read(path))
    try:
        found = list(_records(benchmark, split, rows, source.schema))
        if not found:
            raise ValueError(f"the {split} split of {benchmark.name} has no record")
        refuse_more(benchmark.name, split, len(found), benchmark.sizes.get(split), place)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}; {remedy} {benchmark.release}") from error
    return tuple(found)


def refuse_more(name: str, split: str, here: int, whole: int | None, place: object) -> None:
    """Raise ValueError if there are more records than the official split has, since some must then be foreign.

    Args:
        name, split: the benchmark and its split.
        here, whole: the numbers of records that were read and of the official split (None: not known).
        place: the file, folder or hub id of the records.
    """
    if whole is not None and here > whole:
        raise ValueError(
            f"{place} has {here} {split} records and the official {name} has {whole}: they are another benchmark's, or "
            "not as released"
        )


def warn_of_a_part(name: str, here: int, whole: int, stacklevel: int = 3) -> None:
    """Warn if only a part of the official test split was read."""
    if here < whole:
        warnings.warn(
            f"{name}: {here} test records are here and the official split has {whole}: a score on them is not the "
            "benchmark's.",
            stacklevel=stacklevel,
        )


def _records(benchmark: Benchmark, split: str, rows: Rows, schema: Schema) -> Iterable[Record]:
    """The records of the rows; one for each question if the benchmark is deduplicated.

    A record whose gold no rule can read is an error. Only in a training split whose golds may be of any kind is it left
    out, with a line in the log and one warning for all.
    """
    records = _readable_records(benchmark, split, rows, schema)
    return _deduplicated(records, benchmark.name) if benchmark.deduplicated else records


def _readable_records(benchmark: Benchmark, split: str, rows: Rows, schema: Schema) -> Iterable[Record]:
    left_out = 0
    for row, where in rows:
        try:
            record = schema(row)
        except Malformed as error:
            raise ValueError(f"{where} {error}") from error
        wrong = fault(record.answer, benchmark)
        if wrong is None:
            yield record
        elif split == "train" and benchmark.golds is None:
            left_out += 1
            _log.info("%s: left out %s: the answer %r cannot be graded", benchmark.name, where, record.answer)
        else:
            raise ValueError(f"{where} has the answer {record.answer!r}, {wrong}")
    if left_out:
        warnings.warn(
            f"{benchmark.name}: {left_out} train records are left out, because no rule can read their answers; the "
            "log names them.",
            stacklevel=2,
        )


def fault(answer: str, benchmark: Benchmark) -> str | None:
    """The reason why a gold cannot be right, in words; None if it can be."""
    if benchmark.golds is not None:
        words, pattern = benchmark.golds
        return None if re.fullmatch(pattern, grading.canonical(answer, benchmark.profile) or "") else f"not {words}"
    if benchmark.profile is None or _readable(answer, benchmark.profile):
        return None
    return f"which the rules of {benchmark.profile} cannot read"


def _find(benchmark: Benchmark, split: str, data_dir: Path) -> tuple[list[Path], Files]:
    """The files of a split, in the first layout of which a file exists; then all files of that layout must exist.

    The benchmark's own folder below `data_dir` is tried before `data_dir` itself, where a file of another benchmark may
    have the same name. The folder of another benchmark with files of the same names is refused.
    """
    for layout in (*benchmark.files.get(split, ()), *copied(benchmark, split)):
        for folder in (*benchmark.folders, "."):
            found = [(pattern, _in_order((data_dir / folder).glob(pattern))) for pattern in layout.patterns]
            missing = [pattern for pattern, paths in found if not paths]
            if len(missing) == len(found):
                continue
            if missing:
                raise Incomplete(
                    f"data_dir: {str(data_dir / folder)!r} has a part of the {split} split of {benchmark.name}, and "
                    f"not {', '.join(missing)}; give all of {benchmark.release}"
                )
            if folder == ".":
                refuse_folder_of_another(benchmark, layout.patterns, data_dir)
            return all_shards([path for _, paths in found for path in paths]), layout
    raise FileNotFoundError(
        f"data_dir: {str(data_dir)!r} has no {split} split of {benchmark.name}; give {benchmark.release}"
    )


def copied(benchmark: Benchmark, split: str) -> tuple[Files, ...]:
    """The layout in which `download` writes a split of the hub; empty if the hub's rows have no schema."""
    hub = benchmark.hub.get(split)
    return (Files((f"{benchmark.name}-{split}-from-hub.jsonl",), jsonl, hub.schema),) if hub and hub.schema else ()


def refuse_folder_of_another(benchmark: Benchmark, patterns: Iterable[str], data_dir: Path) -> None:
    """Refuse a folder that has the name of exactly one benchmark, if that is another one with files of these names.

    Raises:
        FileNotFoundError: it is such a folder; the message names the other benchmark.
    """
    called = {Path(os.path.abspath(data_dir)).name, data_dir.resolve().name}
    owners = [b for b in LISTED.values() if not called.isdisjoint(Path(folder).name for folder in b.folders)]
    if len(owners) != 1 or owners[0].name == benchmark.name:
        return
    theirs = {pattern for layouts in owners[0].files.values() for files in layouts for pattern in files.patterns}
    if not theirs.isdisjoint(patterns):
        raise FileNotFoundError(
            f"data_dir: {str(data_dir)!r} is the folder of {owners[0].name}, whose files have the names of "
            f"{benchmark.name}'s; give the folder above it, or {benchmark.name}'s own"
        )


def _in_order(paths) -> list[Path]:
    """The paths in order; numbered files in the order of their numbers."""
    return sorted(paths, key=lambda path: (len(path.stem), path.stem) if path.stem.isdigit() else (0, path.stem))


def _readable(answer: str, profile: str) -> bool:
    """Whether grading can use a gold. Only long formulas are tried, because every short one equals itself."""
    if grading.get_profile(profile).symbolic and len(answer) <= MAX_PLAIN and any(map(str.isalnum, answer)):
        return True
    return grading.read(answer, profile) is not None


def _deduplicated(records: Iterable[Record], name: str) -> list[Record]:
    """One record for each question (blanks do not count), in order; a question with two answers is left out."""
    first: dict[str, Record] = {}
    contradicted, total = set(), 0
    for total, record in enumerate(records, start=1):
        key = " ".join(record.question.split())
        if first.setdefault(key, record).answer != record.answer:
            contradicted.add(key)
    if contradicted:
        _log.info("%s: left out %d questions that come with different answers", name, len(contradicted))
    if len(first) < total:
        _log.info("%s: %d records are %d different questions", name, total, len(first))
    return [record for key, record in first.items() if key not in contradicted]


def draw(question: str, parts: int) -> int:
    """A number in [0, parts) that depends on the question alone, not on its place; held-out splits are made by it."""
    digest = hashlib.sha256(" ".join(question.split()).encode()).digest()
    return int.from_bytes(digest[:8], "big") % parts
