"""Few-shot prompts as the published protocols write them. The demonstrations are read from files, not shipped.

    deepseekmath   4 to 8 worked solutions, then the question (DeepSeekMath's evaluation, whose suite AGPO follows):
                   from the folder few_shot_prompts/ of deepseek-ai/DeepSeek-Math, put into data_dir
    agieval        5 explained problems of an exam, then the question: from AGIEval's few_shot_prompts.csv in data_dir
    mmlu           5 questions of the subject with their letters: the dev split of MMLU, from the files or the hub;
                   answered by the likeliest next letter, not by a completion (hendrycks/test)

Departures: SAT options are separated by commas, as in the protocol's own demonstrations; the line breaks after
AGIEval's questions are dropped, as in DeepSeekMath; AGIEval's limit of 2,048 tokens for the demonstrations is not
applied.
"""

from __future__ import annotations

import ast
import csv
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agpo_core.files import text_of
from agpo_core.tasks.benchmarks.schemas import LETTERS
from agpo_core.tasks.benchmarks.task import asked
from agpo_core.tasks.problem import Problem, Task


@dataclass(frozen=True)
class FewShot:
    """A prompt with demonstrations, and the text at which a completion of it is cut.

    Attributes:
        prompt, shots: the text, and the number of demonstrations in it.
        stop: the text with which the next demonstration would begin; the protocol cuts a completion there. Empty: it
            does not cut.
    """

    prompt: str
    stop: str
    shots: int


# task -> (file, shots, text after the demonstrations, stop)
_PROBLEM = "\n\nProblem:\n{}\nSolution:"
_MINERVA = ("cot_minerva_math_4_shot.py", 4, "\n\nProblem:\n{}\n\nSolution:", "\nProblem:")
_SAT = ("cot_math_sat_4_shot.py", 4, _PROBLEM, "\nProblem:")
DEEPSEEKMATH = {
    "gsm8k": ("cot_gsm_8_shot.py", 8, "\n\n\nQ: {}\nA:", "\nQ:"),
    "math": _MINERVA,
    "math500": _MINERVA,
    "ocw": ("cot_ocwcourses_4_shot.py", 4, _PROBLEM, "\nProblem:"),
    "sat_math": _SAT,
    "sat_llemma": _SAT,
    "mmlu_stem": ("cot_mmlu_stem_4_shot.py", 4, _PROBLEM, "\nProblem:"),
    "cmath": ("cot_cmath_6_shot.py", 6, "\n\n\n问题：{}\n答案：", "\n问题："),
    "gaokao_cloze": ("cot_gaokao_mathcloze_5_shot.py", 5, "\n\n\n问题 6.   {}\n问题 6的解析:", "\n问题 "),
    "gaokao_qa": ("cot_gaokao_mathqa_5_shot.py", 5, "\n\n\n问题 6.    {}\n问题 6的解析:", "\n问题 "),
}
# task -> column of the file
AGIEVAL = {"sat_math": "sat-math", "gaokao_cloze": "gaokao-mathcloze", "gaokao_qa": "gaokao-mathqa"}
# task -> the protocol by which it is reported: DeepSeekMath's suite, in which MMLU-STEM has its own common protocol
USUAL = {**dict.fromkeys(DEEPSEEKMATH, "deepseekmath"), "mmlu_stem": "mmlu"}


def few_shot_prompt(task: Task, problem: Problem, protocol: str = "deepseekmath") -> FewShot:
    """A problem's few-shot prompt.

    Args:
        task: a benchmark, or GSM8K.
        problem: one of its problems.
        protocol: "deepseekmath", "agieval" or "mmlu".
    Raises:
        ValueError: the protocol has no prompt for the benchmark, or its file is not as published.
        FileNotFoundError: the demonstrations are not in the task's data_dir; says which file to put there.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol: unknown protocol {protocol!r}; use one of {', '.join(PROTOCOLS)}")
    having, build = PROTOCOLS[protocol]
    if task.name not in having:
        raise ValueError(
            f"protocol: {protocol} has no few-shot prompt for {task.name}, only for {', '.join(having)}; evaluate it "
            "zero-shot"
        )
    return build(task, problem)


def _find(task: Task, names: tuple[str, ...], remedy: str) -> Path:
    """The first of some files that exists in the task's folder or in its parent, which may hold several benchmarks.

    If the task's folder is a link, the parent of the link is tried and then the parent of its target.
    """
    folder = getattr(task, "data_dir", None)
    roots = () if folder is None else (folder, Path(os.path.abspath(folder)).parent, folder.resolve().parent)
    for root in roots:
        for name in names:
            if (root / name).is_file():
                return root / name
    raise FileNotFoundError(f"data_dir: the demonstrations for {task.name} are not there; {remedy}")


def question_of(task: Task, problem: Problem) -> str:
    """A problem's question with its options, without the instruction how to answer."""
    return asked(problem, task.benchmark.language)


def _deepseekmath(task: Task, problem: Problem) -> FewShot:
    file, shots, frame, stop = DEEPSEEKMATH[task.name]
    path = _find(
        task,
        (f"few_shot_prompts/{file}",),
        f"put few_shot_prompts/{file} of deepseek-ai/DeepSeek-Math (evaluation/) into data_dir, or evaluate zero-shot",
    )
    return FewShot(_assigned_text(path) + frame.format(question_of(task, problem)), stop, shots)


