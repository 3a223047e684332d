"""Turns a row of a release into a record, with one function for each schema.

A schema takes a row as the file or the hub gives it and returns a `Record`, or raises `Malformed` with what is wrong;
the loader adds the place. All schemas of a benchmark give the same record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite

from agpo_core.grading import canonical
from agpo_core.grading.extraction import boxes

LETTERS = "ABCD"


class Malformed(ValueError):
    """A row is not in its schema; the message says what is wrong."""


@dataclass(frozen=True)
class Record:
    """One question of a benchmark. `answer` is the gold as the release writes it; empty if there is none."""

    question: str
    answer: str
    options: tuple[str, ...] = ()
    subject: str = ""


Schema = Callable[[object], Record]


def take(row: object, name: str, *kinds: type):
    """The field `name` of a row, which must be of one of the types `kinds`."""
    if not isinstance(row, Mapping):
        raise Malformed(f"is of type {type(row).__name__}, not an object with named fields")
    if name not in row:
        raise Malformed(f"has no field `{name}` (its fields: {', '.join(map(str, row)) or 'none'})")
    value = row[name]
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise Malformed(f"has `{name}` of type {type(value).__name__} instead of {expected}")
    return value


def take_text(row: object, name: str) -> str:
    """A field with text that is not empty, without the blanks around it."""
    value = take(row, name, str).strip()
    if not value:
        raise Malformed(f"has an empty `{name}`")
    return value


def take_number(row: object, name: str) -> str:
    """A field with a number or a text, as text. A whole number gets one spelling: 27.0 is 27, and 025 is 25."""
    value = take(row, name, int, float, str)
    if isinstance(value, float) and not isfinite(value):
        raise Malformed(f"has `{name}` {value}, which is no finite number")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    value = str(value).strip()
    if not value:
        raise Malformed(f"has an empty `{name}`")
    return str(int(value)) if re.fullmatch(r"-?\d{1,1000}", value) else value


def open_question(row: object, question: str = "problem", answer: str = "answer", subject: str | None = None) -> Record:
    """The record of a row that has question and answer as text in two fields."""
    return Record(take_text(row, question), take_text(row, answer), subject=take_text(row, subject) if subject else "")


def named(question: str, answer: str, subject: str | None = None) -> Schema:
    """The schema `open_question` with other field names."""
    return partial(open_question, question=question, answer=answer, subject=subject)


def contest(row: object, question: str = "problem", answer: str = "answer") -> Record:
    """A contest problem, whose answer may be a JSON number."""
    return Record(take_text(row, question), take_number(row, answer))


def gsm8k(row: object) -> Record:
    """GSM8K: the gold is the number after the worked solution's "####", as the release writes it."""
    take_text(row, "question")
    _, marker, gold = take_text(row, "answer").rpartition("####")
    if not marker or canonical(gold.strip(), "gsm8k") is None:
        raise Malformed('has no single number after "####" in its `answer`')
    return Record(row["question"], gold.strip())


def math(row: object) -> Record:
    """MATH: the gold is the content of the last box of the solution."""
    solution = take_text(row, "solution")
    found = boxes(solution)
    if not found or not found[-1][2].strip():
        raise Malformed("has no \\boxed{} answer in its `solution`")
    return Record(take_text(row, "problem"), found[-1][2].strip(), subject=take_text(row, "type"))


def math_answer(row: object) -> Record:
    """MATH with answers that were taken out of the solutions; null where there was none."""
    answer = take(row, "answer", str, type(None)) or ""
    return Record(take_text(row, "problem"), answer.strip(), subject=take_text(row, "type"))


