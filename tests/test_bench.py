"""The benchmark of the estimators runs, holds its ways to the same numbers, and prints what it measured."""

import importlib.util
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from agpo_core import paths, provenance
from agpo_core.advantages import global_advantages, group_advantages, reinforce_pp_advantages

spec = importlib.util.spec_from_file_location("bench_core", paths.root() / "bench" / "core.py")
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)

FUNCTIONS = ("monte_carlo", "reinforce_pp_advantages", "token_returns", "global_advantages", "group_advantages")
NEEDS_GLIBC = pytest.mark.skipif(not core.can_measure_memory(), reason="needs Linux with glibc")


@pytest.fixture
def without_verl(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "verl" else find(name, *rest))


def stand_in_for_verl():
    """What verl's functions return, by the library, with their arguments and their shapes."""

    def reinforce_pp(token_level_rewards, response_mask, config):
        returns = (token_level_rewards * response_mask).flip(1).cumsum(1).flip(1) * response_mask
        assert config.gamma == 1.0
        return global_advantages(returns, response_mask), returns

    def grpo(token_level_rewards, response_mask, index, epsilon):
        assert token_level_rewards.shape == response_mask.shape and index.tolist()[:9] == [0] * 8 + [1]
        advantages = group_advantages(token_level_rewards.sum(dim=-1).view(-1, 8), eps=epsilon).view(-1, 1)
        return advantages * response_mask, advantages

    return SimpleNamespace(
        compute_reinforce_plus_plus_outcome_advantage=reinforce_pp,
        compute_grpo_outcome_advantage=grpo,
        compute_grpo_vectorized_outcome_advantage=grpo,
        verl_F=SimpleNamespace(masked_whiten=lambda values, mask: global_advantages(values, mask) + 1 - mask),
    )


def test_the_quick_benchmark_prints_a_row_for_every_function_and_every_way(without_verl, capsys):
    core.main(["--quick"])
    verl, head, rule, *rows = capsys.readouterr().out.splitlines()
    assert verl == "verl not installed: left out"
    assert {line.count("|") for line in (head, rule, *rows)} == {10}
    cells = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in rows]
    functions = [row[0] for row in cells if row[0]]
    assert functions == [*[FUNCTIONS[0]] * len(core.GROUP_SIZES), *FUNCTIONS[1:], "vote_entropy"]
    beside = [row[4] for row in cells if row[4]]
    loops = ["loop over tokens", "loop over rows", "loop over groups, in Python", "loop over groups, in torch"]
    assert beside == ["drawing alone"] * len(core.GROUP_SIZES) + loops


def test_every_way_is_held_to_the_numbers_of_the_library():
    for case in core.cases(core.QUICK, stand_in_for_verl()):
        core.check(case)
        for name in case.ways:
            if name in (core.LIBRARY, core.DRAWING):
                continue
            wrong = {**case.ways, name: lambda x, way=case.ways[name]: way(x) + 0.01}
            with pytest.raises(AssertionError, match=name):
                core.check(case._replace(ways=wrong))


def test_the_inputs_are_what_the_table_says():
    [case] = [case for case in core.cases(core.QUICK) if case.function == "reinforce_pp_advantages"]
    x = case.inputs()
    assert case.size == "8 × 16 tokens" and x.mask_B_T.shape == x.kl_B_T.shape == (8, 16)
    lengths_B = x.mask_B_T.sum(dim=1)
    assert lengths_B.min() >= 1 and lengths_B.unique().numel() > 1
    assert torch.equal(case.ways["agpo_core"](x), reinforce_pp_advantages(x.rewards_B, x.mask_B_T, x.kl_B_T, core.BETA))
    answers_P_G = core.votes(64).inputs()
    texts = [answer for answers_G in answers_P_G for answer in answers_G if answer is not None]
    assert len(answers_P_G) == 64 and 0 < len(texts) < 64 * 8
    assert len({id(text) for text in texts}) == len(texts)  # each is hashed for the first time


