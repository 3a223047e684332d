"""Curves that grow in a notebook while its jobs run: reward, τ, ε and the KL to the reference of every run so far."""

import base64
import contextlib
import io
import json
import time
from pathlib import Path

from matplotlib.figure import Figure

from agpo_core.experiments.plots import style
from agpo_core.jobs.progress import live_display

PANELS = {  # a key of a line of metrics.jsonl -> what its axis is called
    "reward": "mean reward of the rollouts",
    "tau": "temperature τ",
    "epsilon": "clip radius ε",
    "reference_kl": "KL to the reference, nats a token",
}
EVERY = 3.0  # seconds between two pictures


class Curves:
    """The curves of a grid's runs, drawn anew every few seconds where somebody watches the notebook; else nothing.

    Args:
        runs: {folder of a run: its arm's name and title}.
        display: what shows a picture; None: see `live_display`.
    """

    def __init__(self, runs: dict[Path, tuple[str, str]], display=None):
        self.runs, self.display = runs, display or live_display()
        self.rows = {run: [] for run in runs}
        self.read = dict.fromkeys(runs, 0)  # bytes of metrics.jsonl that are read
        self.drawn = -EVERY

    def __call__(self, last: bool = False) -> None:
        """Draw if there is something new and the last picture is `EVERY` seconds old, or if this is the last one."""
        if self.display is None or (time.monotonic() - self.drawn < EVERY and not last):
            return
        self.drawn = time.monotonic()
        if any([self._new_lines(run) for run in self.runs]):
            picture = io.BytesIO()
            self.figure().savefig(picture, format="png", dpi=100)
            self.display.update({"image/png": base64.b64encode(picture.getvalue()).decode()}, raw=True)

    def _new_lines(self, run: Path) -> bool:
        """Read the complete lines that a run has logged since the last look; a resumed run may have dropped some."""
        with contextlib.suppress(OSError), open(run / "metrics.jsonl", "rb") as file:
            if file.seek(0, io.SEEK_END) < self.read[run]:
                self.read[run], self.rows[run] = 0, []
            file.seek(self.read[run])
            lines = file.read().rpartition(b"\n")[0]
            self.read[run] += len(lines) + bool(lines)
            for line in lines.splitlines():
                with contextlib.suppress(ValueError):
                    self.rows[run].append(json.loads(line))
            return bool(lines)
        return False

    def figure(self) -> Figure:
        """A panel for each of PANELS, with a line a run over the share of its horizon."""
        figure = Figure(figsize=(11, 2.8), layout="constrained")
        for ax, (key, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for run, (arm, _) in self.runs.items():
                points = [(100 * row["progress"], row[key]) for row in self.rows[run] if row.get(key) is not None]
                if points:
                    ax.plot(*zip(*points, strict=True), **style.line(arm, ""), linewidth=1.2, alpha=0.8)
            ax.set(title=title, xlabel="% of the horizon", xlim=(0, 100))
            ax.title.set_fontsize(9)
        seen = dict(named for run, named in self.runs.items() if self.rows[run])
        handles = [figure.axes[0].plot([], [], **style.line(arm, ""), label=seen[arm])[0] for arm in seen]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6) or 1, fontsize=8)
        return figure
