"""Time and memory of the estimators, compared with other ways to compute the same numbers.

    python bench/core.py [--rounds 7] [--quick] [--record]

Time is the CPU time of the one thread that computes: on an idle core it equals the waiting time, on a busy core it
leaves out the time of other processes. In each round every way of a case runs once, in turn, on new inputs that are
made outside the measured time; the table shows medians over rounds, and ratios of these medians. Before that, all ways
of a case are checked to give the same numbers at tiny sizes, which also loads their code. Where tensors are large,
rounds of one way differ by a factor of two or three, because malloc either still holds their pages or asks the kernel
for them; the record keeps every round.

Memory is the growth of a process's resident memory at its peak during one call. Each call has a process of its own. The
growth covers whatever the call allocates, by torch or by Python, with its result and without its inputs, to about a
quarter of a MiB. It needs Linux with glibc.

The ratio is the other way's time divided by the library's. Where the other way only draws as many random numbers as
`monte_carlo` does, the ratio is the library's time divided by the other way's.

verl's functions are measured where verl can be imported; a folder with verl and what it imports, in front of
PYTHONPATH, is enough. `--record` writes the figures and the table to `outputs/reference/bench/core.json`, from which
the bench's README takes the table; `--quick` shows at tiny sizes, in one round, that everything runs.
"""

import argparse
import ctypes
import importlib
import importlib.metadata
import importlib.util
import math
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from agpo_core import paths, provenance
from agpo_core.advantages import global_advantages, group_advantages, reinforce_pp_advantages, token_returns
from agpo_core.probe import vote_entropy
from agpo_core.theory import bias

FULL = {"numbers": 2**22, "sequences": 4096, "tokens": 1024, "groups": 65536}
QUICK = {"numbers": 2**12, "sequences": 8, "tokens": 16, "groups": 32}
# N and ε/σ of the notebook on Appendix A.
GROUP_SIZES, GRID = (2, 4, 8, 16, 64, 1024), torch.linspace(-3, 3, 13)
G, BETA, EPS = 8, 0.01, 1.0e-8
LIBRARY, DRAWING = "agpo_core", "drawing alone"


class Case(NamedTuple):
    """One function of the library, and other ways to compute the same numbers."""

    function: str
    size: str  # in words
    inputs: Callable  # () -> what every way is given
    ways: dict[str, Callable]  # the library's first
    goals: dict[str, float]  # way -> bound of its ratio: an upper one for the drawing, else a lower one


# -- cases


