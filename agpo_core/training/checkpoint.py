"""Checkpoints that are whole or absent: model, optimiser and the run's small JSON state.

Random streams are functions of the update's index, and the learning rate of progress, so the state that a resumed run
needs beside weights and optimiser is small: horizon, controllers, the last step KL.
"""

import shutil
from pathlib import Path

from accelerate import Accelerator

from agpo_core import provenance

FOLDER = "checkpoint"


def save(accelerator: Accelerator, run_dir: Path, state: dict) -> None:
    """Replace the run's checkpoint; a failure in the middle leaves the former one in place.

    Args:
        accelerator: holds the prepared model and optimiser.
        run_dir: the run's folder.
        state: plain JSON.
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
        shutil.rmtree(former, ignore_errors=True)
        if final.exists():
            final.rename(former)
        temporary.rename(final)
        shutil.rmtree(former, ignore_errors=True)
    accelerator.wait_for_everyone()


def load(accelerator: Accelerator, run_dir: Path) -> dict | None:
    """Restore the latest whole checkpoint; returns its state, or None when there is none."""
    for name in (FOLDER, f"{FOLDER}.former"):
        folder = run_dir / name
        if (folder / "state.json").exists():
            accelerator.load_state(folder)
            return provenance.read_json(folder / "state.json")
    return None