def measured_memory(inputs, allocate):
    """What a fresh process measures: one that has computed much keeps memory back for its children."""
    code = f"""
import importlib.util, torch
spec = importlib.util.spec_from_file_location("bench_core", {str(paths.root() / "bench" / "core.py")!r})
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
case, small = (core.Case("f", "", lambda n=n: {inputs}, {{"a": lambda x: {allocate}}}, {{}}) for n in (16, 1))
print(core.measure_memory(case, small, "a"))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=paths.root(), capture_output=True, text=True, check=True)
    return float(done.stdout)


@NEEDS_GLIBC
@pytest.mark.parametrize(
    ("inputs", "allocate", "least", "most"),
    [
        ("n", "torch.ones(x, 2**18)", 16, 16),  # 16 × 2^18 numbers of 4 bytes
        ("n", "[float(i) for i in range(x * 2**15)]", 20, 23),  # 2^19 of 32 bytes, and a list that grows ahead
        # 16 MiB of inputs do not count; 16 MiB that are free again before 1 MiB is returned do.
        ("torch.ones(n, 2**18)", "((x + 1).sum(), torch.ones(2**18))", 16, 16),
    ],
    ids=["torch", "python", "freed before the end"],
)
def test_memory_is_the_peak_of_what_torch_and_python_allocate(inputs, allocate, least, most):
    assert least - 1 < measured_memory(inputs, allocate) < most + 1


def test_the_table_shows_medians_and_says_which_goals_are_missed():
    def way(seconds, mib):
        return {"cpu_seconds": seconds, "peak_mib": mib}

    measured = [
        # Medians 2 and 1 ms: twice the time of the drawing.
        {"function": "f", "size": "one", "goals": {"drawing alone": 3.0},
         "ways": {"agpo_core": way([0.002, 0.001, 0.009], 1.0), "drawing alone": way([0.001] * 3, None)}},
        # 4 ms, beside 20 ms and 1.5 s.
        {"function": "g", "size": "two", "goals": {"slow": 10.0, "slower": 10.0},
         "ways": {"agpo_core": way([0.004], 1234.56), "slow": way([0.02], 2.0), "slower": way([1.5], 0.0)}},
        {"function": "h", "size": "three", "goals": {}, "ways": {"agpo_core": way([0.0001234], 0.25)}},
    ]  # fmt: skip
    assert core.table(measured)[2:] == [
        "| `f` | one | 2.00 | 1.0 | drawing alone | 1.00 | – | 2.00 | ≤ 3, met |",
        "| `g` | two | 4.00 | 1,234.6 | slow | 20.0 | 2.0 | 5.00 | ≥ 10, missed |",
        "| | | | | slower | 1,500 | 0.0 | 375 | ≥ 10, met |",
        "| `h` | three | 0.123 | 0.2 | | | | | |",
    ]


def test_a_record_holds_the_table_and_where_it_comes_from(without_verl, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(provenance, "git_commit", lambda: "a" * 40)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    monkeypatch.setattr(core, "FULL", core.QUICK)
    core.main(["--record", "--rounds", "2"])
    record = json.loads((tmp_path / "bench" / "core.json").read_text(encoding="utf-8"))
    assert record["table"] == core.table(record["measured"]) == capsys.readouterr().out.splitlines()[1:]
    assert (record["commit"], record["rounds"], record["threads"]) == ("a" * 40, 2, 1)
    assert "torch" in record["versions"] and "verl" not in record["versions"]
    assert all(len(way["cpu_seconds"]) == 2 for case in record["measured"] for way in case["ways"].values())


@pytest.mark.parametrize(
    ("arguments", "commit", "message"),
    [
        (["--record"], "a" * 40 + "-dirty", "commit the code first"),
        (["--record"], "unknown", "commit the code first"),
        (["--record", "--quick"], "a" * 40, "leave out one of --quick and --record"),
        (["--rounds", "0"], "a" * 40, "--rounds must be 1 or more"),
    ],
)
def test_what_would_be_no_record_is_refused(monkeypatch, capsys, arguments, commit, message):
    monkeypatch.setattr(provenance, "git_commit", lambda: commit)
    with pytest.raises(SystemExit):
        core.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted((paths.reference() / "bench").glob("core.json")), ids=lambda file: file.name)
def test_the_recorded_table_is_that_of_the_recorded_figures(file):
    record = provenance.read_json(file)
    assert record["table"] == core.table(record["measured"])
