"""Nothing hangs the grader: every pattern is compiled in one place, and grows with its input as a line does."""

import ast
import inspect
import json
import random
import re
import sys
import time
from pathlib import Path
from re import _constants as ops
from re import _parser

import pytest

from agpo_core.grading import PROFILES, canonical, equivalent, extract, grade
from agpo_core.grading import patterns as patterns_module
from agpo_core.grading.grader import forget
from agpo_core.grading.patterns import PATTERNS, pattern
from tests.data import DATA, needs_data

FOLDER = Path(patterns_module.__file__).parent
END = "\x01"  # what no pattern takes: a match that would end here fails, and the matcher goes back
LENGTH = 2_500
SECONDS = 1.0  # of CPU, for an input of 100,000 characters
GOLDS = {"number": "5", "formula": "5", "letters": "B", "roles": "Al is a knight", "output": "5"}


def test_every_pattern_is_compiled_by_the_one_helper():
    called = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                    called.add((path.name, node.func.attr))
    assert called == {("patterns.py", "compile"), ("patterns.py", "escape")}


@pytest.mark.parametrize("text", ["a*", r"\s+x", "(?:ab)+", "(?:a?b?){0,9}", "(?:x(?:a|b)*)?", ".{0,5000}"])
def test_a_repeat_without_a_small_bound_is_refused(text):
    with pytest.raises(ValueError, match="bound it or make it possessive"):
        pattern(text)


@pytest.mark.parametrize("text", ["a*+", r"\s{0,9}x", "(?:ab)++", "(?:ab){0,3}", r"[^,]{1,200}"])
def test_a_bounded_or_possessive_repeat_is_compiled(text):
    assert pattern(text) is PATTERNS.pop()


def example(tree, rng) -> str:
    """A string that a parsed pattern may match, repeats once or twice."""
    return "".join(_example(op, argument, rng) for op, argument in tree)


def _example(op, argument, rng) -> str:
    if op is ops.LITERAL:
        return chr(argument)
    if op is ops.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    if op is ops.ANY:
        return rng.choice("a1 $")
    if op is ops.IN:
        return _of_class(argument, rng)
    if op is ops.BRANCH:
        return example(rng.choice(argument[1]), rng)
    if op is ops.SUBPATTERN:
        return example(argument[3], rng)
    if op is ops.ATOMIC_GROUP:
        return example(argument, rng)
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        low, high, body = argument
        return "".join(example(body, rng) for _ in range(rng.randint(low, max(low, min(high, low + 2)))))
    if op is ops.ASSERT and argument[0] > 0:
        return example(argument[1], rng)
    return ""


def _of_class(items, rng) -> str:
    named = {ops.CATEGORY_DIGIT: "7", ops.CATEGORY_SPACE: " ", ops.CATEGORY_WORD: "w", ops.CATEGORY_NOT_WORD: "-",
             ops.CATEGORY_NOT_SPACE: "s", ops.CATEGORY_NOT_DIGIT: "d"}  # fmt: skip
    if items[0][0] is ops.NEGATE:
        taken = {chr(a) for op, a in items[1:] if op is ops.LITERAL}
        return rng.choice([c for c in "a1 -$x,é" if c not in taken])
    op, argument = rng.choice(items)
    return chr(argument) if op is ops.LITERAL else chr(argument[0]) if op is ops.RANGE else named[argument]


def pieces(tree, rng) -> set[str]:
    """Examples of a pattern and of everything inside it that repeats or is an alternative."""
    found = {example(tree, rng) for _ in range(3)}
    for op, argument in tree:
        parts = []
        if op is ops.BRANCH:
            parts = argument[1]
        elif op is ops.SUBPATTERN:
            parts = [argument[3]]
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            parts = [argument[2]]
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            parts = [argument[1]]
        elif op is ops.ATOMIC_GROUP:
            parts = [argument]
        for part in parts:
            found |= pieces(part, rng)
    return {piece for piece in found if piece}


