"""The folder of the benchmarks' official files, which some tests read; none is shipped."""

import os
from pathlib import Path

import pytest

# It has a folder for each benchmark; by default it is beside the repository.
DATA = Path(os.environ.get("AGPO_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data").expanduser()

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="AGPO_DATA names no folder of official files (see agpo_core/tasks/README.md)"
)
