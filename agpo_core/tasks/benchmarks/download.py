"""Copies a benchmark from the hub into files that `data_dir` can name."""

from __future__ import annotations

import json
from pathlib import Path

from agpo_core.provenance import explain_full_disk
from agpo_core.settings import unknown
from agpo_core.tasks.benchmarks.loader import copied
from agpo_core.tasks.benchmarks.sources import from_hub
from agpo_core.tasks.benchmarks.table import LISTED


def download(name: str, to: Path) -> list[Path]:
    """Write each split that the hub has into the benchmark's folder below `to`, one record on each line.

    Args:
        name: name of a benchmark in the table.
        to: the folder of all benchmarks' folders; it is made if it does not exist.
    Returns:
        The files, all complete; a file that exists already is left as it is.
    Raises:
        ValueError: there is no such benchmark, the hub has nothing of it, or it is read by a loader of its own.
        ConnectionError: the hub cannot be read.
    """
    if name not in LISTED:
        hint = unknown(name, LISTED, f"choose from {', '.join(LISTED)}.")
        raise ValueError(f"unknown benchmark {name!r}: {hint}")
    benchmark = LISTED[name]
    splits = [split for split in benchmark.hub if copied(benchmark, split)]
    if not splits:
        raise ValueError(f"{name}: there is nothing to copy from the hub; get {benchmark.release or 'its release'}.")
    folder = Path(to).expanduser() / (benchmark.folders[0] if benchmark.folders else name)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split in splits:
        (layout,) = copied(benchmark, split)
        file = folder / layout.patterns[0]
        if not file.is_file():
            lines = [
                json.dumps(dict(row), ensure_ascii=False)
                for row, _ in from_hub(name, benchmark.hub[split], benchmark.release)
            ]
            part = file.with_suffix(".partial")
            with explain_full_disk(file):
                part.write_text("\n".join(lines) + "\n", encoding="utf-8")
            part.replace(file)
        written.append(file)
    return written
