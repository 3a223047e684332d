"""Checkpoints that are whole or absent: model, optimiser, the run's small JSON state, and its history so far.

Random streams depend on the update's index alone, and the learning rate on progress alone. So a resumed run needs
little state beside weights and optimiser: horizon, controllers, the last step KL.

`manifest.json`, written last, lists every file with its size and checksum, and describes the checkpoint's run:
settings, ranks, the start model's content, the problems. A checkpoint of another run is refused, and the message names
what differs. Only tensors and plain values are loaded, so a checkpoint runs no code. The checksums protect against
damage, not against forgery.
"""

import contextlib
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from agpo_core import provenance
from agpo_core.config import FIELDS, ConfigError, TrainConfig
from agpo_core.jobs.folder import FolderError, checksum, damages

FOLDER = "checkpoint"
MANIFEST = "manifest.json"
DAMAGED = "{} is damaged: {}. Restore it from a copy, or delete it to start anew."
HISTORY = ("metrics.jsonl", "samples.jsonl", "warnings.jsonl", "pairs.jsonl")  # the run's lines up to the checkpoint
# Settings that change no number of the updates to come: how often to save, what is read only at the end, and places,
# because their content is compared instead.
PLACES = {"model": "model", "reward_model": "reward_model", "data_dir": "problems"}  # setting -> name of its content
FREE = {"checkpoint_every", "test_problems", "test_samples", *PLACES}
# Classes other than tensors that DeepSpeed saves with its optimiser: plain values, which run no code when loaded.
DEEPSPEED_VALUES = (
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.utils.tensor_fragment.fragment_address",
)


def identity(config: TrainConfig, **contents: str | None) -> dict:
    """A description of the run, which a checkpoint must match to be resumed.

    Args:
        config: all settings.
        contents: fingerprints of the content of places that settings name, such as model="1f…"; None: unknown.
    """
    return {
        "settings": config.to_dict(),
        "numerics_version": provenance.NUMERICS_VERSION,
        "ranks": int(os.environ.get("WORLD_SIZE", 1)),
        "trainer": "deepspeed" if "LOCAL_RANK" in os.environ else "one process",
        "contents": contents,
    }


def save(accelerator: Accelerator, run_dir: Path, state: dict, run: dict | None = None) -> None:
    """Replace the run's checkpoint; a failure in the middle leaves the former one in place.

    Every file is on the disk before the checkpoint takes its name.

    Args:
        accelerator: holds the prepared model and optimiser.
        run_dir: the run's folder.
        state: plain JSON.
        run: what `identity` gave; used on the main process.
    """
    temporary, final = run_dir / f"{FOLDER}.partial", run_dir / FOLDER
    former = run_dir / f"{FOLDER}.former"
    if accelerator.is_main_process:
        shutil.rmtree(temporary, ignore_errors=True)
    accelerator.wait_for_everyone()
    with provenance.explain_full_disk(temporary):
        accelerator.save_state(temporary)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        provenance.write_json(temporary / "state.json", state)
        with provenance.explain_full_disk(temporary):
            for name in HISTORY:
                if (run_dir / name).exists():
                    shutil.copyfile(run_dir / name, temporary / name)
    accelerator.wait_for_everyone()
    files = gather_object(_sync(_share(accelerator, _files(temporary)), temporary))
    if accelerator.is_main_process:
        provenance.write_json(temporary / MANIFEST, sealed(run, dict(files)))
        provenance.sync_folders(temporary)
        shutil.rmtree(former, ignore_errors=True)
        if final.exists():
            final.rename(former)
        temporary.rename(final)
        provenance.sync_folders(run_dir)
        shutil.rmtree(former, ignore_errors=True)
    accelerator.wait_for_everyone()


def load(accelerator: Accelerator, run_dir: Path, run: dict | None = None) -> dict | None:
    """Restore the latest undamaged checkpoint, and the run's logged lines up to it.

    If the latest is damaged and the one before it still exists, that one is used, and a line says so.

    Args:
        accelerator: holds the prepared model and optimiser.
        run_dir: the run's folder.
        run: what `identity` gave; used on the main process. None: a checkpoint of any run is accepted.
    Returns:
        The checkpoint's state, with its horizon as "extended_from" if that was shorter; None when there is no
        checkpoint.
    Raises:
        FolderError: the checkpoint is damaged.
        ConfigError: the checkpoint is of another run: a setting, the ranks, the model or a problem differs.
    """
    folder = _choose(accelerator, run_dir)
    extended = None
    with _told_to_all(accelerator):
        if accelerator.is_main_process:
            if folder and run is not None:
                extended = refuse_another(run_dir, run)
            for name in HISTORY:
                _restore(run_dir / FOLDER / name, run_dir / name)
    if folder is None:
        return None
    with _weights_only():
        try:
            accelerator.load_state(folder)
        except pickle.UnpicklingError as error:
            raise FolderError(
                f"{folder} holds Python objects other than weights, which could run code when they are loaded: "
                "it is not loaded. Take a checkpoint of your own, or delete the folder to start anew."
            ) from error
    state = provenance.read_json(folder / "state.json")
    return state if extended is None else {**state, "extended_from": extended}


