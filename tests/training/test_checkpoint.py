"""Checkpoints are whole or absent, whenever the process dies."""

import pytest
import torch
from accelerate import Accelerator

from agpo_core import provenance
from agpo_core.training import checkpoint


class Held:
    """A small model and its optimiser in an accelerator."""

    def __init__(self):
        self.accelerator = Accelerator()
        model = torch.nn.Linear(2, 1)
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
        self.model, self.optimiser = self.accelerator.prepare(model, optimiser)

    def step(self):
        self.accelerator.backward(self.model(torch.ones(1, 2)).square().sum())
        self.optimiser.step()
        self.optimiser.zero_grad()

    def weights(self):
        return [p.detach().clone() for p in self.model.parameters()]


def same(a, b):
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.fixture
def held(fresh_accelerator):
    torch.manual_seed(0)
    return Held()


def test_a_checkpoint_gives_weights_optimiser_and_state_back(held, tmp_path):
    for _ in range(3):
        held.step()
    checkpoint.save(held.accelerator, tmp_path, {"updates": 3, "ema": 0.1 + 0.2, "none": None})
    saved = held.weights()
    held.step()
    expected = held.weights()  # uses the optimiser's moments

    fresh = Held()
    assert checkpoint.load(fresh.accelerator, tmp_path) == {
        "updates": 3,
        "ema": 0.1 + 0.2,
        "none": None,
    }
    assert same(fresh.weights(), saved)
    fresh.step()
    assert same(fresh.weights(), expected)


def test_there_is_nothing_to_load_before_the_first_checkpoint(held, tmp_path):
    assert checkpoint.load(held.accelerator, tmp_path) is None


def test_a_second_checkpoint_replaces_the_first_and_leaves_nothing_beside_it(held, tmp_path):
    for updates in (1, 2):
        held.step()
        checkpoint.save(held.accelerator, tmp_path, {"updates": updates})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert checkpoint.load(held.accelerator, tmp_path) == {"updates": 2}


@pytest.mark.parametrize("broken", ["save_state", "state.json", "first rename", "second rename"])
def test_a_failure_at_any_point_leaves_a_whole_checkpoint(held, tmp_path, monkeypatch, broken):
    checkpoint.save(held.accelerator, tmp_path, {"updates": 1})
    saved = held.weights()
    held.step()

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if broken == "save_state":
            patch.setattr(held.accelerator, "save_state", fail)
        elif broken == "state.json":
            patch.setattr(provenance, "write_json", fail)
        else:
            kind = type(tmp_path)
            rename, source = kind.rename, "checkpoint"
            if broken == "second rename":
                source = "checkpoint.partial"
            patch.setattr(kind, "rename", lambda a, b: fail() if a.name == source else rename(a, b))
        with pytest.raises(OSError, match="(?i)no .*space left"):
            checkpoint.save(held.accelerator, tmp_path, {"updates": 2})

    assert checkpoint.load(held.accelerator, tmp_path) == {"updates": 1}
    assert same(held.weights(), saved)
    checkpoint.save(held.accelerator, tmp_path, {"updates": 3})  # and the next one is whole
    assert checkpoint.load(held.accelerator, tmp_path) == {"updates": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
