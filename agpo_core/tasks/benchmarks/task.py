"""A benchmark as a task: splits, prompts, grades."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agpo_core import grading
from agpo_core.grading import Graded
from agpo_core.tasks.benchmarks.loader import draw, load, warn_of_a_part
from agpo_core.tasks.benchmarks.schemas import LETTERS, Record
from agpo_core.tasks.benchmarks.sources import official_folder
from agpo_core.tasks.benchmarks.table import Benchmark
from agpo_core.tasks.problem import Problem, check_split

DEV_SHARE = 20  # one question in 20 is held out from a training set without a dev split
EVALUATION_ONLY = (
    "tasks: {} is for evaluation only and is not trained on; take a training set, or set train_on_evaluation_sets to "
    "true: its scores then say nothing about the benchmark"
)
SHARED_PARTS = 10  # parts of an evaluation set that is trained on: 8 train, 1 dev, 1 test


@dataclass(frozen=True)
class BenchmarkProblem(Problem):
    """A problem with the parts of its prompt, for prompts of other forms; `options` are without their letters."""

    question: str = ""
    options: tuple[str, ...] = ()
    subject: str = ""


class BenchmarkTask:
    """A task made from a benchmark of the table.

    Test is the whole official split. Dev is the official split too. Where there is none, dev is held out from train:
    its last records, if the table says how many, or else the twentieth part that `draw` picks. A set that is for
    evaluation only has no training split, and a dev split only if there is an official one, because holding one out
    would change the test set. `for_training` gives such a set a training split.
    """

    def __init__(self, benchmark: Benchmark, data_dir: str | Path | None = None):
        """
        Args:
            benchmark: an entry of the table.
            data_dir: the folder of its official files, or of several benchmarks' folders; None reads the hub.
        Raises:
            FileNotFoundError: `data_dir` is not a folder.
        """
        self.benchmark = benchmark
        self.name, self.title, self.stands_in_for = benchmark.name, benchmark.title, benchmark.stands_in_for
        self.evaluation_only, self._shared = benchmark.evaluation_only, False
        hub_id = next((hub.id for hub in benchmark.hub.values()), None)
        self.data_dir = official_folder(data_dir, benchmark.release, hub_id)
        self.official = cache(self._load)

    def for_training(self) -> BenchmarkTask:
        """The task with a training split, also if it is for evaluation only.

        The dev split of such a set is then divided into train and dev (9 : 1). Without a dev split, its test split is
        divided into train, dev and test (8 : 1 : 1). A score on what is left of test is not the benchmark's score.
        """
        task = BenchmarkTask(self.benchmark, self.data_dir)
        task.evaluation_only, task._shared = False, self.benchmark.evaluation_only
        return task

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split, as the class describes it.

        Warns if there are fewer records than the official test split has.

        Raises:
            ValueError: there is no such split, it may not be trained on, or a file is not in the official format.
            FileNotFoundError: a file of `data_dir` is missing.
            ConnectionError: the hub cannot be reached and its copy is not cached.
        """
        check_split(split)
        if split == "train" and self.evaluation_only:
            raise ValueError(EVALUATION_ONLY.format(self.name))
        if split != "test" and self.benchmark.last_as_dev:
            return self._around_the_last(self.benchmark.last_as_dev, split)
        source, parts, chosen = self._source(split)
        found = tuple(p for p in self.official(source) if parts == 1 or draw(p.question, parts) in chosen)
        if not found:
            raise ValueError(
                f"data_dir: no {self.name} record here falls to {split}, which takes {len(chosen)} in {parts} of "
                f"{source}; give more of {self.benchmark.release}"
            )
        if split == "test" and not self._shared:
            warn_of_a_part(self.name, len(found), self.benchmark.sizes["test"])
        return list(found)

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Reward 1 for the right answer, by the rules of the benchmark's profile.

        An expression that was not worked out, or that is copied from the question, earns nothing and has no vote.

        Raises:
            TypeError: the benchmark has no right answers.
        """
        if self.benchmark.profile is None:
            raise TypeError(
                f"{self.name} has no right answers, so nothing grades it by rule: score completions with a reward "
                "model, or have a judge compare them"
            )
        profile = grading.get_profile(self.benchmark.profile).for_rewards()
        return grading.grade(completion, problem.answer, profile, question=problem.question)

    def _source(self, split: str) -> tuple[str, int, range]:
        """The official split that a split is taken from, the number of its parts, and the parts that are taken."""
        sizes = self.benchmark.sizes
        if self._shared and not ("dev" in sizes and split == "test"):
            source, test = ("dev", 1) if "dev" in sizes else ("test", 2)
            parts = {"dev": range(1), "test": range(1, test), "train": range(test, SHARED_PARTS)}
            return source, SHARED_PARTS, parts[split]
        if "train" in sizes and "dev" not in sizes and split != "test":
            return "train", DEV_SHARE, range(1) if split == "dev" else range(1, DEV_SHARE)
        if split in sizes:
            return split, 1, range(1)
        raise ValueError(
            f"split: {self.name} has no {split} split, only {' and '.join(sizes)}; set {split}_problems to 0"
        )

    def _around_the_last(self, count: int, split: str) -> list[Problem]:
        """The last `count` problems of train as dev, or the others as train."""
        train = self.official("train")
        if len(train) <= count:
            raise ValueError(
                f"data_dir: train has {len(train)} problems and dev takes its last {count}; give more than {count}"
            )
        return list(train[-count:] if split == "dev" else train[:-count])

    def _load(self, split: str) -> tuple[BenchmarkProblem, ...]:
        """The problems of an official split; an id is the split and the place in it, from 0."""
        records = load(self.benchmark, split, self.data_dir)
        return tuple(self._problem(record, f"{split}-{index}") for index, record in enumerate(records))

    def _problem(self, record: Record, identity: str) -> BenchmarkProblem:
        return BenchmarkProblem(
            task=self.name,
            id=identity,
            prompt="\n".join(filter(None, (asked(record, self.benchmark.language), self.benchmark.instruction))),
            answer=record.answer,
            question=record.question,
            options=record.options,
            subject=record.subject,
        )


def asked(record: Record | BenchmarkProblem, language: str) -> str:
    """A question with its options, written as in DeepSeekMath's evaluation.

    Departure: its zero-shot prompt of GaokaoMath-QA shows the options as a Python list with every backslash doubled;
    here they are written as in its few-shot prompt.
    """
    if not record.options:
        return record.question
    if language == "zh":
        options = " ".join(f"({letter}){text}" for letter, text in zip(LETTERS, record.options, strict=True))
        return f"{record.question}\n从以下选项中选择:    {options}"
    options = ", ".join(f"({letter}) {text.strip()}" for letter, text in zip(LETTERS, record.options, strict=True))
    return f"{record.question}\nWhat of the following is the right choice? Explain your answer.\n{options}"
