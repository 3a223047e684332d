"""Shows in a notebook or a terminal how far the jobs are, with one line for each:

    agpo-s42-1c9e44a07b  31 updates  48% of horizon  reward 0.52  tau 1.08  eps 0.11  20 s left

The numbers are those of the last update in `metrics.jsonl`.
"""

import time
from pathlib import Path
from types import SimpleNamespace

FIELDS = (  # (key of a line of metrics.jsonl, its format)
    ("update", "{} updates"),
    ("progress", "{:.0%} of horizon"),
    ("reward", "reward {:.2f}"),
    ("tau", "tau {:.2f}"),
    ("epsilon", "eps {:.2f}"),
)


class Progress:
    """The display of several jobs.

    In a notebook that somebody watches, it is one display that is updated in place. Elsewhere (in a terminal, under
    papermill) it prints a line when a job passes a further quarter of its horizon, and one at the job's end.
    """

    def __init__(self):
        self.display = live_display()
        self.text = ""
        self.quarters = {}  # run folder -> quarters already printed
        self.finished = self.failed = 0

    def update(self, running: list, ended: list, waiting: int) -> None:
        """Show the state of the jobs.

        Args:
            running: the running `launch.Job`s.
            ended: those that ended since the last update.
            waiting: the number of jobs that have not started.
        """
        self.finished += sum(job.finished for job in ended)
        self.failed += sum(not job.finished for job in ended)
        if self.display is None:
            self._print(running, ended)
            return
        counts = f"{self.finished} finished, {self.failed} failed, {waiting} waiting"
        text = "\n".join([*map(line, running), counts])
        if text != self.text:
            self.display.update({"text/plain": text}, raw=True)
            self.text = text

    def _print(self, running: list, ended: list) -> None:
        for job in running:
            quarter = int(4 * job.row.get("progress", 0))
            if self.quarters.get(job.run_dir, 0) < quarter < 4:
                self.quarters[job.run_dir] = quarter
                print(line(job), flush=True)
        for job in ended:
            print(line(job), flush=True)


class Lines:
    """The lines of a run that was started by hand: one at its start, and one at each further tenth of its horizon.

    Args:
        run_dir: the run's folder.
        horizon: the run's horizon, with what it has spent already.
    """

    def __init__(self, run_dir: Path, horizon):
        self.run_dir, self.tenth = Path(run_dir), int(10 * horizon.progress)
        self.begun = time.monotonic()
        self.start = f"goes on after update {horizon.updates}" if horizon.updates else "starts"

    def see(self, row: dict) -> None:
        """Print what is due after an update, given its line of metrics.jsonl."""
        if self.start:
            print(f"{self.run_dir.name}  {self.start}", flush=True)
            self.start = ""
        if (tenth := int(10 * row["progress"])) > self.tenth:
            self.tenth = tenth
            seconds = time.monotonic() - self.begun
            print(line(SimpleNamespace(run_dir=self.run_dir, ended=False, row=row, seconds=seconds)), flush=True)


def line(job) -> str:
    """One line about a job: what the last update logged, and the time left or taken."""
    parts = [job.run_dir.name]
    if job.ended:
        parts.append("finished" if job.finished else "failed")
    elif not job.row:
        parts.append("starting")
    parts += [form.format(job.row[key]) for key, form in FIELDS if job.row.get(key) is not None]
    if job.ended:
        parts.append(f"{duration(job.seconds)} in all")
    elif job.row.get("seconds_left") is not None:
        parts.append(f"{duration(job.row['seconds_left'])} left")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """A duration as text: `20 s`, `12 min`, `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def live_display():
    """A display that can be updated if somebody watches the notebook; else None."""
    try:
        from IPython import get_ipython
        from IPython.display import display

        # A notebook that somebody watches allows input; papermill and nbconvert say that they do not.
        watched = get_ipython().kernel.get_parent()["content"]["allow_stdin"]
    except (ImportError, AttributeError, KeyError):
        return None
    return display({"text/plain": ""}, raw=True, display_id=True) if watched else None