def _filled(options: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The options, after a check that none is empty."""
    for letter, option in zip(LETTERS, options, strict=True):
        if not option.strip():
            raise Malformed(f"has an empty option ({letter}) in `{name}`")
    return options


def _letter(value: str, options: tuple[str, ...], name: str) -> str:
    letters = re.sub(r"[\s,]", "", value)
    if not letters or set(letters) - set(LETTERS[: len(options)]) or len(set(letters)) < len(letters):
        raise Malformed(f"has `{name}` {value!r}, which is not among the letters of its {len(options)} options")
    return letters


def sat(row: object, question: str = "question", options: str = "options", answer: str = "Answer") -> Record:
    """Llemma's SAT: the options are one text, `A) … B) … C) … D) …`; in one record it is `A. … B. …`."""
    text = take_text(row, options)
    pieces = re.split(r"(?:^|\s)([A-D])[).]\s", text)
    if pieces[0] or "".join(pieces[1::2]) != LETTERS:
        raise Malformed(f"has `{options}` {text[:60]!r}, which is not `A) … B) … C) … D) …`")
    choices = _filled(tuple(piece.strip() for piece in pieces[2::2]), options)
    return Record(take_text(row, question), _letter(take_text(row, answer), choices, answer), choices)


def _lettered(row: object, name: str) -> tuple[str, ...]:
    """Options written `(A)…`, without their letters."""
    options = take(row, name, list)
    for letter, option in zip(LETTERS, options, strict=False):
        if not isinstance(option, str) or not option.startswith(f"({letter})"):
            raise Malformed(f"has `{name}` with {option!r} in the place of option ({letter})")
    if len(options) != len(LETTERS):
        raise Malformed(f"has {len(options)} `{name}` instead of {len(LETTERS)}")
    return _filled(tuple(option[3:] for option in options), name)


def _tidy(question: str) -> str:
    """GaokaoMath-QA ends many a question with a LaTeX line break."""
    return question.strip().rstrip("\\").rstrip()


def _with_passage(passage: str | None, question: str) -> str:
    return f"{passage.strip()}\n{question}" if passage and passage.strip() else question


def agieval_choice(row: object) -> Record:
    """AGIEval's own files: a passage or null, a question, options, and one or several letters."""
    options = _lettered(row, "options")
    question = _with_passage(take(row, "passage", str, type(None)), _tidy(take_text(row, "question")))
    return Record(question, _letter(take_text(row, "label"), options, "label"), options)


def agieval_cloze(row: object) -> Record:
    """AGIEval's own file: a question with blanks, and their answers in order, separated by semicolons."""
    return open_question(row, "question", "answer")


def _between(query: str, head: str, tail: str) -> tuple[str, str]:
    """The text before the head of a zero-shot prompt, and the text between head and tail."""
    before, found_head, rest = query.partition(head)
    inside, found_tail, _ = rest.rpartition(tail)
    if not found_head or not found_tail:
        raise Malformed(f"has a `query` without {head!r} and {tail!r}")
    return before, inside


def agieval_choice_on_hub(row: object, head: str, tail: str) -> Record:
    """The hub's copy of AGIEval: the question is inside a zero-shot prompt, and the letters are given as places."""
    options = _lettered(row, "choices")
    passage, question = _between(take_text(row, "query"), head, tail)
    gold = take(row, "gold", list)
    if not gold or any(place not in range(len(options)) for place in gold):
        raise Malformed(f"has `gold` {gold!r}, which are not places in its {len(options)} options")
    return Record(_with_passage(passage, _tidy(question)), "".join(LETTERS[place] for place in gold), options)


def agieval_cloze_on_hub(row: object) -> Record:
    _, question = _between(take(row, "query", str), "问题：", "\n答案：")
    return Record(question.strip(), take_text(row, "answer"))


def mmlu(row: object) -> Record:
    """MMLU in the hub's schema; `mmlu_csv` reads the official files into the same schema."""
    options = take(row, "choices", list)
    if len(options) != len(LETTERS) or not all(isinstance(option, str) for option in options):
        raise Malformed(f"has `choices` {options!r} instead of {len(LETTERS)} texts")
    answer = take(row, "answer", int, str)
    if isinstance(answer, int):
        if answer not in range(len(LETTERS)):
            raise Malformed(f"has `answer` {answer}, which is no place in its choices")
        answer = LETTERS[answer]
    options = _filled(tuple(option.strip() for option in options), "choices")
    return Record(take_text(row, "question"), _letter(answer, options, "answer"), options, take_text(row, "subject"))


def prompt_only(row: object) -> Record:
    """Arena-Hard, in its schemas of 2024 (turns) and 2025 (prompt)."""
    category = "cluster" if isinstance(row, Mapping) and row.get("cluster") else "subcategory"
    if isinstance(row, Mapping) and "turns" in row:
        turns = take(row, "turns", list)
        if len(turns) != 1:
            raise Malformed(f"has {len(turns)} `turns` instead of one")
        return Record(take_text(turns[0], "content"), "", subject=take_text(row, category))
    return Record(take_text(row, "prompt"), "", subject=take_text(row, category))


def orz(row: object) -> Record:
    """ORZ: a dialogue of two turns; the hub has them in the columns 0 and 1."""
    turns = [row["0"], row["1"]] if isinstance(row, Mapping) and {"0", "1"} <= set(row) else row
    if not isinstance(turns, list) or len(turns) != 2:
        raise Malformed("is not a list of two turns")
    return Record(take_text(turns[0], "value"), take_number(take(turns[1], "ground_truth", Mapping), "value"))


_DAPO_HEAD = "Solve the following math problem step by step."
_DAPO_TAIL = 'Remember to put your answer on its own line after "Answer:".'


def chat_prompt(row: object) -> Record:
    """One user message and its gold, in verl's schema or in prompt/label; DAPO's fixed lines around it are removed."""
    messages = take(row, "prompt", list)
    if len(messages) != 1:
        raise Malformed(f"has {len(messages)} messages in its `prompt` instead of one")
    question = take_text(messages[0], "content")
    if question.startswith(_DAPO_HEAD):
        question = question.partition("\n\n")[2]
    question = question.removesuffix(_DAPO_TAIL).strip()
    if not question:
        raise Malformed("has a `prompt` without a question")
    if "label" in row:
        return Record(question, take_number(row, "label"))
    return Record(question, take_number(take(row, "reward_model", Mapping), "ground_truth"))
