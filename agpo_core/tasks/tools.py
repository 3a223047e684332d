"""Tools that a policy calls while it writes: a calculator, and Python in the sandbox.

A call is a piece of the policy's text between two marks. When a call is complete, sampling stops and the tool runs.
Its output, between marks of its own, is appended as an *observation*, and the policy writes on. A task offers its tool
as the attribute `tool`; `rollouts.turns` does the rest for every engine.

Every call gets an observation. A tool answers a call that it cannot run with an error message, and never raises because
of what a policy wrote. Each call is run separately; nothing is kept from one to the next.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agpo_core import sandbox
from agpo_core.tasks.expressions import ExpressionError, evaluate, parse
from agpo_core.tasks.problem import Task


@dataclass(frozen=True)
class Reply:
    """A tool's answer to a call: the output, and whether it reports an error."""

    output: str
    failed: bool = False


class Tool:
    """A tool that a policy can call. A subclass sets the marks and runs calls.

    Attributes:
        call_marks: the text that opens a call and the text that closes it.
        observation_marks: the text put before the output and the text put after it.
    """

    call_marks: tuple[str, str]
    observation_marks: tuple[str, str]

    @property
    def ends(self) -> set[str]:
        """Characters with which a call can end; a text is searched for a call only after one of them was written."""
        return {self.call_marks[1][-1]}

    def run(self, calls: list[str]) -> list[Reply]:
        """The replies to some calls, in order. The calls come from different completions; several may run at once."""
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
        """A reply as the policy reads it: between its marks, with the output cut after `characters` characters.

        Example:
            >>> Calculator().observation(Reply("1776"), 3)
            '=177;'
        """
        before, after = self.observation_marks
        return before + reply.output[:characters] + after


class Calculator(Tool):
    """A calculator: it answers `<37*48>` with `=1776;`, and an expression without a value with `=?;`.

    It computes with integers and + - * / (floor division) % ^ and parentheses, see `expressions`.
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
    """Python in the sandbox: it runs a fenced block and answers with what the block printed.

    If the program fails, the answer starts with the last line of its traceback; if it is stopped, with the reason.
    Names, files and processes do not outlive the block.

    Args:
        limits: what one call may use; after `seconds` it is killed with all that it started.
        weak: see `sandbox.run`.
    Raises:
        sandbox.SandboxRefused: the machine offers no sandbox. This is raised here and not in the middle of a run.
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
        # The reason comes first, because the end of a long output is cut off.
        return Reply(f"{why}\n{printed}".strip(), failed=True)


def tool_of(task: Task) -> Tool | None:
    """The tool that a task offers, or None."""
    return getattr(task, "tool", None)
