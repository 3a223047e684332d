"""SIGTERM and SIGINT: a run leaves after its current update, with a checkpoint; a second signal ends it at once."""

import os
import signal
import sys
import time
from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A launcher sends one order several times: to the whole group, and once more to each of its ranks.
ECHO = 3.0  # seconds


class Interrupted(SystemExit):
    """A run was asked to leave; the exit status is 128 + the signal's number."""

    def __init__(self, signum: int):
        super().__init__(128 + signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}"


class Interrupts:
    """Keeps signals until the end of an update, between `hold` and `release`; at other times they raise at once.

    As a context it catches the signals; otherwise it does nothing, and they do what they always do.

    Args:
        said: called with the signal's name when one is kept.
    """

    def __init__(self, said: Callable[[str], None] = lambda name: None):
        self.said = said
        self.asked = 0  # the signal that was kept; 0: none
        self._held, self._since, self._former = False, 0.0, {}

    def __enter__(self) -> "Interrupts":
        self._former = {signum: signal.signal(signum, self._got) for signum in SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        if self.asked:  # what follows is short, and leaves the folder in order
            for signum in SIGNALS:
                signal.signal(signum, signal.SIG_IGN)
            return
        for signum, former in self._former.items():
            signal.signal(signum, former)

    def hold(self) -> None:
        """From here on a signal waits for `release`."""
        self._held = True

    def release(self, agreed: int = 0) -> None:
        """Raise Interrupted where a signal came, here or (`agreed`, its number) on another rank."""
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
        print(f"{name}: leaving after this update, with a checkpoint; a second signal leaves at once.",
              file=sys.stderr, flush=True)  # fmt: skip
        self.said(name)
        if not launched():  # also where Python is not asked: in the middle of a long computation
            for one in SIGNALS:
                signal.signal(one, signal.SIG_DFL)


def launched() -> bool:
    """Whether a launcher watches this process: it sends signals more than once, and ends what does not leave."""
    return "LOCAL_RANK" in os.environ or "AGPO_SUPERVISED" in os.environ
