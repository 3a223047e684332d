"""Turns: the policy writes, its tool answers, the policy writes on (R++ Table 4). One loop for every engine.

An engine samples one turn of many completions at once; `converse` calls the tools between two turns. These choices are
not settings:

* Observation tokens are part of the text that the policy reads, and of nothing else: they are present, but not sampled.
  Losses, ratios, KL, entropy, statistics and the token ledger use sampled tokens only.
* Index t of a completion's random stream counts its *sampled* tokens, so the length of an observation does not change
  which random number a token gets.
* `max_completion_tokens` bounds the sampled tokens of all turns together; `max_sequence_tokens` bounds prompt, sampled
  tokens and observations together. A completion whose next turn would lie beyond a limit ends before that turn and
  counts as truncated. This happens if it calls its tool in turn `max_turns` (the tool is not run), or if the
  observation leaves no room (it is not appended).
* Observations are encoded as plain text: a program cannot print an end-of-sequence token.
"""

from dataclasses import dataclass, field
from typing import Protocol

from agpo_core.config import TrainConfig
from agpo_core.tasks.tools import Tool


@dataclass
class Row:
    """One completion while it is being sampled.

    Attributes:
        slot, sample: key its random stream, together with seed, phase and update.
        tau: temperature, >= 0; 0 decodes greedily.
        tool: the tool that it may call; None: no tool, so its first turn is its last.
        prompt_ids: its prompt.
        ids, sampled, logps: the tokens after the prompt; `sampled` is False on observations, whose log-probability is
            0.
        calls, failed: numbers of calls that were answered, and that were answered with an error.
        truncated: a limit ended it.
    """

    slot: int
    sample: int
    tau: float
    tool: Tool | None
    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    calls: int = 0
    failed: int = 0
    truncated: bool = False

    @property
    def drawn(self) -> int:
        """Number of tokens sampled so far, which is the index of the next one in the random stream."""
        return sum(self.sampled)

    def room(self, config: TrainConfig, observed: int = 0) -> int:
        """Number of tokens that may still be sampled, after an observation of `observed` tokens."""
        present = len(self.prompt_ids) + len(self.ids) + observed
        return min(config.max_completion_tokens - self.drawn, config.max_sequence_tokens - present)

    def append(self, ids: list[int], logps: list[float] | None = None) -> None:
        """Add sampled tokens with their log-probabilities, or an observation's tokens without."""
        self.ids += ids
        self.sampled += [logps is not None] * len(ids)
        self.logps += [0.0] * len(ids) if logps is None else logps


@dataclass
class Turn:
    """The tokens that a row sampled in one turn.

    It ends with an end-of-sequence token, with the token that completes a call, or where the row has no room left.

    Attributes:
        ids, logps: the tokens, and their log-probabilities under the distribution that drew them.
        call: the call that ended it; None: something else did.
        cut: whether it ended only because there was no room left.
    """

    ids: list[int]
    logps: list[float]
    call: str | None = None
    cut: bool = False


class Engine(Protocol):
    """The part of an engine that `converse` needs."""

    tokenizer: object
    config: TrainConfig

    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Sample the next turn of each row, after its prompt and everything that follows the prompt."""


def converse(engine: Engine, rows: list[Row], turns: list[Turn], phase: str, update: int) -> None:
    """Take completions through all their turns; the rows are filled in place.

    Args:
        engine: samples the turns after the first.
        rows: one empty row per completion.
        turns: their first turns, which an engine samples from a prompt's shared computation.
        phase, update: key the random streams.
    """
    left = engine.config.max_turns
    while True:
        waiting = []
        for row, turn in zip(rows, turns, strict=True):
            row.append(turn.ids, turn.logps)
            row.truncated = turn.cut
            if turn.call is not None:
                waiting.append((row, turn.call))
        left -= 1
        rows = _answered(engine, waiting, last=left == 0)
        if not rows:
            return
        turns = engine.turn(rows, phase, update)


def _answered(engine: Engine, waiting: list[tuple[Row, str]], last: bool) -> list[Row]:
    """Append an observation to each row that waits for one; returns the rows that may go on."""
    asked = []
    for row, call in waiting:
        row.truncated = last or row.room(engine.config) < 1
        if not row.truncated:
            asked.append((row, call))
    texts = {}
    for tool in {id(row.tool): row.tool for row, _ in asked}.values():
        places = [i for i, (row, _) in enumerate(asked) if row.tool is tool]
        for i, reply in zip(places, tool.run([asked[i][1] for i in places]), strict=True):
            asked[i][0].calls += 1
            asked[i][0].failed += reply.failed
            texts[i] = tool.observation(reply, engine.config.max_observation_characters)
    for i, (row, _) in enumerate(asked):
        ids = engine.tokenizer(texts[i], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        row.truncated = row.room(engine.config, len(ids)) < 1
        if not row.truncated:
            row.append(ids)
    return [row for row, _ in asked if not row.truncated]
