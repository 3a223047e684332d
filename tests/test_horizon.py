"""The clock of a run: ledger, progress, stop, and random numbers that depend on their key alone."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import horizon
from agpo_core.horizon import PHASES, Horizon, crossed, permutation, philox, uniforms

quick = settings(derandomize=True, max_examples=50)
words = st.integers(0, 2**32 - 1)
indices = st.integers(0, 2**20)


def column(*values):
    return torch.tensor(values, dtype=torch.int64)


# -- Philox


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers of Random123: kat_vectors, philox4x32 with 10 rounds
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(counter, key, expected):
    found = philox(tuple(column(word) for word in counter), key)
    assert " ".join(f"{word.item():08x}" for word in found) == expected


@quick
@given(counter=st.tuples(words, words, words, words), key=st.tuples(words, words))
def test_philox_equals_a_loop_over_whole_numbers(counter, key):
    (a, b, c, d), (k0, k1) = counter, key
    for _ in range(10):
        high, low = c * 0xCD9E8D57, a * 0xD2511F53
        a, b, c, d = high >> 32 ^ b ^ k0, high % 2**32, low >> 32 ^ d ^ k1, low % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    found = philox(tuple(column(word) for word in counter), key)
    assert [word.item() for word in found] == [a, b, c, d]


# -- uniforms


def test_a_uniform_number_is_the_top_53_bits_of_philox():
    # Key and counter zero: words 6627e8d5 e169c58d, of which 27 and 26 bits.
    expected = ((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53
    assert uniforms(0, "prompts", 0, column(0), column(0), 0).item() == expected
    assert expected == pytest.approx(0x6627E8D5 / 2**32, abs=2**-27)


def test_uniform_numbers_stay_below_one(monkeypatch):
    largest = column(2**32 - 1)
    monkeypatch.setattr(horizon, "philox", lambda counter, key: (largest,) * 4)
    assert uniforms(0, "train", 0, column(0), column(0), 0).item() == 1 - 2**-53


@quick
@given(
    rows=st.lists(st.tuples(indices, indices), min_size=1, max_size=8),
    seed=st.integers(0, 2**31 - 1),
    token=indices,
)
def test_a_uniform_number_does_not_depend_on_the_batch_around_it(rows, seed, token):
    prompts_B, samples_B = (column(*values) for values in zip(*rows, strict=True))
    together = uniforms(seed, "train", 7, prompts_B, samples_B, token)
    for i in range(len(rows)):
        alone = uniforms(seed, "train", 7, prompts_B[i : i + 1], samples_B[i : i + 1], token)
        assert alone.item() == together[i].item()


def test_every_part_of_the_key_changes_the_number():
    base = {"seed": 1, "phase": "train", "update": 2, "prompt": 3, "sample": 4, "token": 5}
    others = [{}, *({name: 9} for name in base if name != "phase")]
    others += [{"phase": phase} for phase in PHASES if phase != "train"]
    numbers = set()
    for other in others:
        key = {**base, **other}
        rows = column(key["prompt"]), column(key["sample"])
        numbers.add(uniforms(key["seed"], key["phase"], key["update"], *rows, key["token"]).item())
    assert len(numbers) == len(others) == 9


def test_numbers_are_uniform_and_neighbours_are_unrelated():
    # 64 prompts x 64 samples x 16 tokens = 65,536 numbers in 32 bins of 2,048 expected.
    prompts_B = torch.arange(64).repeat_interleave(64)
    samples_B = torch.arange(64).repeat(64)
    drawn = torch.stack([uniforms(42, "train", 0, prompts_B, samples_B, t) for t in range(16)])
    counts = (drawn.flatten() * 32).long().bincount(minlength=32)
    assert ((counts - 2048).square() / 2048).sum().item() < 61.1  # chi-square, 31 degrees, p = .001
    tokens, samples = drawn - 0.5, drawn.view(16, 64, 64) - 0.5
    for a, b in [(tokens[:-1], tokens[1:]), (samples[..., :-1], samples[..., 1:])]:
        correlation = (a * b).mean().item() * 12  # variance of a uniform number: 1 / 12
        assert abs(correlation) < 4 / math.sqrt(a.numel())


def test_an_unknown_phase_is_refused():
    with pytest.raises(ValueError, match="phase must be one of prompts, probe, train, evaluation"):
        uniforms(0, "test", 0, column(0), column(0), 0)


# -- permutations


@pytest.mark.parametrize("n", [1, 2, 7, 4096])
def test_a_permutation_holds_every_item_once(n):
    assert permutation(3, n, key=1).sort().values.equal(torch.arange(n))


def test_a_permutation_is_a_function_of_seed_and_key():
    first = permutation(3, 50, key=1)
    assert first.equal(permutation(3, 50, key=1))
    assert not first.equal(permutation(4, 50, key=1))
    assert not first.equal(permutation(3, 50, key=2))


def test_every_item_comes_first_about_equally_often():
    firsts = torch.stack([permutation(0, 5, key)[0] for key in range(500)]).bincount()
    assert ((firsts - 100).square() / 100).sum().item() < 18.5  # chi-square, 4 degrees, p = .001


# -- ledger, progress, stop


def test_tokens_of_probe_and_training_are_spent_and_those_of_evaluation_are_not():
    clock = Horizon("tokens", 100)
    for phase, tokens in [("probe", 30), ("train", 20), ("evaluation", 500), ("train", 10)]:
        clock.count(phase, tokens)
    assert clock.tokens == {"probe": 30, "train": 30, "evaluation": 500}
    assert (clock.spent, clock.progress, clock.done) == (60, 0.6, False)


@pytest.mark.parametrize(("unit", "spent"), [("tokens", 7), ("updates", 2), ("seconds", 4.0)])
def test_progress_is_the_consumed_share_in_the_unit_of_the_horizon(unit, spent):
    clock = Horizon(unit, 8)
    clock.count("train", 7)
    clock.tick(1.5)
    clock.tick(2.5)
    assert (clock.spent, clock.progress) == (spent, spent / 8)


def test_a_run_stops_at_the_first_update_at_or_past_its_horizon():
    clock = Horizon("tokens", 100)
    while not clock.done:
        clock.count("train", 30)
        clock.tick(0.1)
    assert (clock.updates, clock.spent, clock.progress) == (4, 120, 1.0)  # 90 < 100 <= 120
    exact = Horizon("updates", 2)
    exact.tick(0.1)
    assert not exact.done
    exact.tick(0.1)
    assert exact.done


def test_a_horizon_of_zero_is_done_at_the_start():
    clock = Horizon("tokens", 0)
    assert (clock.done, clock.progress) == (True, 1.0)


def test_state_goes_through_json_and_back():
    clock = Horizon("seconds", 12.5)
    clock.count("probe", 3)
    clock.tick(0.1 + 0.2)
    again = Horizon(**json.loads(json.dumps(clock.state())))
    assert again == clock
    again.count("probe", 1)
    assert clock.tokens["probe"] == 3  # no part is shared


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("steps", 1), "unit must be tokens, updates or seconds"),
        (("tokens", -1), "total must be 0 or more tokens"),
        (("updates", math.nan), "total must be 0 or more updates"),
    ],
)
def test_a_horizon_that_cannot_be_reached_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Horizon(*arguments)


@pytest.mark.parametrize(("phase", "tokens", "message"), [("sft", 1, "phase must be"), ("train", -1, "tokens must be")])
def test_the_ledger_refuses_what_it_cannot_book(phase, tokens, message):
    with pytest.raises(ValueError, match=message):
        Horizon("tokens", 1).count(phase, tokens)


# -- crossing multiples of a share


@pytest.mark.parametrize(
    ("before", "after", "every", "expected"),
    [
        (0.0, 0.1, 0.25, False),
        (0.1, 0.3, 0.25, True),
        (0.3, 0.9, 0.25, True),  # two multiples are one crossing
        (0.25, 0.4, 0.25, False),  # a multiple belongs to the step that reached it
        (0.2, 0.25, 0.25, True),
        (0.99, 1.0, 1.0, True),
        (2 / 3, 3 * (1 / 3), 1 / 3, True),
        (0.5, 0.5, 0.25, False),
    ],
)
def test_crossing_by_hand(before, after, every, expected):
    assert crossed(before, after, every) is expected


@pytest.mark.parametrize("updates", [1, 3, 7, 10, 60])
@pytest.mark.parametrize("parts", [1, 3, 4, 7])
def test_each_multiple_is_crossed_once_on_the_way(updates, parts):
    path = [u / updates for u in range(updates + 1)]
    crossings = sum(crossed(before, after, 1 / parts) for before, after in zip(path, path[1:], strict=False))
    assert crossings == min(parts, updates)
