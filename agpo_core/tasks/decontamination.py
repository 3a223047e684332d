"""Finds training prompts that overlap with evaluation prompts, so that they can be left out (AGPO §4.1).

The paper names no rule for this. We use two rules, on normalised prompts:

    exact     the same words in the same order
    n-gram    runs of n words that are in both prompts; n = 13 (GPT-3: Brown et al. 2020, App. C)
              share = |A ∩ B| / min(|A|, |B|),  A and B the sets of the two prompts' n-grams

A training problem overlaps if it shares a single n-gram. It is *contaminated*, and left out of a run that asks for it,
if it is an exact duplicate or shares at least half of the n-grams. (13 words in common are often only a phrase, as
"where m and n are relatively prime positive integers. Find". Half of all runs means the same text, or the same text
with other numbers.)

Words are runs of letters and digits; each Chinese character is a word, because Chinese has no spaces. Case, white space
and punctuation are dropped. What carries meaning in a formula stays: a single letter keeps its case (x is not X), and
signs are kept (12-5 is not 12+5). A prompt of fewer than n words is compared only exactly.

Text that is not part of the question is left out: lines that open or close all prompts of a set (a task's
instruction), and n-grams that are in more than 10 problems of the evaluation set (its phrases). Training problems are
not counted for this, because many copies of one evaluation problem are no phrase.

Neither rule finds a translation, a paraphrase, or a problem whose numbers break every run.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path

import pandas as pd

from agpo_core.tasks import SPLITS, Problem, get_task

NGRAM = 13  # words
CONTAMINATED = 0.5  # share of n-grams from which a problem is contaminated
COMMON = 10  # problems of an evaluation set; an n-gram that is in more is a phrase

_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(
    rf"[{_HAN}]"  # a Chinese character, or Japanese kana
    rf"|[^\W{_HAN}]+"  # a run of letters, digits and blanks to fill (_)
    r"|[+*/=<>^]|(?<![^\W\d])[-!]|-(?![^\W\d])"  # a sign; no hyphen between letters, no exclamation mark after one
)


@dataclass(frozen=True)
class Hit:
    """A training problem that overlaps with an evaluation set.

    Attributes:
        id: id of the training problem.
        evaluation_id: id of the evaluation problem with which it overlaps most; the first of several.
        exact: whether the two have the same words in the same order.
        share: share of their n-grams that both have, (0, 1]; 1 if exact.
    """

    id: str
    evaluation_id: str
    exact: bool
    share: float

    @property
    def contaminated(self) -> bool:
        """Whether the training problem is to be left out: an exact duplicate, or half of the n-grams shared."""
        return self.share >= CONTAMINATED


@dataclass(frozen=True)
class Overlap:
    """The overlap of a training set with an evaluation set.

    Attributes:
        n: words of an n-gram.
        train, evaluation: number of problems of each set.
        hits: the training problems that overlap, in their order.
        covered: share of the evaluation set's different n-grams that are in the training set, [0, 1]; phrases count as
            absent; NaN where no evaluation prompt has n words.
        short: number of training problems of fewer than n words.
    """

    n: int
    train: int
    evaluation: int
    hits: tuple[Hit, ...]
    covered: float
    short: int

    @property
    def contaminated(self) -> list[str]:
        """The ids of the training problems to be left out."""
        return [hit.id for hit in self.hits if hit.contaminated]


def overlap(train: Sequence[Problem], evaluation: Sequence[Problem], n: int = NGRAM) -> Overlap:
    """The training problems that overlap with an evaluation set.

    Args:
        train, evaluation: the problems of one set each; all ids in a set differ.
        n: words of an n-gram, >= 1.
    Raises:
        ValueError: a set is empty, or n < 1.
    Example:
        >>> train = [Problem("a", "0", "Tom has 3 pens. How many?", "3"), Problem("a", "1", "What is 12-5?", "7")]
        >>> overlap(train, [Problem("b", "9", "what is 12 - 5", "7")]).hits
        (Hit(id='1', evaluation_id='9', exact=True, share=1.0),)
    """
    return overlaps({"train": train}, {"evaluation": evaluation}, n)["train", "evaluation"]


def overlaps(
    train: Mapping[str, Sequence[Problem]], evaluation: Mapping[str, Sequence[Problem]], n: int = NGRAM
) -> dict[tuple[str, str], Overlap]:  # fmt: skip
    """The overlap of every training set with every evaluation set: {(train, evaluation): Overlap}; see `overlap`."""
    if n < 1:
        raise ValueError(f"n={n} must be 1 or more words; 13 is the usual choice.")
    for name, problems in (*train.items(), *evaluation.items()):
        if not problems:
            raise ValueError(f"{name} has no problems: give a set with at least one.")
    theirs = {name: _Index(problems, n) for name, problems in evaluation.items()}
    places = set().union(*(index.places for index in theirs.values()))
    found = {}
    for a, problems in train.items():
        ours = [_reduced(words(text), n, places) for text in questions(problems)]
        found |= {(a, b): _overlap(problems, ours, index, n) for b, index in theirs.items()}
    return found


class _Index:
    """An index of the texts and n-grams of an evaluation set; a place is a problem's number in the set.

    Attributes:
        ids: ids of the problems.
        first: {text: its first place}, for texts that have a word.
        places: {n-gram: its places, in order}.
        phrases: n-grams that are in more than `COMMON` problems.
        sizes: number of each problem's n-grams, without phrases.
    """

    def __init__(self, problems: Sequence[Problem], n: int):
        texts = [words(text) for text in questions(problems)]
        grams = [_grams(text, n) for text in texts]
        self.ids = [problem.id for problem in problems]
        self.first = {text: e for e, text in reversed([*enumerate(texts)]) if text}
        self.places = defaultdict(list)
        for e, several in enumerate(grams):
            for gram in several:
                self.places[gram].append(e)
        self.phrases = {gram for gram, where in self.places.items() if len(where) > COMMON}
        self.sizes = [len(several - self.phrases) for several in grams]


def _reduced(text: tuple[str, ...], n: int, places: set) -> tuple[tuple[str, ...], int, set]:
    """A training text, the number of its n-grams, and those n-grams that are in `places`; the others are not needed."""
    grams = _grams(text, n)
    return text, len(grams), grams & places


def _overlap(train: Sequence[Problem], ours: list[tuple[tuple[str, ...], int, set]], index: _Index, n: int) -> Overlap:
    """The overlap of one training set; `ours` has the result of `_reduced` for each training problem."""
    hits, seen = [], set()
    for problem, (text, size, grams) in zip(train, ours, strict=True):
        known = {gram for gram in grams if gram in index.places} - index.phrases
        seen |= known
        if text in index.first:
            hits.append(Hit(problem.id, index.ids[index.first[text]], True, 1.0))
        elif known:
            size -= len(grams & index.phrases)
            common = Counter(e for gram in known for e in index.places[gram])
            shares = {e: count / min(size, index.sizes[e]) for e, count in common.items()}
            best = min(shares, key=lambda e: (-shares[e], e))
            hits.append(Hit(problem.id, index.ids[best], False, shares[best]))
    return Overlap(
        n=n,
        train=len(train),
        evaluation=len(index.ids),
        hits=tuple(hits),
        covered=len(seen) / len(index.places) if index.places else float("nan"),
        short=sum(len(text) < n for text, *_ in ours),
    )


def words(text: str) -> tuple[str, ...]:
    """A text's words, normalised by Unicode's NFKC; words of two letters or more are case-folded.

    Example:
        >>> words("Well-known:  X＝１２－5, so x? 小明")
        ('well', 'known', 'X', '=', '12', '-', '5', 'so', 'x', '小', '明')
    """
    plain = unicodedata.normalize("NFKC", text).replace("\N{MINUS SIGN}", "-")
    return tuple(word.casefold() if len(word) > 1 else word for word in _WORD.findall(plain))


def questions(problems: Sequence[Problem]) -> list[str]:
    """The prompts of a set without the lines that open or close all of them (the task's instruction).

    Prompts that are all the same are kept whole, because their instruction cannot be told from their question.
    """
    lines = [problem.prompt.split("\n") for problem in problems]
    start = len(commonprefix(lines))
    rest = [line[start:] for line in lines]
    end = len(commonprefix([line[::-1] for line in rest]))
    if any(len(line) == end for line in rest):
        return [problem.prompt for problem in problems]
    return ["\n".join(line[: len(line) - end]) for line in rest]


def _grams(text: tuple[str, ...], n: int) -> set[tuple[str, ...]]:
    return set(zip(*(text[i:] for i in range(n)), strict=False))


def load_sets(names: Iterable[str], split: str, data_dir: str | Path | None = None) -> dict[str, list[Problem]]:
    """The problems of several sets.

    Args:
        names: tasks, each with or without a split after a colon (`cmath:dev`).
        split: the split of tasks named without one.
        data_dir: as for `tasks.get_task`.
    Returns:
        {name with split: problems}.
    Raises:
        ValueError: an unknown task or split.
        FileNotFoundError, ConnectionError: as the tasks' `problems`.
    """
    sets = {}
    for name in names:
        task, _, own = name.partition(":")
        own = own or split
        if own not in SPLITS:
            raise ValueError(f"{name!r} names the split {own!r}; use one of {', '.join(SPLITS)}")
        sets[f"{task}:{own}"] = get_task(task, data_dir).problems(own)
    return sets


def table(found: Mapping[tuple[str, str], Overlap]) -> pd.DataFrame:
    """A table with one row for each pair of sets.

    Its columns are train and evaluation (the sets); problems, exact, overlapping, contaminated and short (numbers of
    training problems); and covered.
    """
    rows = [
        {
            "train": train,
            "evaluation": evaluation,
            "problems": one.train,
            "exact": sum(hit.exact for hit in one.hits),
            "overlapping": len(one.hits),
            "contaminated": len(one.contaminated),
            "short": one.short,
            "covered": one.covered,
        }
        for (train, evaluation), one in found.items()
    ]
    return pd.DataFrame(rows)


def report(found: Mapping[tuple[str, str], Overlap]) -> str:
    """The table as text, then a line for every training problem that overlaps."""
    lines = [table(found).to_string(index=False, float_format="{:.4f}".format, na_rep="-")]
    for (train, evaluation), one in found.items():
        for hit in one.hits:
            how = "exact" if hit.exact else f"{hit.share:.2f} of {one.n}-grams"
            lines.append(f"{train} {hit.id}, {evaluation} {hit.evaluation_id}: {how}")
    return "\n".join(lines)
