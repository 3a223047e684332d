"""Run folders as the training loop would leave them, with invented numbers, written at once."""

import copy
import json
import math
import random
import zlib
from pathlib import Path

import pytest

from agpo_core import paths, provenance, recipes
from agpo_core.config import NUMERICS_VERSION
from agpo_core.experiments import grid, profiles
from agpo_core.jobs import launch

LEVELS = {"tiny-qwen2-a": 0.36, "tiny-qwen2-b": 0.40}  # invented scores of the starts
TOKENS = 1500  # invented tokens of an update's phase


def write_run(folder: Path, status: str = "finished", commit: str = "c0ffee") -> None:
    """An invented run for the settings in `folder`: 0.36 or 0.40 before training, about 0.5 after."""
    config = recipes.load(folder / "config.yaml")
    rng = random.Random(zlib.crc32(config.hash().encode()))
    phases = 2 if config.needs_probe else 1
    updates = config.horizon
    if config.horizon_unit == "tokens":
        updates = math.ceil(config.horizon / (phases * TOKENS))
    updates = int(updates)
    start = LEVELS.get(config.model, 0.3)
    gain = 0.15 * (1 - math.exp(-updates / 30)) + rng.gauss(0, 0.008)
    baseline = 0.0
    for update in range(1, updates + 1):
        done = update / updates
        entropy = 0.55 - 0.3 * done + rng.gauss(0, 0.01)
        uncertainty = 1.4 - 0.3 * done + rng.gauss(0, 0.03)
        row = {
            "update": update,
            "progress": done,
            "tokens_train": update * TOKENS,
            "tokens_probe": update * TOKENS * (phases - 1),
            "seconds": 0.5 * phases * update,
            "reward": start + gain * done,
            "tau": 1.0,
            "entropy": entropy,
            "clip_fraction": 0.03,
        }
        row["grad_norms"] = [abs(rng.gauss(1, 0.1)) for _ in range(8)]
        if config.temperature == "adaptive":
            row |= {
                "uncertainty": uncertainty,
                "uncertainty_baseline": baseline,
                "uncertainty_train": uncertainty + 0.05,
            }
            row["tau"] = 1 + 0.15 * (uncertainty - baseline)
            baseline = 0.95 * baseline + 0.05 * uncertainty
        raw = config.epsilon_base
        if config.clip == "adaptive":
            raw *= (entropy if config.clip_entropy == "raw" else 1.0) * 0.8
        epsilon = min(max(raw, config.epsilon_min), config.epsilon_max)
        row |= {"epsilon": epsilon, "epsilon_raw": raw, "epsilon_at_bound": float(epsilon != raw)}
        provenance.append_jsonl(folder / "metrics.jsonl", row)

    def point(update, problems):
        macro = start + gain * update / max(updates, 1)
        wobble = [rng.gauss(0, 0.02) for _ in config.tasks]
        mean = sum(wobble) / len(wobble)
        score = {t: macro + w - mean for t, w in zip(config.tasks, wobble, strict=True)}
        return {
            "progress": update / updates if updates else 1.0,
            "update": update,
            "tokens": update * TOKENS * phases,
            "score": score,
            "macro": macro,
            "problems": problems,
        }

    at = sorted({0, updates // 4, updates // 2, 3 * updates // 4, updates})
    dev = [point(update, config.dev_problems) for update in at]
    test = point(updates, config.test_problems)
    provenance.write_json(folder / "eval.json", {"dev": dev, "test": test})
    record = {
        "status": status,
        "command": "python -m agpo_core.training.train --run-dir outputs/runs/" + folder.name,
        "commit": commit,
        "python": "3.11.2",
        "versions": {"torch": "2.13.0"},
        "hardware": {"cpu": "an invented CPU", "cores": 2, "gpus": []},
        "method": config.method,
        "seed": config.seed,
        "hash": config.hash(),
        "numerics_version": NUMERICS_VERSION,
        "started": "2026-01-01T00:00:00.000+00:00",
        "finished": "2026-01-01T00:01:00.000+00:00",
        "seconds": 60.0,
        "memory_mb": 100.0,
        "exit_status": 0,
    }
    provenance.write_json(folder / "run.json", record)
    if config.method == "agpo":
        line = {
            "update": 10,
            "rule": "radius_is_pinned",
            "warning": "the clip radius lay at epsilon_min in 60% of updates.",
        }
        provenance.append_jsonl(folder / "warnings.jsonl", line)


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Outputs and reference in a temporary folder, and a launcher that only writes run folders.

    The value is the list of calls: the names of the runs that each was asked to bring to an end.
    """
    return invent(monkeypatch, tmp_path)


def invent(patch: pytest.MonkeyPatch, place: Path) -> list[list[str]]:
    """See `launched`."""
    calls = []

    def fake_launch(run_dirs, **options):
        calls.append([folder.name for folder in run_dirs])
        for folder in run_dirs:
            write_run(folder)

    patch.setenv("AGPO_OUTPUTS", str(place / "outputs"))
    patch.setattr(paths, "reference", lambda: place / "reference")
    patch.setattr(launch, "launch", fake_launch)
    return calls


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The results of an invented grid, by experiment and parameters; made once per file, with a copy for each test."""
    made = {}

    def results(experiment: str, params: dict):
        key = json.dumps([experiment, params], sort_keys=True)
        if key not in made:
            with pytest.MonkeyPatch.context() as patch:
                invent(patch, tmp_path_factory.mktemp("invented"))
                made[key] = grid.run(experiment, params)
        return copy.deepcopy(made[key])

    return results


@pytest.fixture
def params():
    """The tiny profile in train mode, short."""
    return profiles.settings("none", "tiny") | {"run_mode": "train", "horizon": 30_000.0}
