"""The benchmarks as data: what each asks, how it is graded, where its records are, and in which schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from agpo_core.tasks.benchmarks import schemas
from agpo_core.tasks.benchmarks.sources import (
    Files,
    Hub,
    json_array,
    json_object,
    jsonl,
    matharena,
    mmlu_csv,
    parquet,
)

BOXED = {
    "en": "Please reason step by step, and put your final answer within \\boxed{}.",
    "zh": "请通过逐步推理来解答问题，并把最终答案放置于\\boxed{}中。",
}  # of DeepSeekMath's zero-shot evaluation


@dataclass(frozen=True)
class Benchmark:
    """One benchmark or training set.

    Args:
        name, title, stands_in_for: as for every task.
        language: "en" or "zh".
        kind: what an answer is: "number", "formula", "choice", "blanks", "roles", "program"; "prompt" for none.
        profile: name of its grading profile; None: no rule grades it.
        metric: the metric that is reported on it.
        evaluation_only: whether it is not trained on unless `train_on_evaluation_sets` is set.
        sizes: {official split: number of records}; None: not fixed by the release.
        release: the official files, in words, for error messages.
        folders: their folders below a folder of several benchmarks' files; that folder itself is tried last.
        files: {official split: the layouts to look for, in this order}.
        hub: {official split: where the hub has it}; a split that is missing here exists only in files.
        deduplicated: whether records with the same question are merged into one.
        not_by_rule: {record: the reason} for records that no rule can grade; they equal only their own text.
        golds: what every gold is, in words and as a pattern of its canonical answer; None: all that the profile reads.
        last_as_dev: without an official dev split, the number of last records of train that are dev; 0: see
            `BenchmarkTask`.
        own_instruction: the text after a question in training, if it is not DeepSeekMath's zero-shot instruction.
    """

    name: str
    title: str
    stands_in_for: str
    language: str
    kind: str
    profile: str | None
    metric: str
    sizes: Mapping[str, int | None]
    evaluation_only: bool = True
    release: str = ""
    folders: tuple[str, ...] = ()
    files: Mapping[str, tuple[Files, ...]] = field(default_factory=dict)
    hub: Mapping[str, Hub] = field(default_factory=dict)
    deduplicated: bool = False
    not_by_rule: Mapping[str, str] = field(default_factory=dict)
    golds: tuple[str, str] | None = None
    last_as_dev: int = 0
    own_instruction: str = ""

    @property
    def instruction(self) -> str:
        """The text after a question in a zero-shot prompt."""
        return self.own_instruction or self.zero_shot

    @property
    def zero_shot(self) -> str:
        """The text after a question in DeepSeekMath's zero-shot evaluation."""
        return "" if self.kind == "prompt" else BOXED[self.language]


GREEDY, AVERAGE = "greedy accuracy", "avg@32"

# Golds of the kind "number". An AIME answer has up to three digits.
NUMBER = ("a number", r"-?\d+(?:[./]\d+)?")
WHOLE_NUMBER = ("a whole number", r"-?\d+")
AIME = ("a whole number from 0 to 999", r"\d{1,3}")

MATH_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
# `STEM` of the official categories.py.
MMLU_SUBJECTS = (
    "abstract_algebra", "astronomy", "college_biology", "college_chemistry", "college_computer_science",
    "college_mathematics", "college_physics", "computer_security", "conceptual_physics", "electrical_engineering",
    "elementary_mathematics", "high_school_biology", "high_school_chemistry", "high_school_computer_science",
    "high_school_mathematics", "high_school_physics", "high_school_statistics", "machine_learning",
)  # fmt: skip


def _math_files(split: str) -> Files:
    return Files(tuple(f"{split}/{subject}/*.json" for subject in MATH_SUBJECTS), json_object, schemas.math)


def _math_hub(split: str) -> Hub:
    return Hub("EleutherAI/hendrycks_math", split, schemas.math, MATH_SUBJECTS)


def _mmlu_files(split: str) -> Files:
    return Files(tuple(f"{split}/{subject}_{split}.csv" for subject in MMLU_SUBJECTS), mmlu_csv, schemas.mmlu)


def _mmlu_hub(split: str) -> Hub:
    return Hub("cais/mmlu", split, schemas.mmlu, MMLU_SUBJECTS)


def _lines(pattern: str, schema: schemas.Schema) -> tuple[Files, ...]:
    return (Files((pattern,), jsonl, schema),)


