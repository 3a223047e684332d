"""GSM8K (Cobbe et al. 2021) in its official format, from the hub or from a folder of the official files.

The release has a train and a test split and no dev split: ours is the last 200 problems of train, held out from
training. A folder that holds a part of train.jsonl gives up its own last 200.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from agpo_core import grading
from agpo_core.tasks import SPLITS, Graded, Problem
from agpo_core.tasks.benchmarks.loader import fault, refuse_folder_of_another, refuse_more, warn_of_a_part
from agpo_core.tasks.benchmarks.schemas import Malformed, take_text
from agpo_core.tasks.benchmarks.sources import Hub, Rows, from_hub, jsonl
from agpo_core.tasks.benchmarks.table import LISTED

HUB_ID, HUB_CONFIG = "openai/gsm8k", "main"
DEV_PROBLEMS = 200
INSTRUCTION = 'Think step by step, and end with "#### " followed by the answer as a number.'
FILES = "train.jsonl and test.jsonl of the official release, with a `question` and an `answer` a line"


class Gsm8k:
    """Grade-school word problems with worked solutions; the answer is a number."""

    name = "gsm8k"
    title = "GSM8K: grade-school word problems"
    stands_in_for = "GSM8K"

    def __init__(self, data_dir: str | Path | None = None):
        """`data_dir`: a folder with train.jsonl and test.jsonl; None reads the hub's `openai/gsm8k`.

        Raises:
            FileNotFoundError: `data_dir` is not a folder.
        """
        self.data_dir = None if data_dir is None else Path(data_dir).expanduser()
        if self.data_dir is not None and not self.data_dir.is_dir():
            raise FileNotFoundError(
                f"data_dir: no folder {str(self.data_dir)!r}; give one with {FILES}, or null for the hub's {HUB_ID}"
            )

    def problems(self, split: str) -> list[Problem]:
        """Train without its last 200 problems, these 200 as dev, and the official test split.

        Warns when there are fewer records than the official test split has.

        Raises:
            FileNotFoundError, ValueError: a file of `data_dir` is missing or not in the official format.
            ConnectionError: the hub cannot be reached and its copy is not cached.
        """
        if split not in SPLITS:
            raise ValueError(f"split: unknown split {split!r}; use one of {', '.join(SPLITS)}")
        if split == "test":
            warn_of_a_part(self.name, len(self._test), LISTED[self.name].sizes["test"])
            return list(self._test)
        if len(self._train) <= DEV_PROBLEMS:
            raise ValueError(
                f"data_dir: train has {len(self._train)} problems and dev takes its last {DEV_PROBLEMS}; "
                f"give more than {DEV_PROBLEMS}"
            )
        return self._train[-DEV_PROBLEMS:] if split == "dev" else self._train[:-DEV_PROBLEMS]

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Reward 1 for the right number: after "####", in a box, after "answer is", or the last of the text."""
        return grading.grade(completion, problem.answer, "gsm8k")

    @cached_property
    def _train(self) -> list[Problem]:
        return self._load("train")

    @cached_property
    def _test(self) -> list[Problem]:
        return self._load("test")

    def _load(self, split: str) -> list[Problem]:
        """An official split; a problem's id is its line in it, from 0."""
        origin = self.name if self.data_dir is None else "data_dir"
        try:
            records = [_record(row, where) for row, where in self._rows(split)]
            place = HUB_ID if self.data_dir is None else self.data_dir / f"{split}.jsonl"
            refuse_more(self.name, split, len(records), LISTED[self.name].sizes[split], place)
        except ValueError as error:
            raise ValueError(f"{origin}: {error}; give {FILES}") from error
        return [
            Problem(self.name, f"{split}-{i}", f"{question}\n{INSTRUCTION}", gold)
            for i, (question, gold) in enumerate(records)
        ]

    def _rows(self, split: str) -> Rows:
        if self.data_dir is None:
            return from_hub(self.name, Hub(HUB_ID, split, dict, (HUB_CONFIG,)), FILES)
        path = self.data_dir / f"{split}.jsonl"
        if not path.is_file():
            raise FileNotFoundError(f"data_dir: {str(self.data_dir)!r} has no {path.name}; put there {FILES}")
        refuse_folder_of_another(LISTED[self.name], (path.name,), self.data_dir)
        return jsonl(path)


def _record(row: object, where: str) -> tuple[str, str]:
    """The question, and the number after the worked solution's "####", both as the release writes them."""
    try:
        take_text(row, "question")
        _, marker, gold = take_text(row, "answer").rpartition("####")
    except Malformed as error:
        raise ValueError(f"{where} {error}") from error
    if not marker or fault(gold.strip(), LISTED[Gsm8k.name]):
        raise ValueError(f'{where} has no single number after "####" in its `answer`')
    return row["question"], gold.strip()
