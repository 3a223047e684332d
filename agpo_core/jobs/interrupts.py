"""SIGTERM and SIGINT stop a run after its current update, with a checkpoint; a second signal ends it at once."""

import os
import signal
import sys
import time
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A launcher sends one signal several times: to the whole group, and once more to each of its ranks.
ECHO = 3.0  # seconds in which a further signal counts as the same one


class Interrupted(SystemExit):
    """A signal asked the run to stop; the exit status is 128 + the signal's number."""

    def __init__(self, signum: int):
        super().__init__(128 + signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}"


class Interrupts:
    """Keeps signals that come between `hold` and `release` until the update ends; other signals raise at once.

    It catches signals only while it is used as a context. Otherwise they have their usual effect.

    Args:
        said: called with the signal's name when a signal is kept.
    """

    def __init__(self, said: Callable[[str], None] = lambda name: None):
        self.said = said
        self.asked = 0  # the signal that came; 0: none
        self._held, self._since, self._former = False, 0.0, {}

    def __enter__(self) -> "Interrupts":
        self._former = {signum: signal.signal(signum, self._got) for signum in SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        if self.asked:  # ignore signals: what follows is short and completes the folder
            for signum in SIGNALS:
                signal.signal(signum, signal.SIG_IGN)
            return
        for signum, former in self._former.items():
            signal.signal(signum, former)

    def hold(self) -> None:
        """From now on a signal waits for `release`."""
        self._held = True

    def release(self, agreed: int = 0) -> None:
        """Raise Interrupted if a signal came here, or on another rank (then `agreed` is its number)."""
        self._held = False
        if agreed or self.asked:
            self.asked = agreed or self.asked
            raise Interrupted(self.asked)

    def _got(self, signum: int, _frame) -> None:
        if self.asked:
            if launched() and time.monotonic() - self._since < ECHO:
                return
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
        self.asked, self._since = signum, time.monotonic()
        if not self._held:
            raise Interrupted(signum)
        name = signal.Signals(signum).name
        print(f"{name}: stopping after this update, with a checkpoint; a second signal stops at once.",
              file=sys.stderr, flush=True)  # fmt: skip
        self.said(name)
        if not launched():  # a second signal then ends even a long computation outside Python
            for one in SIGNALS:
                signal.signal(one, signal.SIG_DFL)


def launched() -> bool:
    """Whether a launcher watches this process; it sends signals several times and kills what does not stop."""
    return "LOCAL_RANK" in os.environ or "AGPO_SUPERVISED" in os.environ