def inputs_of(compiled) -> list[str]:
    """What a pattern is fuzzed with: its pieces, alone and behind the pattern's own beginning."""
    rng = random.Random(0)
    tree = _parser.parse(compiled.pattern, compiled.flags & ~re.UNICODE)
    units = sorted(pieces(tree, rng))
    return rng.sample(units, min(len(units), 14)) + [a + b for a, b in zip(units, units[1:], strict=False)][:4]


def seconds(work, limit: float) -> float:
    """CPU seconds of some work: the least of up to five tries, of which the first within the limit is the last.

    A busy machine makes a measurement longer, never shorter.
    """
    tries = []
    while len(tries) < 5 and min(tries, default=float("inf")) > limit:
        start = time.process_time()
        work()
        tries.append(time.process_time() - start)
    return min(tries)


@pytest.mark.parametrize("part", range(12))
def test_no_pattern_takes_more_than_its_share_of_time_for_four_times_the_input(part):
    """Each pattern's own alternatives, n and 4n times, with an end that it cannot match.

    Linear is 4 times the time, quadratic 16; what takes next to no time for the long input is not looked at further.
    """
    slow = []
    for compiled in PATTERNS[part::12]:
        for unit in inputs_of(compiled):
            short, long = (unit * (length // len(unit) + 1) + END for length in (LENGTH, 4 * LENGTH))
            if (far := seconds(lambda text=long: search(compiled, text), 0.05)) > 0.05:
                near = max(seconds(lambda text=short: search(compiled, text), 0.0), 0.001)
                if far > 8 * near or far > SECONDS / 4:
                    slow.append((compiled.pattern, unit, near, far))
    assert slow == []


def search(compiled, text: str) -> None:
    compiled.search(text)
    compiled.fullmatch(text)


@pytest.mark.parametrize("name", ["gsm8k", "cmath", "math", "aime24", "sat", "gaokao_qa", "gaokao_cloze",
                                  "knights_and_knaves"])  # fmt: skip
def test_no_public_function_takes_a_second_for_a_hundred_thousand_characters(name):
    rng = random.Random(name)
    units = sorted({unit for compiled in PATTERNS for unit in inputs_of(compiled)})
    gold, slow = GOLDS[PROFILES[name].kind], []
    for unit in rng.sample(units, 25):
        for text in (
            unit * (100_000 // len(unit)),
            rf"\boxed{{{unit * (1_900 // len(unit))}}}",
            unit * (1_900 // len(unit)),
        ):
            if seconds(lambda text=text: all_public(text, gold, name), SECONDS) > SECONDS:
                slow.append((unit, len(text)))
    assert slow == []


def all_public(text: str, gold: str, name: str) -> None:
    forget()  # what was read before costs nothing
    grade(text, gold, name)
    extract(text, name), canonical(text, name), equivalent(gold, text, name)


@needs_data
def test_the_reported_slow_inputs_are_fast():
    for row in map(json.loads, (DATA / "grader_hang.jsonl").read_text("utf-8").splitlines()):
        response, gold, name, limit = row["response"], row["gold"], row["profile"], row["limit_seconds"]
        assert seconds(lambda: (forget(), grade(response, gold, name)), limit) < limit  # noqa: B023 -- called at once
        assert grade(response, gold, name).reward == row["should_match"]


@pytest.mark.parametrize("operator", ["/", "*", "^", " ", "+", "-", r"\cdot ", "**", r"\div "])
def test_a_long_chain_is_read_or_not_and_never_too_deep(operator):
    """What walks through an expression calls itself for each level: a trainer's own calls may lie below it."""
    former = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 700)
    try:
        for unit in ("2", "x", r"\sqrt{2}", "(1)"):
            for times in (60, 98, 99, 100, 101, 300, 900):
                text = operator.join([unit] * times)
                canonical(text, "math"), equivalent("5", text, "math")
    finally:
        sys.setrecursionlimit(former)
