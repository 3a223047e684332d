"""Preference pairs: a dialogue and two answers to it, of which one was preferred.

Two schemas are read: a dialogue with one message chosen and one rejected (`conversations`, `chosen`, `rejected`), and
two whole dialogues that differ in their last message (`chosen`, `rejected`; the 700K mix of R++ Table 1).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from agpo_core.tasks.benchmarks.records import Malformed, take, take_text
from agpo_core.tasks.benchmarks.sources import Hub, all_shards, from_hub, json_array, jsonl

HUB_ID = "OpenRLHF/preference_700K"
RELEASE = "preference pairs in a .json list or in .jsonl, with `chosen` and `rejected`"
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """`prompt`: (role, text) of each message up to the answers."""

    prompt: tuple[tuple[str, str], ...]
    chosen: str
    rejected: str

    def as_messages(self) -> dict[str, list[dict[str, str]]]:
        """The pair as TRL takes it: lists of {role, content}."""
        return {
            "prompt": [{"role": role, "content": text} for role, text in self.prompt],
            "chosen": [{"role": "assistant", "content": self.chosen}],
            "rejected": [{"role": "assistant", "content": self.rejected}],
        }


def preference_pairs(data_dir: str | Path | None = None, hub_id: str = HUB_ID, split: str = "train") -> list[Pair]:
    """All pairs of a folder's files, or of a data set on the hub. Pairs of two equal answers are left out.

    Args:
        data_dir: a folder with the files, or with a folder `preference` of them; None reads the hub.
        hub_id, split: the data set on the hub.
    Raises:
        FileNotFoundError, ValueError: no file is there, or a record is not a pair; names the file and the record.
        ConnectionError: the hub cannot be reached and its copy is not cached.
    """
    if data_dir is None:
        rows = from_hub("preference_pairs", Hub(hub_id, split, pair), RELEASE)
    else:
        try:
            rows = [
                row
                for path in _files(Path(data_dir).expanduser())
                for row in (jsonl if path.suffix == ".jsonl" else json_array)(path)
            ]
        except ValueError as error:
            raise ValueError(f"data_dir: {error}; give {RELEASE}") from error
    pairs = []
    for row, where in rows:
        try:
            pairs.append(pair(row))
        except Malformed as error:
            raise ValueError(f"data_dir: {where} {error}; give {RELEASE}") from error
    kept = [pair for pair in pairs if pair.chosen != pair.rejected]
    if len(kept) < len(pairs):
        _log.info("preference_pairs: left out %d pairs of two equal answers", len(pairs) - len(kept))
    if not kept:
        raise ValueError(f"data_dir: no pair was found; give {RELEASE}")
    return kept


def _files(folder: Path) -> list[Path]:
    for place in (folder / "preference", folder):
        if paths := sorted([*place.glob("*.json"), *place.glob("*.jsonl")]):
            return all_shards(paths)
    raise FileNotFoundError(f"data_dir: {str(folder)!r} has no file of pairs; give {RELEASE}")


def pair(row: object) -> Pair:
    """A row of either schema as a pair."""
    if isinstance(take(row, "chosen", dict, list), dict):
        prompt = _dialogue(row, "conversations")
        answers = [_message(take(row, name, dict)) for name in ("chosen", "rejected")]
    else:
        dialogues = [_dialogue(row, name) for name in ("chosen", "rejected")]
        prompt = dialogues[0][:-1]
        if dialogues[1][:-1] != prompt:
            raise Malformed("has dialogues in `chosen` and `rejected` that differ before their last message")
        answers = [dialogue[-1] for dialogue in dialogues]
    if {role for role, _ in answers} != {"assistant"} or not prompt or prompt[-1][0] != "user":
        raise Malformed("is not a dialogue that a user ends, with two answers of an assistant")
    return Pair(prompt, answers[0][1], answers[1][1])


def _dialogue(row: object, name: str) -> tuple[tuple[str, str], ...]:
    messages = tuple(_message(message) for message in take(row, name, list))
    if not messages:
        raise Malformed(f"has no message in `{name}`")
    return messages


def _message(message: object) -> tuple[str, str]:
    author, text = ("from", "value") if isinstance(message, dict) and "from" in message else ("role", "content")
    role = take_text(message, author)
    if role not in ROLES:
        raise Malformed(f"has a message from {role!r}, which is none of {', '.join(ROLES)}")
    return ROLES[role], take(message, text, str)
