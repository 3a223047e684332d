"""A run's folder: which process may write into it, and whether its files are complete.

`run.json` has the state of a run. At the end of the run it lists every file of the result with size and checksum. A run
is finished when `run.json` says so and all these files are there.
"""

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

from agpo_core import provenance, recipes
from agpo_core.config import ConfigError
from agpo_core.jobs.supervise import GRACE
from agpo_core.model_files import model_fingerprint

LOCK = ".lock"
STATUSES = ("running", "interrupted", "failed", "finished")
WRITTEN = ("run.json", "metrics.jsonl", "eval.json", "samples.jsonl", "warnings.jsonl", "pairs.jsonl",
           "decontamination.json", "train.log", LOCK)  # fmt: skip
FOLDERS = ("checkpoint", "policy")  # while one is replaced, a .partial and a .former stand beside it


class FolderError(RuntimeError):
    """A run's folder is in use, damaged, or another run's; the message names the file and the remedy."""


@contextlib.contextmanager
def locked(run_dir: Path):
    """A context that lets only one process at a time train in a folder, however the process was started.

    The lock ends with its process, however the process ends. On a file system without locks nothing is locked.

    Raises:
        FolderError: another process trains in the folder, or it cannot be written; nothing was written.
    """
    refuse_obstacles(run_dir)
    with open(run_dir / LOCK, "a+", encoding="utf-8") as file:
        _lock(file, run_dir)
        file.truncate(0)
        file.write(str(os.getpid()))  # for the message that a second process gets
        file.flush()
        yield


def refuse_if_used(run_dir: Path) -> None:
    """Raise a FolderError if another process trains in a folder, or if it cannot be written."""
    refuse_obstacles(run_dir)
    with contextlib.suppress(FileNotFoundError), open(run_dir / LOCK, "r+", encoding="utf-8") as file:
        _lock(file, run_dir)


def refuse_obstacles(run_dir: Path) -> None:
    """Raise a FolderError, before anything is trained, if a file or folder of a run could not be written.

    That is so if the run's folder is read-only, if a file is in the place of a folder or a folder in that of a file, or
    if a file may not be read and written.
    """
    run_dir = Path(run_dir)
    if not os.access(run_dir, os.R_OK | os.W_OK | os.X_OK):
        raise FolderError(f"{run_dir} cannot be written: get the permission to write there, or use a new folder.")
    for path in [run_dir / name for name in WRITTEN]:
        _refuse_no_file(path)
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise FolderError(f"{path} cannot be read and written: get the permission to do so, or move it away.")
        if path.with_name(path.name + ".tmp").is_dir():
            raise FolderError(f"{path}.tmp is a folder, and the run writes a file there: move it away.")
    for path in [run_dir / (name + end) for name in FOLDERS for end in ("", ".partial", ".former")]:
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            raise FolderError(f"{path} is no folder of this run but a file or a link: move it away, or link {run_dir}.")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise FolderError(f"{path} cannot be read and written: get the permission to do so, or move it away.")


def _refuse_no_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise FolderError(f"{path} is no file, and the run needs a file there: move it away.")


def _lock(file, run_dir: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        raise FolderError(in_use(run_dir, f"process {file.read().strip() or '?'}")) from None
    except OSError:  # a file system without locks
        pass


def in_use(run_dir: Path, who: str) -> str:
    """The message for a process that finds the folder in use by `who`."""
    return (
        f"{run_dir} is being trained by {who}: wait for it or end it, then try again. A run whose launcher was ended "
        f"stops by itself after its current update, at most {GRACE:.0f} s later."
    )


def read_record(run_dir: Path) -> dict | None:
    """The content of run.json; None if the file does not exist.

    Raises:
        FolderError: the file is not the record of a run.
    """
    path = Path(run_dir) / "run.json"
    if not path.exists():
        return None
    _refuse_no_file(path)
    try:
        record = provenance.read_json(path)
    except ValueError as error:
        raise FolderError(str(error)) from error
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror}): make it readable, or move it away.") from error
    files = record.get("files", {}) if isinstance(record, dict) else None
    whole = isinstance(files, dict) and all(isinstance(entry, list) and len(entry) == 2 for entry in files.values())
    if not whole or record.get("status") not in STATUSES:
        raise FolderError(
            f"{path} is damaged (it is no record with a status): delete it and run again; the run goes on from its "
            "checkpoint."
        )
    return record


def inventory(run_dir: Path) -> dict[str, list]:
    """The files that a finished run leaves: {path in the folder: [bytes, checksum]}."""
    run_dir = Path(run_dir)
    files = [run_dir / "metrics.jsonl", run_dir / "eval.json", *sorted((run_dir / "policy").rglob("*"))]
    return {
        file.relative_to(run_dir).as_posix(): [file.stat().st_size, checksum(file)] for file in files if file.is_file()
    }


def damages(folder: Path, listed: dict, checksums: bool = True) -> list[str]:
    """The listed files that are not as they were written, one phrase for each.

    Args:
        folder: the run's folder.
        listed: as `inventory` gives it.
        checksums: whether to read the files and compare checksums; if not, only sizes are compared.
    """
    found = []
    for name, (size, digest) in listed.items():
        path = Path(folder) / name
        try:
            if not path.is_file():
                found.append(f"{name} is missing")
            elif path.stat().st_size != size:
                found.append(f"{name} has {path.stat().st_size} bytes, not {size}")
            elif checksums and checksum(path) != digest:
                found.append(f"{name} does not have the content that was written")
        except OSError as error:
            found.append(f"{name} cannot be read ({error.strerror})")
    return found


def is_finished(run_dir: Path) -> bool:
    """Whether the run in this folder is complete and still belongs to its settings and its start model.

    It is if its record says so, every file of the result has its size, and neither config.yaml nor the model's files
    were changed since.

    Raises:
        FolderError: run.json is damaged.
    """
    record = read_record(run_dir)
    if record is None or record["status"] != "finished":
        return False
    if damages(run_dir, record.get("files", {}), checksums=False):
        return False
    if "model_fingerprint" not in record:  # recorded before models had one
        return True
    try:
        config = recipes.load(Path(run_dir) / "config.yaml")
    except ConfigError:
        return False
    now = model_fingerprint(config.model)
    return config.hash() == record.get("hash") and now in (None, record["model_fingerprint"])


def checksum(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
