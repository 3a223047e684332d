"""The expression language: its values, and that no text takes unbounded time or raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core.tasks.expressions import MAX_DEPTH, ExpressionError, evaluate, outputs, parse


def value(text, **inputs):
    return evaluate(parse(text), inputs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*x+4*y+3", 25),  # 2*5 + 4*3 + 3
        ("x-y-1", 1),  # (5 - 3) - 1: left to right
        ("7-(x-y)", 5),  # 7 - 2
        ("x*2%3", 1),  # 10 % 3
        ("-x/2", -3),  # floor(-5 / 2)
        ("2^3^2", 512),  # 2^(3^2)
        ("-2^2", -4),  # the power binds tighter than the sign
        (" x + y ", 8),
    ],
)
def test_a_program_has_the_value_of_school_arithmetic(text, expected):
    assert value(text, x=5, y=3) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "x+",
        "2x",
        "(x",
        "x)",
        "1 2",
        "x**2",
        "x;y",
        "x=1",
        "__import__('os')",
        "x.real",
        "１+１",
        "x\n+1",
    ],
)
def test_text_outside_the_language_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize("text", ["z", "x/0", "x%0", "2^(0-1)", "9^9^9", "10^10", "9999999*9999999", "(0-2)^99"])
def test_a_program_without_a_value_is_refused(text):
    with pytest.raises(ExpressionError):
        value(text, x=1)


def test_deep_nesting_and_long_programs_are_refused_before_they_are_run():
    nested = "(" * (MAX_DEPTH + 1) + "x" + ")" * (MAX_DEPTH + 1)
    for text in (
        nested,
        "-" * (MAX_DEPTH + 2) + "x",
        "(" * 100_000,
        "1+" * 100_000 + "1",
        "9" * 5000,
    ):
        with pytest.raises(ExpressionError):
            parse(text)


def test_outputs_hold_none_where_the_program_fails():
    tests = tuple(((("x", x),), 0) for x in (0, 1, 2))
    assert outputs("6/x", tests) == (None, 6, 3)
    assert outputs("6/", tests) is None


@given(st.text(alphabet="0123456789xy+-*/%^() q.", max_size=70))
def test_no_text_gets_an_exception_out(text):
    found = outputs(text, (((("x", 3), ("y", -2)), 0),))
    assert found is None or isinstance(found[0], int | None)
