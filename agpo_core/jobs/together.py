"""Ranks that fail together: a rank that raises alone would leave the others waiting for it."""

from contextlib import contextmanager

from accelerate.utils import gather_object


class OtherRankFailed(RuntimeError):
    """Another rank failed, and says there what went wrong."""


@contextmanager
def together(state):
    """Every rank gets past this block, or none does.

    Every rank enters it, and within it none waits for another. Where one raises the others learn of it at the end.
    What is meant for the process, as an interrupt is, passes at once.

    Args:
        state: has num_processes, as an Accelerator or a PartialState.
    Raises:
        OtherRankFailed: the block ended well on this rank, and failed on another; names that rank and its error.
    """
    own = None
    try:
        yield
    except Exception as error:
        own = error
    failures = []
    if state.num_processes > 1:
        failures = gather_object([own and f"{type(own).__name__}: {own}"])
    if own is not None:
        raise own
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise OtherRankFailed(f"rank {rank} failed: {failure}")