def cases(size: dict, verl=None) -> list[Case]:
    """All of them at one size; `verl` is verl's module of estimators, or None."""
    return [
        *(monte_carlo(N, max(2, size["numbers"] // N)) for N in GROUP_SIZES),
        *reinforce_pp(size["sequences"], size["tokens"], verl),
        groups(size["groups"], verl),
        votes(size["groups"]),
    ]


def monte_carlo(N: int, draws: int) -> Case:
    buffer = torch.empty(2**18)  # stays in a core's cache

    def draw(_):
        generator, left = torch.Generator().manual_seed(0), draws * (N - 1)
        while left > 0:
            buffer[:left].normal_(generator=generator)
            left -= len(buffer)

    return Case(
        "monte_carlo",
        f"N = {N:,}: {len(GRID)} points on {draws:,} draws",
        inputs=lambda: None,
        ways={LIBRARY: lambda _: bias.monte_carlo(GRID, N, draws), DRAWING: draw},
        goals={DRAWING: 3.0},
    )


def reinforce_pp(B: int, T: int, verl) -> list[Case]:
    """REINFORCE++'s advantages, and their two parts separately; lengths are uniform in 1 to T."""

    def inputs():
        generator = torch.Generator().manual_seed(0)
        x = SimpleNamespace(rewards_B=torch.rand(B, generator=generator))
        lengths_B = torch.randint(1, T + 1, (B,), generator=generator)
        x.mask_B_T = torch.arange(T) < lengths_B[:, None]
        x.kl_B_T = 0.1 * torch.randn(B, T, generator=generator)
        x.returns_B_T = token_returns(x.rewards_B, x.mask_B_T, x.kl_B_T, BETA)
        # verl subtracts the KL beforehand, and is fastest with a mask of floats.
        x.token_rewards_B_T, x.weights_B_T = -BETA * x.kl_B_T, x.mask_B_T.float()
        x.token_rewards_B_T[torch.arange(B), lengths_B - 1] += x.rewards_B
        return x

    size = f"{B:,} × {T:,} tokens"
    whole = {
        LIBRARY: lambda x: reinforce_pp_advantages(x.rewards_B, x.mask_B_T, x.kl_B_T, BETA),
        "loop over tokens": lambda x: reinforce_pp_by_token(x.rewards_B, x.mask_B_T, x.kl_B_T),
        "loop over rows": lambda x: reinforce_pp_by_row(x.rewards_B, x.mask_B_T, x.kl_B_T),
    }
    scaling = {LIBRARY: lambda x: global_advantages(x.returns_B_T, x.mask_B_T)}
    if verl:
        whole["verl: reinforce_plus_plus"] = lambda x: verl.compute_reinforce_plus_plus_outcome_advantage(
            x.token_rewards_B_T, x.weights_B_T, config=SimpleNamespace(gamma=1.0)
        )[0]
        scaling["verl: masked_whiten"] = lambda x: (
            verl.verl_F.masked_whiten(x.returns_B_T, x.weights_B_T) * x.weights_B_T
        )
    goals = {"loop over tokens": 10.0, "loop over rows": 10.0, "verl: reinforce_plus_plus": 1.0}
    returns = {LIBRARY: lambda x: token_returns(x.rewards_B, x.mask_B_T, x.kl_B_T, BETA)}
    return [
        Case("reinforce_pp_advantages", size, inputs, whole, goals),
        Case("token_returns", size, inputs, returns, {}),
        Case("global_advantages", size, inputs, scaling, {"verl: masked_whiten": 1.0}),
    ]


def groups(P: int, verl) -> Case:
    """Graded rewards: no two of a group are equal, so that all ways agree."""

    def inputs():
        x = SimpleNamespace(rewards_P_G=torch.rand(P, G, generator=torch.Generator().manual_seed(0)))
        # verl is fastest with one token per rollout, and with prompts that have numbers instead of names.
        x.rewards_B_1, x.prompts_B = x.rewards_P_G.view(-1, 1), np.arange(P).repeat(G)
        x.ones_B_1 = torch.ones_like(x.rewards_B_1)
        return x

    ways = {
        LIBRARY: lambda x: group_advantages(x.rewards_P_G),
        "loop over groups, in Python": lambda x: group_advantages_in_python(x.rewards_P_G),
        "loop over groups, in torch": lambda x: group_advantages_by_group(x.rewards_P_G),
    }
    goals = {way: 10.0 for way in ways if way != LIBRARY}
    if verl:

        def of_verl(estimator):
            return lambda x: estimator(x.rewards_B_1, x.ones_B_1, x.prompts_B, epsilon=EPS)[0].view(-1, G)

        ways["verl: grpo"] = of_verl(verl.compute_grpo_outcome_advantage)
        ways["verl: grpo_vectorized"] = of_verl(verl.compute_grpo_vectorized_outcome_advantage)
        goals |= {"verl: grpo": 1.0, "verl: grpo_vectorized": 1.0}
    return Case("group_advantages", f"{P:,} groups of {G}", inputs, ways, goals)


def votes(P: int) -> Case:
    """A tenth of the answers is missing; the texts are new objects in each round, so that each is hashed."""

    def inputs():
        # Row by row: a large list that is freed before the call would leave memory that the call takes unmeasured.
        draws_P_G = torch.randint(10, (P, G), generator=torch.Generator().manual_seed(0))
        return [[f"{draw}.5" if draw else None for draw in draws_G.tolist()] for draws_G in draws_P_G]

    return Case("vote_entropy", f"{P:,} groups of {G} answers", inputs, {LIBRARY: vote_entropy}, {})


# -- loops, as one would first write them


def reinforce_pp_by_token(rewards_B, mask_B_T, kl_B_T):
    masks, rows = mask_B_T.tolist(), []
    for reward, mask_T, kl_T in zip(rewards_B.tolist(), masks, kl_B_T.tolist(), strict=True):
        to_go, row = reward, [0.0] * len(mask_T)
        for t in reversed(range(len(mask_T))):
            if mask_T[t]:
                to_go -= BETA * kl_T[t]
                row[t] = to_go
        rows.append(row)
    counted = [x for row, mask_T in zip(rows, masks, strict=True) for x, on in zip(row, mask_T, strict=True) if on]
    mean = sum(counted) / len(counted)
    std = math.sqrt(sum((x - mean) ** 2 for x in counted) / (len(counted) - 1))
    return torch.tensor(
        [
            [(x - mean) / (std + EPS) if on else 0.0 for x, on in zip(row, mask_T, strict=True)]
            for row, mask_T in zip(rows, masks, strict=True)
        ]
    )


def reinforce_pp_by_row(rewards_B, mask_B_T, kl_B_T):
    rows = []
    for reward, mask_T, kl_T in zip(rewards_B, mask_B_T, kl_B_T, strict=True):
        to_go_T = (kl_T * mask_T).flip(0).cumsum(0).flip(0)
        rows.append((reward - BETA * to_go_T) * mask_T)
    returns_B_T = torch.stack(rows)
    counted = returns_B_T[mask_B_T]
    return (returns_B_T - counted.mean()) / (counted.std() + EPS) * mask_B_T


def group_advantages_in_python(rewards_P_G):
    rows = []
    for rewards_G in rewards_P_G.tolist():
        mean = sum(rewards_G) / len(rewards_G)
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards_G) / (len(rewards_G) - 1))
        rows.append([(r - mean) / (std + EPS) for r in rewards_G])
    return torch.tensor(rows)


def group_advantages_by_group(rewards_P_G):
    rows = [(rewards_G - rewards_G.mean()) / (rewards_G.std() + EPS) for rewards_G in rewards_P_G]
    return torch.stack(rows)


# -- measuring


def load_verl():
    """verl's module of estimators, or None; and a line that says which."""
    if importlib.util.find_spec("verl") is None:
        return None, "verl not installed: left out"
    try:
        module = importlib.import_module("verl.trainer.ppo.core_algos")
    except ImportError as error:
        return None, f"verl cannot be imported ({error}): left out"
    return module, f"verl {importlib.metadata.version('verl')}"


def check(case: Case) -> None:
    """Raise unless all ways give the library's numbers."""
    x = case.inputs()
    results = {name: way(x) for name, way in case.ways.items()}
    for name, result in results.items():
        if name not in (LIBRARY, DRAWING):
            torch.testing.assert_close(
                result, results[LIBRARY], rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )


def measure_time(case: Case, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each way in each round."""
    seconds = {name: [] for name in case.ways}
    for _ in range(rounds):
        x = case.inputs()
        for name, way in case.ways.items():
            begun = time.thread_time()
            way(x)
            seconds[name].append(time.thread_time() - begun)
    return seconds


def can_measure_memory() -> bool:
    """True under Linux with glibc."""
    return Path("/proc/self/clear_refs").exists() and hasattr(ctypes.CDLL(None), "mallopt")


def measure_memory(case: Case, small: Case, name: str) -> float | None:
    """The peak growth of resident memory in one call, in a process of its own, MiB; None where it cannot be measured.

    `small` is the case at a tiny size, for a first call that loads the code.
    """
    if not can_measure_memory():
        return None
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_growth, args=(case, small, name, sender))
    process.start()
    sender.close()
    growth = receiver.recv()
    process.join()
    return growth


def _send_growth(case: Case, small: Case, name: str, sender) -> None:
    # Memory that malloc keeps after a free would hide what the call takes: from 64 KiB on, it shall keep none.
    ctypes.CDLL(None).mallopt(-3, 65536)  # M_MMAP_THRESHOLD
    small.ways[name](small.inputs())
    x = case.inputs()
    held = [float(i) for i in range(2**18)]  # fills the 8 MiB or less that Python keeps, for the same reason
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _peak()
    case.ways[name](x)
    sender.send(_peak() - before)
    del held


def _peak() -> float:
    """The process's largest resident memory so far, MiB."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def measure(size: dict, rounds: int, verl=None) -> list[dict]:
    """All cases: the seconds of each way in each round, and its memory."""
    tiny, real = cases(QUICK, verl), cases(size, verl)
    for case in tiny:
        check(case)
    # Memory first: a process that has computed much keeps memory, and so do its children.
    memory = [
        {name: measure_memory(case, small, name) for name in case.ways} for case, small in zip(real, tiny, strict=True)
    ]
    measured = []
    for case, peaks in zip(real, memory, strict=True):
        seconds = measure_time(case, rounds)
        ways = {name: {"cpu_seconds": seconds[name], "peak_mib": peaks[name]} for name in case.ways}
        measured.append({"function": case.function, "size": case.size, "ways": ways, "goals": case.goals})
    return measured


# -- reporting


def table(measured: list[dict]) -> list[str]:
    """The figures in Markdown, one row for each function and each way that it is compared with."""
    lines = [
        "| function | size | ms | MiB | beside | ms | MiB | ratio | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in measured:
        ways, goals = dict(case["ways"]), case["goals"]
        ours = ways.pop(LIBRARY)
        start = f"| `{case['function']}` | {case['size']} | {_cost(ours)} |"
        if not ways:
            lines.append(f"{start} | | | | |")
        for name, way in ways.items():
            ratio = _median(way) / _median(ours)
            if name == DRAWING:
                ratio = 1 / ratio
                goal = f"≤ {goals[name]:g}, {'met' if ratio <= goals[name] else 'missed'}"
            else:
                goal = f"≥ {goals[name]:g}, {'met' if ratio >= goals[name] else 'missed'}"
            lines.append(f"{start} {name} | {_cost(way)} | {_digits(ratio)} | {goal} |")
            start = "| | | | |"
    return lines


def _median(way: dict) -> float:
    return statistics.median(way["cpu_seconds"])


def _cost(way: dict) -> str:
    """Two cells: milliseconds, MiB."""
    memory = "–" if way["peak_mib"] is None else f"{way['peak_mib']:,.1f}"
    return f"{_digits(1000 * _median(way))} | {memory}"


def _digits(value: float) -> str:
    """Three significant digits, or all before the point: 0.0123, 1.23, 123, 12,345."""
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time and memory of the estimators, compared with other ways.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it run?")
    parser.add_argument("--record", action="store_true", help="write outputs/reference/bench/core.json")
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more.")
    if args.record and args.quick:
        parser.error("--quick measures nothing worth a record: leave out one of --quick and --record.")
    commit = provenance.git_commit()
    if args.record and len(commit) != 40:  # -dirty, or unknown
        parser.error(f"--record from commit {commit}: commit the code first.")
    torch.set_num_threads(1)
    started = datetime.now(UTC)
    verl, line = load_verl()
    print(line)
    measured = measure(QUICK if args.quick else FULL, 1 if args.quick else args.rounds, verl)
    lines = table(measured)
    print("\n".join(lines))
    if args.record:
        to = paths.reference() / "bench" / "core.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        about = provenance.measurement(commit, started) | {"threads": torch.get_num_threads(), "rounds": args.rounds}
        if verl:
            about["versions"]["verl"] = line.split()[-1]
        provenance.write_json(to, {**about, "table": lines, "measured": measured})


if __name__ == "__main__":
    main()