def _competition(*folders: str) -> Files:
    return Files(tuple(f"{folder}/answers.csv" for folder in folders), matharena, schemas.contest)


_AGIEVAL = ("agieval/v1", "agieval/data/v1", "data/v1", "v1")
_MATHARENA = ("matharena", "matharena/data", "data")
_PLAIN = schemas.open_question

_TABLE = (
    Benchmark(
        "gsm8k", "GSM8K: grade-school word problems", "GSM8K", "en", "number", "gsm8k", GREEDY,
        {"train": 7473, "test": 1319},
        evaluation_only=False,
        release="train.jsonl and test.jsonl of the official release, with a `question` and an `answer` a line",
        folders=("gsm8k",),
        files={split: _lines(f"{split}.jsonl", schemas.gsm8k) for split in ("train", "test")},
        hub={split: Hub("openai/gsm8k", split, schemas.gsm8k, ("main",)) for split in ("train", "test")},
        golds=NUMBER,
        last_as_dev=200,
        own_instruction='Think step by step, and end with "#### " followed by the answer as a number.',
    ),
    Benchmark(
        "math", "MATH: competition mathematics", "MATH", "en", "formula", "math", GREEDY,
        {"train": 7500, "test": 5000},
        evaluation_only=False,
        release="MATH/train/<subject>/<n>.json and MATH/test/<subject>/<n>.json of the official release",
        folders=("math/MATH", "MATH", "math"),
        files={
            # The second is a copy of train whose answers were taken out of the solutions (agentica-project/rllm).
            "train": (_math_files("train"), Files(("train_rllm/math.json",), json_array, schemas.math_answer)),
            "test": (_math_files("test"),),
        },
        hub={split: _math_hub(split) for split in ("train", "test")},
    ),
    Benchmark(
        "math500", "MATH-500: a part of MATH test", "MATH-500", "en", "formula", "math500", GREEDY, {"test": 500},
        release="test.jsonl (500 lines with `problem`, `solution`, `answer`, `subject`)",
        folders=("math500",),
        files={"test": _lines("test.jsonl", schemas.named("problem", "answer", "subject"))},
        hub={"test": Hub("HuggingFaceH4/MATH-500", "test", schemas.named("problem", "answer", "subject"))},
    ),
    Benchmark(
        "ocw", "OCWCourses: undergraduate science", "OCWCourses", "en", "formula", "ocw", GREEDY, {"test": 272},
        release="test.jsonl (272 lines with `problem`, `solution`, `answer`)",
        folders=("ocw", "OCWCourses"),
        files={"test": _lines("test.jsonl", _PLAIN)},
        hub={"test": Hub("open-web-math/ocwcourses", "test", _PLAIN)},
        not_by_rule={"test-72": "two formulas side by side, with dollars between them"},
    ),
    Benchmark(
        "sat_math", "SAT-Math: AGIEval's 220 questions", "SAT", "en", "choice", "sat_math", GREEDY, {"test": 220},
        release="sat-math.jsonl of AGIEval's data/v1",
        folders=_AGIEVAL,
        files={"test": _lines("sat-math.jsonl", schemas.agieval_choice)},
        hub={"test": Hub("hails/agieval-sat-math", "test", partial(
            schemas.agieval_choice_on_hub, head="Q: ", tail=" Answer Choices: "))},
    ),
    Benchmark(
        "sat_llemma", "SAT of May 2023: Llemma's 32 questions", "SAT", "en", "choice", "sat", GREEDY, {"test": 32},
        release="test.jsonl (32 lines with `question`, `options`, `Answer`)",
        folders=("sat", "math_sat"),
        files={"test": _lines("test.jsonl", schemas.sat)},
        hub={"test": Hub("mcaleste/sat_multiple_choice_math_may_23", "train", partial(
            schemas.sat, question="Question", options="Possible Answers", answer="Answer"))},
    ),
    Benchmark(
        "mmlu_stem", "MMLU-STEM: 18 subjects", "MMLU-STEM", "en", "choice", "mmlu_stem", GREEDY,
        {"dev": 321, "test": 3018},
        release="dev/, val/ and test/ of the official data.tar, with <subject>_<split>.csv for 18 subjects",
        folders=("mmlu/data", "mmlu", "data"),
        files={"dev": (_mmlu_files("val"),), "test": (_mmlu_files("test"),), "shots": (_mmlu_files("dev"),)},
        hub={"dev": _mmlu_hub("validation"), "test": _mmlu_hub("test"), "shots": _mmlu_hub("dev")},
    ),
    Benchmark(
        "cmath", "CMATH: Chinese primary-school problems", "CMATH", "zh", "number", "cmath", GREEDY,
        {"dev": 600, "test": 1098},
        release="cmath_dev.jsonl and test.jsonl (lines with `input` or `question`, and `golden`)",
        folders=("cmath",),
        files={
            "dev": _lines("cmath_dev.jsonl", schemas.named("input", "golden")),
            "test": _lines("test.jsonl", schemas.named("question", "golden")),
        },
        hub={
            "dev": Hub("weitianwen/cmath", "validation", schemas.named("question", "golden")),
            "test": Hub("weitianwen/cmath", "test", schemas.named("question", "golden")),
        },
        golds=NUMBER,
    ),
    Benchmark(
        "gaokao_cloze", "GaokaoMath-Cloze: fill in the blanks", "GaokaoMath-Cloze", "zh", "blanks", "gaokao_cloze",
        GREEDY, {"test": 118},
        release="gaokao-mathcloze.jsonl of AGIEval's data/v1",
        folders=_AGIEVAL,
        files={"test": _lines("gaokao-mathcloze.jsonl", schemas.agieval_cloze)},
        hub={"test": Hub("hails/agieval-gaokao-mathcloze", "test", schemas.agieval_cloze_on_hub)},
        not_by_rule={"test-21": "two conditions in words"},
    ),
    Benchmark(
        "gaokao_qa", "GaokaoMath-QA: choices, some with several letters", "GaokaoMath-QA", "zh", "choice", "gaokao_qa",
        GREEDY, {"test": 351},
        release="gaokao-mathqa.jsonl of AGIEval's data/v1",
        folders=_AGIEVAL,
        files={"test": _lines("gaokao-mathqa.jsonl", schemas.agieval_choice)},
        hub={"test": Hub("hails/agieval-gaokao-mathqa", "test", partial(
            schemas.agieval_choice_on_hub, head="问题：", tail=" 选项："))},
    ),
    Benchmark(
        "aime24", "AIME 2024", "AIME-24", "en", "number", "aime24", AVERAGE, {"test": 30},
        release="test.jsonl (`problem`, `answer`), or MathArena's aime/aime_2024_I and aime_2024_II",
        folders=("aime24", *_MATHARENA),
        files={"test": (*_lines("test.jsonl", schemas.contest), _competition("aime/aime_2024_I", "aime/aime_2024_II"))},
        hub={"test": Hub("Maxwell-Jia/AIME_2024", "train", partial(
            schemas.contest, question="Problem", answer="Answer"))},
        golds=AIME,
    ),
    Benchmark(
        "aime25", "AIME 2025", "AIME-25", "en", "number", "aime25", AVERAGE, {"test": 30},
        release="test2025-I.jsonl and test2025-II.jsonl (`problem`, `answer`), aime25.parquet (`prompt`, "
        "`reward_model`), or MathArena's aime/aime_2025_I and aime_2025_II",
        folders=("aime25", *_MATHARENA),
        files={"test": (
            Files(("test2025-I.jsonl", "test2025-II.jsonl"), jsonl, schemas.contest),
            Files(("aime25.parquet",), parquet, schemas.chat_prompt),
            _competition("aime/aime_2025_I", "aime/aime_2025_II"),
        )},
        hub={"test": Hub("math-ai/aime25", "test", schemas.contest)},
        golds=AIME,
    ),
    Benchmark(
        "amc23", "AMC 12 2023", "AMC-23", "en", "number", "amc23", AVERAGE, {"test": 40},
        release="test.jsonl (`question`, `answer`)",
        folders=("amc23",),
        files={"test": _lines("test.jsonl", partial(schemas.contest, question="question"))},
        hub={"test": Hub("math-ai/amc23", "test", partial(schemas.contest, question="question"))},
        golds=NUMBER,
    ),
    *(
        Benchmark(
            f"hmmt{year - 2000}", f"HMMT February {year}", f"HMMT-{year - 2000}", "en", "formula",
            f"hmmt{year - 2000}", AVERAGE, {"test": 30},
            release=f"MathArena's hmmt/hmmt_feb_{year} (answers.csv, problems/)",
            folders=_MATHARENA,
            files={"test": (_competition(f"hmmt/hmmt_feb_{year}"),)},
            hub={"test": Hub(f"MathArena/hmmt_feb_{year}", "train", schemas.contest)},
        )
        for year in (2024, 2025)
    ),
    # The paper does not say of which year its CMIMC is. When its evaluation code was written, MathArena had only that
    # of 2024, in files; that of 2025 is only on the hub.
    *(
        Benchmark(
            f"cmimc{year - 2000}", f"CMIMC {year}", "CMIMC", "en", "formula", "cmimc", AVERAGE, {"test": size},
            release=f"MathArena's cmimc/cmimc_{year} (answers.csv, problems/)",
            folders=_MATHARENA,
            files={"test": (_competition(f"cmimc/cmimc_{year}"),)},
            hub={} if year == 2024 else {"test": Hub(f"MathArena/cmimc_{year}", "train", schemas.contest)},
        )
        for year, size in ((2024, 30), (2025, 40))
    ),
    Benchmark(
        "arena_hard", "Arena-Hard v0.1: prompts of users", "Chat-Arena-Hard", "en", "prompt", None,
        "win rate, by a judge", {"test": 500},
        release="arena-hard-v0.1/question.jsonl of the official release, in its schema of 2024 or 2025",
        folders=("arena_hard", "data"),
        files={"test": (
            *_lines("arena-hard-v0.1/question.jsonl", schemas.prompt_only),
            *_lines("arena-hard-v0.1-2025/question.jsonl", schemas.prompt_only),
        )},
        hub={"test": Hub("lmarena-ai/arena-hard-auto-v0.1", "train", schemas.prompt_only)},
    ),
    Benchmark(
        "arena_hard_v2", "Arena-Hard v2.0: prompts of users", "Chat-Arena-Hard", "en", "prompt", None,
        "win rate, by a judge", {"test": 750},
        release="arena-hard-v2.0/question.jsonl of the official release",
        folders=("arena_hard", "data"),
        files={"test": _lines("arena-hard-v2.0/question.jsonl", schemas.prompt_only)},
        hub={"test": Hub("lmarena-ai/arena-hard-auto", "train", schemas.prompt_only,
                         data_files="data/arena-hard-v2.0/question.jsonl")},
    ),
    Benchmark(
        "orz", "ORZ-57k: training problems", "ORZ-57k", "en", "formula", "orz", "none: training only", {"train": None},
        evaluation_only=False,
        release="orz_math_57k_collected.json of the official release",
        folders=("orz", "data"),
        files={"train": (Files(("orz_math_57k_collected.json",), json_array, schemas.orz),)},
        hub={"train": Hub("Open-Reasoner-Zero/orz_math_57k_collection", "train", schemas.orz)},
    ),
    Benchmark(
        "dapo", "DAPO-Math-17k: training problems", "DAPO-Math-17k", "en", "number", "dapo", "none: training only",
        {"train": 17917},
        evaluation_only=False,
        release="dapo-math-17k.parquet of the official release, or dapo-math-17k.jsonl (`prompt`, `label`)",
        folders=("dapo", "data"),
        files={"train": (
            Files(("dapo-math-17k.parquet",), parquet, schemas.chat_prompt),
            Files(("dapo-math-17k.jsonl",), jsonl, schemas.chat_prompt),
        )},
        hub={"train": Hub("BytedTsinghua-SIA/DAPO-Math-17k", "train", schemas.chat_prompt)},
        deduplicated=True,
        golds=WHOLE_NUMBER,
    ),
)  # fmt: skip

BENCHMARKS = {benchmark.name: benchmark for benchmark in _TABLE}

# Benchmarks whose answers are programs or roles have modules of their own; these entries are only for the list.
ELSEWHERE = (
    Benchmark("code_contests", "CodeContests: competitive programming", "CodeContests", "en", "program", None,
              "share of tests passed", {"train": 13328, "dev": 117, "test": 165}, evaluation_only=False,
              hub={"test": Hub("deepmind/code_contests", "test")}),
    Benchmark("knights_and_knaves", "Knights and Knaves, as released", "Knights and Knaves", "en", "roles",
              "knights_and_knaves", GREEDY, {"train": 1200, "test": 700}, evaluation_only=False,
              hub={"test": Hub("K-and-K/knights-and-knaves", "test")}),
)  # fmt: skip
LISTED = {benchmark.name: benchmark for benchmark in (*_TABLE, *ELSEWHERE)}