def _assigned_text(path: Path) -> str:
    """The text that a Python file assigns last to `few_shot_prompt`; the file is parsed and not run."""
    found = None
    try:
        for node in ast.parse(text_of(path)).body:
            if isinstance(node, ast.Assign) and [ast.unparse(name) for name in node.targets] == ["few_shot_prompt"]:
                value = node.value
                if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "strip":
                    value = value.func.value
                found = ast.literal_eval(value)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"data_dir: {path} is not as published ({error}); give the official file") from error
    if not isinstance(found, str) or not found.strip():
        raise ValueError(f"data_dir: {path} assigns no text to `few_shot_prompt`; give the official file")
    return found.strip()


def _agieval(task: Task, problem: Problem) -> FewShot:
    path = _find(
        task,
        tuple(f"{folder}few_shot_prompts.csv" for folder in ("", "data/", "agieval/", "agieval/data/")),
        "put few_shot_prompts.csv of ruixiangcui/AGIEval (data/) into data_dir",
    )
    chinese = task.benchmark.language == "zh"
    parts = ["以下是考试中各个问题的答案。" if chinese else "Here are the answers for the problems in the exam."]
    demonstrations = _csv_demonstrations(path, AGIEVAL[task.name])
    for number, (shown, explanation) in enumerate(demonstrations, start=1):
        passage = f"{shown['passage'] or ''} " if shown["options"] else ""
        parts.append(_exam(number, passage + _line(shown), shown["options"], chinese))
        answer = shown["label"] or shown["answer"]
        if chinese:
            parts.append(f"问题 {number}的解析:   {explanation}\n答案是 {answer}\n")
        else:
            parts.append(f"Explanation for Problem {number}:   {explanation}\nThe answer is therefore {answer}\n")
    number = len(demonstrations) + 1
    options = [f"({letter}){text}" for letter, text in zip(LETTERS, problem.options, strict=False)]
    parts.append(_exam(number, " " * bool(options) + problem.question, options, chinese))
    stop = f"\n问题 {number + 1}" if chinese else f"\nProblem {number + 1}"
    return FewShot("\n".join(parts) + "\n", stop, len(demonstrations))


def _line(shown: dict) -> str:
    return shown["question"].strip().rstrip("\\").rstrip()


def _exam(number: int, question: str, options: list[str] | None, chinese: bool) -> str:
    """One question of the exam. In a multiple-choice question a blank follows the passage, even an empty passage."""
    text = f"问题 {number}.   {question}" if chinese else f"Problem {number}.   {question}"
    if options:
        text += "\n从以下选项中选择:    " if chinese else "\nChoose from the following options:    "
    return text + " ".join(options or ())


def _csv_demonstrations(path: Path, column: str) -> list[tuple[dict, str]]:
    """The demonstrations of a column with their explanations: rows 1, 3, … are Python literals, rows 2, 4, … text."""
    remedy = "give the official few_shot_prompts.csv of AGIEval"
    try:
        rows = list(csv.DictReader(io.StringIO(text_of(path), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"data_dir: {path} is not CSV ({error}); {remedy}") from error
    found = []
    for number in range(0, len(rows) - 1, 2):
        literal, explanation = rows[number].get(column), rows[number + 1].get(column)
        if not literal:
            continue
        try:
            shown = ast.literal_eval(literal)
            shown = {key: shown.get(key) for key in ("passage", "options", "label", "answer")} | {
                "question": shown["question"]
            }
            found.append((shown, explanation.replace("\n\n", "\n")))
        except (ValueError, SyntaxError, KeyError, AttributeError) as error:
            raise ValueError(f"data_dir: {path}, column {column}, row {number + 1} is no problem; {remedy}") from error
    if not found:
        raise ValueError(f"data_dir: {path} has no column {column} with demonstrations; {remedy}")
    return found


def _mmlu(task: Task, problem: Problem) -> FewShot:
    shown = [shot for shot in task.official("shots") if shot.subject == problem.subject]
    if not shown:
        raise ValueError(f"data_dir: the dev split has no question of {problem.subject}; {task.benchmark.release}")
    head = f"The following are multiple choice questions (with answers) about {problem.subject.replace('_', ' ')}."
    examples = [f"{_examination(shot)} {shot.answer}" for shot in shown]
    return FewShot("\n\n".join([head, *examples, _examination(problem)]), stop="", shots=len(shown))


def _examination(problem) -> str:
    options = "".join(f"\n{letter}. {text}" for letter, text in zip(LETTERS, problem.options, strict=True))
    return f"{problem.question}{options}\nAnswer:"


PROTOCOLS: dict[str, tuple[tuple[str, ...], Callable[[Task, Problem], FewShot]]] = {
    "deepseekmath": (tuple(DEEPSEEKMATH), _deepseekmath),
    "agieval": (tuple(AGIEVAL), _agieval),
    "mmlu": (("mmlu_stem",), _mmlu),
}
