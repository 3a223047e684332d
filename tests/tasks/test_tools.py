"""Tools: calls and their answers, and the task `products`."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import sandbox
from agpo_core.tasks import Problem, get_task, tools
from agpo_core.tasks.micro import ALPHABET, pool
from agpo_core.tasks.tools import Calculator, Python, Reply, tool_of


def answer(tool, text, characters=1000):
    """What the policy reads after it wrote a text that ends in a call."""
    return tool.observation(tool.run([tool.call(text)])[0], characters)


# -- calls


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("<3*4>", "3*4"),
        ("3*4 is <3*4>", "3*4"),
        ("<3*4>, so", "3*4"),  # a token may reach past the mark
        ("<>", ""),
        ("<1<2>", "1<2"),
        ("<1><2>", "1"),
        ("<3*4", None),
        ("3*4>", None),
        (">3*4<", None),
        ("", None),
    ],
)
def test_a_call_is_what_stands_between_the_first_pair_of_marks(text, call):
    assert Calculator().call(text) == call


@pytest.mark.parametrize(
    ("text", "observation"),
    [
        ("<37*48>", "=1776;"),
        ("<7-9>", "=-2;"),
        ("<(2+3)*4>", "=20;"),
        ("<7/2>", "=3;"),
        ("<3*>", "=?;"),
        ("<>", "=?;"),
        ("<1/0>", "=?;"),
        ("<x>", "=?;"),
        ("<9^99>", "=?;"),
        ("<" + "(" * 60 + ">", "=?;"),
    ],
)
def test_the_calculator_gives_a_value_or_a_question_mark(text, observation):
    tool = Calculator()
    assert answer(tool, text) == observation
    assert tool.run([tool.call(text)])[0].failed is ("?" in observation)


@given(st.text(max_size=80) | st.text("0123456789+-*/%^() ", max_size=80))
@settings(derandomize=True, max_examples=60)
def test_no_text_makes_the_calculator_raise(call):
    reply = Calculator().run([call])[0]
    assert reply.failed is (reply.output == "?")


def test_calls_are_answered_in_their_order():
    assert [reply.output for reply in Calculator().run(["1+1", "x", "2*3"])] == ["2", "?", "6"]


@pytest.mark.parametrize(("characters", "text"), [(1, "=1;"), (3, "=177;"), (4, "=1776;"), (9, "=1776;")])
def test_the_output_is_cut_and_the_marks_stay(characters, text):
    assert Calculator().observation(Reply("1776"), characters) == text


# -- Python


@pytest.fixture(scope="module")
def python():
    try:
        return Python(sandbox.Limits(seconds=5.0))
    except sandbox.SandboxRefused as refusal:
        pytest.skip(str(refusal))


def block(program):
    return f"Let me compute.\n```python\n{program}\n```"


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (block("print(1)"), "print(1)\n"),
        ("```python\nprint(1)\n``", None),
        ("```python", None),
        ("```", None),
        ("```\nprint(1)\n```", None),
    ],
)
def test_a_fenced_block_of_python_is_a_call(python, text, call):
    assert python.call(text) == call


@pytest.mark.parametrize(
    ("program", "output", "failed"),
    [
        ("print(37 * 48)", "1776", False),
        ("x = 1", "(nothing was printed)", False),
        ("print(7)\nprint(nothing)", "NameError: name 'nothing' is not defined\n7", True),
        ("print(", "SyntaxError: '(' was never closed", True),
        ("import os; os._exit(3)", "failed without a message", True),
    ],
)
def test_a_program_is_answered_by_what_it_printed_or_by_its_error(python, program, output, failed):
    assert python.run([python.call(block(program))]) == [Reply(output, failed)]


def test_an_observation_of_python_has_marks_of_its_own(python):
    assert answer(python, block("print(2)")) == "\n```output\n2\n```\n"


def test_a_program_that_hangs_is_stopped_and_its_neighbours_are_answered(python):
    short = Python(sandbox.Limits(seconds=0.5))
    hang, one = short.run(["while True: pass", "print(1)"])
    assert hang == Reply("stopped: ran longer than 0.5 seconds", failed=True)
    # A busy machine may stop the other one, too; it cannot change its answer.
    assert one == Reply("1") or one.failed


def test_why_a_program_was_stopped_comes_before_what_it_printed(monkeypatch):
    """The end of a long output is cut off, so the reason must come first; this test needs no sandbox."""
    monkeypatch.setattr(sandbox, "require", lambda *_: None)
    for reason, why in (
        ("timeout", "stopped: ran longer than 5 seconds"),
        ("memory", "stopped: out of memory"),
        ("output", "stopped: printed too much"),
        ("crashed", "ValueError: no"),
    ):
        result = sandbox.Result("7\n", "Traceback\nValueError: no\n", None, reason, 1.0)
        monkeypatch.setattr(sandbox, "run", lambda *_, result=result, **__: result)
        assert Python().run(["x"]) == [Reply(f"{why}\n7", failed=True)]


def test_a_machine_without_a_sandbox_is_found_out_at_once(monkeypatch):
    def refuse(language, weak):
        raise sandbox.SandboxRefused("no sandbox here")

    monkeypatch.setattr(tools.sandbox, "require", refuse)
    with pytest.raises(sandbox.SandboxRefused, match="no sandbox here"):
        Python()


# -- products

PROBLEM = Problem("products", "0", "137*48=", "6576")


def test_tasks_without_a_tool_have_none():
    assert tool_of(get_task("steps")) is None
    assert isinstance(tool_of(get_task("products")), Calculator)


def test_products_keep_their_pools_apart_and_their_characters_in_the_vocabulary():
    task = get_task("products")
    pairs = list(islice(task.demonstrations(seed=1), 2000))
    for split in ("train", "dev", "test"):
        assert all(pool(problem.prompt) == split for problem in task.problems(split))
    for context, written in pairs:
        assert pool(context.partition("=")[0] + "=") == "supervised"
        assert set(context + written) <= set(ALPHABET)


@pytest.mark.parametrize(("asked", "calls_share", "slips_share"), [((), 0.15, 0.5), ((0.3, 0.3), 0.3, 0.3)])
def test_demonstrations_call_and_err_in_the_shares_asked_for(asked, calls_share, slips_share):
    pairs = list(islice(get_task("products").demonstrations(2, *asked), 6000))
    firsts = [(context, written) for context, written in pairs if context.endswith("=")]
    seconds = [(context, written) for context, written in pairs if context.endswith(";")]
    calls = [(context, written) for context, written in firsts if written.startswith("<")]
    assert len(calls) - len(seconds) in (0, 1)  # the slice may end between two turns
    assert len(calls) / len(firsts) == pytest.approx(calls_share, abs=0.03)  # 4,600 or more: standard error .007
    slips = [written for context, written in calls if written != f"<{context[:-1]}>"]
    assert len(slips) / len(calls) == pytest.approx(slips_share, abs=0.08)  # 440 calls or more: standard error .023
    for context, written in seconds:
        assert context.endswith(f"={written};")  # the policy copies the observation


def test_an_answer_is_the_last_number_after_the_last_call():
    task = get_task("products")
    for text, reward in (
        ("6576", 1),
        ("<137*48>6576", 1),
        ("<1*1><137*48>6576", 1),
        ("<6576>", 0),  # a call is no answer
        ("6576<137*48>", 0),
        ("<137*48>6577", 0),
        ("", 0),
    ):
        assert task.grade(PROBLEM, text).reward == reward, text


def test_a_slip_calls_with_a_wrong_digit_and_is_never_right():
    task, rng = get_task("products"), Random(0)
    for index in range(200):
        item = task.item("supervised", rng, index)
        right, wrong = (task.demonstrate(item, rng, slip) for slip in (False, True))
        assert right == f"<{item.prompt[:-1]}>"
        assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
        values = [task.tool.run([task.tool.call(text)])[0].output for text in (right, wrong)]
        assert values[0] == item.answer != values[1]
