"""Checks for a notebook's exercises and for what its text says: they print, and never raise."""

from collections.abc import Callable

import torch


def check(attempt: Callable, truth: Callable, cases: list[tuple], mistakes: dict[str, Callable] | None = None) -> None:
    """Print whether an attempt gives the true values, and if not, what is wrong as far as that can be told.

    Args:
        attempt, truth: functions of the same arguments; they return a number or a list of numbers.
        cases: the arguments to try, a tuple a call.
        mistakes: known mistakes. A hint is printed where the attempt gives what the mistaken function beside it gives.
    """
    for case in cases:
        call = f"{attempt.__name__}({', '.join(map(repr, case))})"
        try:
            answer = attempt(*case)
        except Exception as error:  # whatever the attempt does, the notebook goes on
            print(f"Not yet: {call} raises {type(error).__name__}: {error}")
            return
        if answer is ... or answer is None:
            print(f"Not yet: {call} returns {answer}. Replace the ... by your formula, and return its value.")
            return
        try:
            given = torch.as_tensor(answer, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            print(f"Not yet: {call} gives {answer!r:.80}, which is not a number or a list of numbers.")
            return
        wanted = torch.as_tensor(truth(*case), dtype=torch.float64)
        if not _equal(given, wanted):
            print(f"Not yet: {call} gives {_text(given)}, and should give {_text(wanted)}.")
            for hint, mistaken in (mistakes or {}).items():
                if _gives(mistaken, case, given):
                    print(f"Hint: {hint}")
            return
    print(f"Right, in all {len(cases)} cases.")


def _gives(mistaken: Callable, case: tuple, given: torch.Tensor) -> bool:
    try:
        return _equal(given, torch.as_tensor(mistaken(*case), dtype=torch.float64))
    except Exception:  # a mistaken formula need not have a value everywhere
        return False


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-4)


def claim(sentence: str, holds) -> None:
    """Print a sentence of the text, and whether it holds with the parameters as they are set."""
    print(f"{'holds' if holds else 'no longer holds with these parameters'}: {sentence}")


def _text(numbers: torch.Tensor) -> str:
    if numbers.ndim == 0:
        return f"{numbers.item():.3f}"
    return f"[{', '.join(f'{number:.3f}' for number in numbers.flatten().tolist())}]"
