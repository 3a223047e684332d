"""Lets all ranks of a run fail together; otherwise one that raises would leave the others waiting for it."""

from contextlib import contextmanager

from accelerate.utils import gather_object


class OtherRankFailed(RuntimeError):
    """Another rank failed; its own error says what went wrong."""


@contextmanager
def together(state):
    """A context that either all ranks leave normally or none.

    Every rank must enter it, and inside it no rank may wait for another. If one rank raises an exception, the others
    raise at the end of the block. What is no Exception, as an interrupt, passes through at once.

    Args:
        state: an Accelerator or a PartialState, or anything with `num_processes`.
    Raises:
        OtherRankFailed: the block ended well on this rank and failed on another; the message names that rank and its
            error.
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
