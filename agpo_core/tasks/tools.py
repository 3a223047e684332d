"""Tools that a policy calls while it writes: a calculator, and Python in the sandbox.

A call is a piece of the policy's text between two marks. Where one is complete sampling stops, the tool runs, and its
output, between marks of its own, is appended as an *observation*; then the policy writes on. A task offers its tool
as an attribute, `tool`; `rollouts.turns` does the rest, for every engine.

Whatever stands in a call, it gets an observation: a tool answers what it cannot run with an error, and never raises
over what a policy wrote. Each call is run on its own; nothing is kept from one to the next.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agpo_core import sandbox
from agpo_core.tasks.expressions import ExpressionError, evaluate, parse
from agpo_core.tasks.problem import Task


@dataclass(frozen=True)
class Reply:
    """What a call gave: the output, and whether it is an error's."""

    output: str
    failed: bool = False


class Tool:
    """What a policy can call. A subclass sets the marks and runs calls.

    Attributes:
        call_marks: the text that opens a call, and the text that closes it.
        observation_marks: the text put before the output, and after it.
    """

    call_marks: tuple[str, str]
    observation_marks: tuple[str, str]

    @property
    def ends(self) -> set[str]:
        """Characters, with one of which every call ends: only where one was written is a text searched for a call."""
        return {self.call_marks[1][-1]}

    def run(self, calls: list[str]) -> list[Reply]:
        """Answer calls, in order. They come from different completions; several may run at once."""
        raise NotImplementedError

    def call(self, text: str) -> str | None:
        """The first complete call in a text, without its marks; None where there is none.

        Example:
            >>> Calculator().call("so <3*4>"), Calculator().call("so <3*")
            ('3*4', None)
        """
        opening, closing = self.call_marks
        _, opened, rest = text.partition(opening)
        inside, closed, _ = rest.partition(closing)
        return inside if opened and closed else None

    def observation(self, reply: Reply, characters: int) -> str:
        """A reply as the policy reads it, its output cut after a number of characters.

        Example:
            >>> Calculator().observation(Reply("1776"), 3)
            '=177;'
        """
        before, after = self.observation_marks
        return before + reply.output[:characters] + after


class Calculator(Tool):
    """`<37*48>` is answered by `=1776;`, and what has no value by `=?;`.

    It knows integers and + - * / (floor) % ^ and parentheses, see `expressions`.
    """

    call_marks = ("<", ">")
    observation_marks = ("=", ";")

    def run(self, calls):
        return [self._value(call) for call in calls]

    def _value(self, call: str) -> Reply:
        try:
            return Reply(str(evaluate(parse(call), {})))
        except ExpressionError:
            return Reply("?", failed=True)


class Python(Tool):
    """A fenced block of Python is run in the sandbox and answered by what it printed.

    A program that fails adds the last line of its traceback, one that is stopped the reason. Names, files and
    processes are gone with the block.

    Args:
        limits: what one call may use; at `seconds` it is killed with all that it started.
        weak: see `sandbox.run`.
    Raises:
        sandbox.SandboxRefused: the machine offers no sandbox; at once, not in the middle of a run.
    """

    call_marks = ("```python\n", "```")
    observation_marks = ("\n```output\n", "\n```\n")

    def __init__(self, limits: sandbox.Limits = sandbox.Limits(), weak: bool | None = None):
        sandbox.require("python", weak)
        self.limits, self.weak = limits, weak

    def run(self, calls):
        with ThreadPoolExecutor(sandbox.cores()) as pool:
            return list(pool.map(self._run, calls))

    def _run(self, call: str) -> Reply:
        result = sandbox.run(call, limits=self.limits, weak=self.weak)
        printed = result.stdout.strip()
        if result.reason == "ok":
            return Reply(printed or "(nothing was printed)")
        traceback = result.stderr.strip().splitlines()
        why = {
            "timeout": f"stopped: ran longer than {self.limits.seconds:g} seconds",
            "memory": "stopped: out of memory",
            "output": "stopped: printed too much",
        }.get(result.reason, traceback[-1] if traceback else "failed without a message")
        # The reason comes first: the end of a long output is cut.
        return Reply(f"{why}\n{printed}".strip(), failed=True)


def tool_of(task: Task) -> Tool | None:
    """The tool that a task offers; None where it offers none."""
    return getattr(task, "tool", None)
