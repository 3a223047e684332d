"""Recorded runs are still what the code computes, or NUMERICS_VERSION says that they are not."""

import pytest

from agpo_core import provenance
from agpo_core.config import NUMERICS_VERSION
from agpo_core.experiments import grid, records
from agpo_core.training.train import train

EXPERIMENT, PROFILE, UPDATES = "agpo_table1_main_results", "tiny", 2
RECORD = records.load(EXPERIMENT, PROFILE)
pytestmark = [pytest.mark.skipif(RECORD is None, reason="there is no record of the tiny profile")]
if RECORD is not None:
    RECORDED = RECORD.meta["numerics_version"]
    pytestmark.append(
        pytest.mark.skipif(
            RECORDED != [NUMERICS_VERSION],
            reason=f"the record is of numerics version {RECORDED}, the code of {NUMERICS_VERSION}: record anew",
        )
    )


def recorded_jobs(arm):
    """The jobs of the recorded parameters that give a recorded hash."""
    runs = RECORD.runs[RECORD.runs["arm"] == arm].drop_duplicates("hash")
    params = RECORD.meta["params"] | {"run_mode": "train", "methods": [arm]}
    return [job for job in grid.plan(EXPERIMENT, params) if job.config.hash() in set(runs["hash"])]


@pytest.mark.parametrize("arm", ["grpo", "agpo"])
def test_the_first_updates_of_a_recorded_run_come_out_again(arm, tmp_path):
    jobs = recorded_jobs(arm)
    assert jobs, "no recorded hash comes out of the recorded parameters: settings changed without a new record"
    job = jobs[0]
    train(job.config, tmp_path, stop_after=UPDATES)
    rows = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    traces = RECORD.traces
    traces = traces[(traces["arm"] == arm) & (traces["seed"] == job.seed) & (traces["start"] == job.start)]
    for row in rows:
        recorded = traces[traces["update"] == row["update"]].iloc[0]
        # Another kind of CPU rounds otherwise and may draw another token here and there: a reward of 288 apiece.
        assert row["reward"] == pytest.approx(recorded["reward"], abs=6 / 288)
        for name in ("tau", "epsilon", "entropy"):
            assert row[name] == pytest.approx(recorded[name], rel=0.01), (
                f"{name} of update {row['update']} changed: bump config.NUMERICS_VERSION and record anew"
            )
