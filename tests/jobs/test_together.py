"""If one rank fails, all ranks fail."""

import threading
from types import SimpleNamespace

import pytest

from agpo_core.jobs import together as module
from agpo_core.jobs.together import OtherRankFailed, together


def of_each_rank(monkeypatch, works):
    """The result or the exception of each rank's work in a block; the ranks are threads."""
    barrier, said, found = threading.Barrier(len(works), timeout=20), {}, {}

    def gather(own):
        rank = int(threading.current_thread().name)
        said[rank] = own
        barrier.wait()
        return [item for r in sorted(said) for item in said[r]]

    monkeypatch.setattr(module, "gather_object", gather)

    def start(rank):
        try:
            with together(SimpleNamespace(num_processes=len(works))):
                found[rank] = works[rank]()
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=start, args=(rank,), name=str(rank)) for rank in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(len(works))]


def fails():
    raise ValueError("bad grade")


def test_where_one_rank_fails_all_raise_and_name_it(monkeypatch):
    well, failed, also = of_each_rank(monkeypatch, [lambda: 1, fails, lambda: 3])
    assert type(failed) is ValueError
    for other in (well, also):
        assert type(other) is OtherRankFailed and str(other) == "rank 1 failed: ValueError: bad grade"


def test_each_rank_that_fails_raises_its_own_error(monkeypatch):
    first, second = of_each_rank(monkeypatch, [fails, lambda: {}["x"]])
    assert type(first) is ValueError and type(second) is KeyError


def test_ranks_that_do_well_go_on(monkeypatch):
    assert of_each_rank(monkeypatch, [lambda: 1, lambda: 2]) == [1, 2]


def test_an_interrupt_passes_at_once_and_one_process_asks_nobody(monkeypatch):
    monkeypatch.setattr(module, "gather_object", None)
    with pytest.raises(KeyboardInterrupt), together(SimpleNamespace(num_processes=2)):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="bad grade"), together(SimpleNamespace(num_processes=1)):
        fails()