def refuse_another(run_dir: Path, run: dict) -> float | None:
    """Raise if the checkpoint belongs to another run.

    A longer horizon alone does not make another run: the run goes on to the longer horizon.

    Args:
        run_dir: the run's folder.
        run: what `identity` gave.
    Returns:
        The checkpoint's horizon if it was shorter; None if it was not, or if there is no checkpoint.
    Raises:
        ConfigError: something differs; the message names it, with both values and the remedy.
        FolderError: the checkpoint does not say of which run it is.
    """
    manifest = _manifest(run_dir / FOLDER) or _manifest(run_dir / f"{FOLDER}.former")
    if manifest is None and (run_dir / FOLDER).exists():
        raise FolderError(DAMAGED.format(run_dir / FOLDER, f"{MANIFEST} is missing or damaged"))
    saved = (manifest or {}).get("run")
    if saved is None:
        return None
    then = TrainConfig().to_dict() | saved["settings"]  # a setting added after the checkpoint: its default
    now = run["settings"]
    horizons = then["horizon"], now["horizon"]
    differ = [
        f"{name} {then[name]!r} → {now.get(name, 'no longer known')!r}"
        for name in then
        if name not in FREE and then[name] != now.get(name) and not (name == "horizon" and horizons[0] < horizons[1])
    ]
    for name in ("numerics_version", "trainer", "ranks"):
        if saved[name] != run[name]:
            differ.append(f"{name} {saved[name]} → {run[name]}")
    for place, name in PLACES.items():
        former, content = saved["contents"].get(name), run["contents"].get(name)
        if former and content and former != content:
            where = f" of {now[name]}" if name in FIELDS else ""
            differ.append(f"{name}: the content{where} is another ({former} → {content})")
        elif name in run["contents"] and None in (former, content) and then[place] != now[place]:
            differ.append(f"{place} {then[place]!r} → {now[place]!r}")  # nothing to compare but the names
    if not differ:
        return horizons[0] if horizons[0] < horizons[1] else None
    raise ConfigError(
        f"{run_dir.name}: its checkpoint was made with other settings: {'; '.join(differ)}. Put them back to go on "
        "(a longer horizon may stay), or take a new folder, or delete its checkpoint and run.json to start anew."
    )


def _choose(accelerator: Accelerator, run_dir: Path) -> Path | None:
    """The newest undamaged checkpoint; the remains of all others are removed."""
    former, leftover = run_dir / f"{FOLDER}.former", run_dir / f"{FOLDER}.partial"
    for folder in (run_dir / FOLDER, former):
        if not folder.exists():
            continue
        listed = None if (manifest := _manifest(folder)) is None else manifest["files"]
        mine = [(name, listed[name]) for name in _share(accelerator, sorted(listed))] if listed else []
        found = gather_object(damages(folder, dict(mine)))
        if listed is None:
            found = [f"{MANIFEST} is missing or damaged"]
        if not found:
            break
        if folder == former or not _manifest(former):
            raise FolderError(DAMAGED.format(folder, "; ".join(found)))
        if accelerator.is_main_process:
            print(f"{folder} is damaged: {'; '.join(found)}. The checkpoint before it is used.", flush=True)
    else:
        folder = None
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        if folder == former:
            shutil.rmtree(run_dir / FOLDER, ignore_errors=True)
            former.rename(run_dir / FOLDER)
        for rest in (former, leftover):
            shutil.rmtree(rest, ignore_errors=True)
    accelerator.wait_for_everyone()
    return folder and run_dir / FOLDER


def _manifest(folder: Path) -> dict | None:
    """A checkpoint's manifest; None where it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        manifest = provenance.read_json(folder / MANIFEST)
        if manifest == sealed(manifest["run"], manifest["files"]):
            return manifest
    return None


def sealed(run: dict | None, files: dict[str, list]) -> dict:
    """The content of a manifest with its own checksum, so that a damaged setting is not mistaken for another value.

    Args:
        run: what `identity` gave.
        files: {path in the checkpoint: [bytes, checksum]}.
    """
    content = {"run": run, "files": files}
    text = json.dumps(content, sort_keys=True)
    return {**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _share(accelerator: Accelerator, items: list) -> list:
    """This rank's share of a list of files to read: all ranks see the same folder."""
    return items[accelerator.process_index :: accelerator.num_processes]


def _sync(files: list[Path], folder: Path) -> list[tuple[str, list]]:
    """Write files through to the disk; returns (path in the folder, [bytes, checksum]) of each."""
    for path in files:
        provenance.sync(path)
    return [(path.relative_to(folder).as_posix(), [path.stat().st_size, checksum(path)]) for path in files]


def _restore(kept: Path, path: Path) -> None:
    """Set a file of lines back to its content at the checkpoint; the run then writes the later lines again."""
    lines = kept.read_bytes() if kept.exists() else b""
    found = path.read_bytes() if path.exists() else b""
    if not found.startswith(lines):
        print(f"{path} lost or changed lines from before the checkpoint: it is restored from there.", flush=True)
    if found != lines:
        provenance.write_bytes(path, lines)


@contextlib.contextmanager
def _told_to_all(accelerator: Accelerator):
    """Raise on every rank what the main process raises in this block, so that no rank waits for it in vain."""
    error = None
    try:
        yield
    except Exception as raised:
        error = raised
    (error,) = broadcast_object_list([error])
    if error is not None:
        raise error


@contextlib.contextmanager
def _weights_only():
    """Let torch load only tensors and plain values, even where a library asks for whole pickles."""
    import importlib

    allowed = []
    if "LOCAL_RANK" in os.environ:
        for name in DEEPSPEED_VALUES:
            module, _, kind = name.rpartition(".")
            allowed.append(getattr(importlib.import_module(module), kind))
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        with torch.serialization.safe_globals(allowed):
            yield
    finally:
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before
