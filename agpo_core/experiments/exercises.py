"""Checks for a notebook's exercises and for what its text says: they print, and never raise."""

from collections.abc import Callable

import torch


def check(attempt: Callable, truth: Callable, cases: list[tuple]) -> None:
    """Print whether an attempt gives the true values.

    Args:
        attempt, truth: functions of the same arguments; they return a number or a list of numbers.
        cases: the arguments to try, a tuple a call.
    """
    for case in cases:
        call = f"{attempt.__name__}({', '.join(map(repr, case))})"
        try:
            given = torch.as_tensor(attempt(*case), dtype=torch.float64)
        except Exception as error:  # whatever the attempt does, the notebook goes on
            print(f"Not yet: {call} gives no number ({type(error).__name__}).")
            return
        wanted = torch.as_tensor(truth(*case), dtype=torch.float64)
        if given.shape != wanted.shape or not torch.allclose(given, wanted, atol=1e-4):
            print(f"Not yet: {call} gives {_text(given)}, and should give {_text(wanted)}.")
            return
    print(f"Right, in all {len(cases)} cases.")


def claim(sentence: str, holds) -> None:
    """Print a sentence of the text, and whether it holds with the parameters as they are set."""
    print(f"{'holds' if holds else 'no longer holds with these parameters'}: {sentence}")


def _text(numbers: torch.Tensor) -> str:
    if numbers.ndim == 0:
        return f"{numbers.item():.3f}"
    return f"[{', '.join(f'{number:.3f}' for number in numbers.flatten().tolist())}]"
