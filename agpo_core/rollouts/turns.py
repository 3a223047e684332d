"""Turns: the policy writes, its tool answers, the policy writes on (R++ Table 4). One loop for every engine.

An engine samples one turn of many completions at once; `converse` does what lies between two turns. What is not a
setting:

* Observation tokens belong to the text that the policy reads, and to nothing else: they are present, not sampled.
  Losses, ratios, KL, entropy, statistics and the token ledger see sampled tokens alone.
* Token t of a completion's random stream is its t-th *sampled* token: the length of an observation shifts no number.
* `max_completion_tokens` bounds the sampled tokens of all turns together, `max_sequence_tokens` prompt, sampled tokens
  and observations. A completion whose next turn would lie beyond a limit ends before it, and counts as truncated: one
  that calls in turn `max_turns` (the tool is not asked), or whose observation leaves no room (it is not appended).
* Observations are encoded as plain text: a program cannot print an end-of-sequence token.
"""

from dataclasses import dataclass, field
from typing import Protocol

from agpo_core.config import TrainConfig
from agpo_core.tasks.tools import Tool


@dataclass
class Row:
    """One completion in the making.

    Attributes:
        slot, sample: with seed, phase and update the key of its random stream.
        tau: temperature, >= 0; 0 decodes greedily.
        tool: what it may call; None: nothing, its first turn is its last.
        prompt_ids: its prompt.
        ids, sampled, logps: what follows the prompt; `sampled` is False on observations, whose log-probability is 0.
        calls, failed: calls that were answered, and those among them that were answered by an error.
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
        """Tokens sampled so far: the index of the next in the random stream."""
        return sum(self.sampled)

    def room(self, config: TrainConfig, observed: int = 0) -> int:
        """Tokens that may still be sampled, after an observation of so many tokens."""
        present = len(self.prompt_ids) + len(self.ids) + observed
        return min(config.max_completion_tokens - self.drawn, config.max_sequence_tokens - present)

    def append(self, ids: list[int], logps: list[float] | None = None) -> None:
        """Add sampled tokens with their log-probabilities, or an observation's tokens without."""
        self.ids += ids
        self.sampled += [logps is not None] * len(ids)
        self.logps += [0.0] * len(ids) if logps is None else logps


@dataclass
class Turn:
    """What a row sampled in one turn.

    It ends with an end-of-sequence token, with the token that completes a call, or where the row has no room left.

    Attributes:
        ids, logps: the tokens, and their log-probabilities under the distribution that drew them.
        call: the call that ended it; None: something else did.
        cut: it ended for want of room alone.
    """

    ids: list[int]
    logps: list[float]
    call: str | None = None
    cut: bool = False


class Engine(Protocol):
    """What `converse` needs of an engine."""

    tokenizer: object
    config: TrainConfig

    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Sample the next turn of each row, on top of its prompt and all that follows it."""


def converse(engine: Engine, rows: list[Row], turns: list[Turn], phase: str, update: int) -> None:
    """Take completions through all their turns; the rows are filled in place.

    Args:
        engine: samples the turns after the first.
        rows: one a completion, empty.
        turns: their first turns, which an engine samples on top of a prompt's shared computation.
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
    """Append an observation to each row that waits for one; the rows that may write on."""
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
