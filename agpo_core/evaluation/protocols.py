"""Evaluation protocols: how a task is asked, where a completion of it ends, and how it is graded.

Prompts: "zero" is the question with the instruction to box the answer, as in DeepSeekMath's zero-shot evaluation. GSM8K
is asked this way too, although its answers end with "####" in training. A task that is no benchmark has its own prompt.
The other prompts are the published few-shot prompts of `tasks.benchmarks.few_shot`.

Ends: a completion of a few-shot prompt is cut where the next demonstration would begin. The engines do not stop there;
tokens after the cut are counted, and not graded.

Grades: "modern" is the grader that training uses, by the benchmark's profile, except that an expression that was not
worked out (2^5 for 32) counts as an answer. "official" is the published scoring that belongs to the prompt
(`evaluation.official`), with its errors. The name of a published scoring selects it under any prompt; if it looks for a
phrase that the prompt does not ask for, it finds no answer. The vote key is always the grader's canonical answer.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from agpo_core import grading
from agpo_core.config import ConfigError
from agpo_core.evaluation.official import OFFICIAL, SEVERAL
from agpo_core.tasks import Graded, Problem, Task
from agpo_core.tasks.benchmarks.few_shot import PROTOCOLS, USUAL, FewShot, few_shot_prompt, question_of
from agpo_core.tasks.benchmarks.table import LISTED

PROMPTS = ("auto", "few", "zero", *PROTOCOLS)
TEMPLATES = ("auto", "chat", "base")
GRADINGS = ("modern", "official", *(name for name, scoring in OFFICIAL.items() if scoring.tasks))

# (task, prompt) -> the published scoring of its completions, see `evaluation.official`
OFFICIAL_OF = {
    ("gsm8k", "zero"): "deepseek_zero_shot",
    ("gsm8k", "deepseekmath"): "gsm8k_deepseek",
    ("math", "zero"): "math_hendrycks",
    ("math500", "zero"): "math_hendrycks",
    ("math", "deepseekmath"): "math_minerva",
    ("math500", "deepseekmath"): "math_minerva",
    ("ocw", "deepseekmath"): "ocw_minerva",
    ("sat_llemma", "deepseekmath"): "sat_minerva",
    ("sat_math", "deepseekmath"): "sat_minerva",
    ("sat_math", "agieval"): "sat_math_agieval_few_shot",
    ("mmlu_stem", "deepseekmath"): "mmlu_stem_deepseek",
    ("cmath", "zero"): "deepseek_zero_shot",
    ("cmath", "deepseekmath"): "cmath_deepseek",
    ("gaokao_cloze", "deepseekmath"): "gaokao_cloze_deepseek",
    ("gaokao_cloze", "agieval"): "gaokao_cloze_agieval",
    ("gaokao_qa", "deepseekmath"): "gaokao_qa_deepseek",
    ("gaokao_qa", "agieval"): "gaokao_qa_agieval_few_shot",
    **{(name, "zero"): "matharena" for name in OFFICIAL["matharena"].tasks},
    ("knights_and_knaves", "zero"): "knights_and_knaves_logic_rl",
}


@dataclass(frozen=True)
class Protocol:
    """A way to ask a task and to grade the answers.

    Args:
        task: the task that is evaluated.
        prompt: "zero", or a name in `few_shot.PROTOCOLS`.
        chat: whether the prompt is a user message in the model's chat template; if not, the model continues it as text.
        official: name of the published scoring; None: the grader that training uses.
    """

    task: Task
    prompt: str
    chat: bool
    official: str | None = None

    def ask(self, problem: Problem) -> FewShot:
        """The prompt of a problem; a zero-shot prompt has no demonstrations and no text to stop at."""
        if self.prompt != "zero":
            return few_shot_prompt(self.task, problem, self.prompt)
        benchmark = LISTED.get(self.task.name)
        if benchmark and benchmark.own_instruction:
            return FewShot(f"{question_of(self.task, problem)}\n{benchmark.zero_shot}", stop="", shots=0)
        return FewShot(problem.prompt, stop="", shots=0)

    def grade(self, problem: Problem, text: str) -> Graded:
        """The grade of a completion that was cut where it ends."""
        profile = _profile(self.task)
        if self.official:
            answer = OFFICIAL[self.official].extract(text)
            if answer is None:
                return Graded(0.0, None)
            right = OFFICIAL[self.official].accepts(problem.answer, answer)
            return Graded(float(right), grading.canonical(answer.rpartition(SEVERAL)[2], profile or self.task.name))
        if profile:
            return grading.grade(text, problem.answer, profile)
        return self.task.grade(problem, text)

    @property
    def by_letter(self) -> bool:
        """Whether the likeliest letter is taken as the answer, so that nothing is sampled."""
        return self.prompt == "mmlu"

    def described(self, problem: Problem) -> dict[str, str]:
        """Prompt, template and grading in words, for tables."""
        shots = self.ask(problem).shots
        return {
            "prompt": f"{self.prompt} ({shots}-shot)" if shots else "zero",
            "template": "chat" if self.chat else "base",
            "grading": "likeliest letter" if self.by_letter else self.official or "modern",
        }


def protocol_of(
    task: Task, problem: Problem, prompt: str, template: str, grader: str, has_template: bool
) -> Protocol:  # fmt: skip
    """The protocol by which a task is evaluated.

    Args:
        task: the task that is evaluated.
        problem: one of its problems, to see whether there are demonstrations.
        prompt: one of `PROMPTS`. "few": the task's usual few-shot protocol, or zero-shot if it has none. "auto": the
            same, but zero-shot with a warning if the demonstrations are missing.
        template: one of `TEMPLATES`. "auto": the chat template for zero-shot prompts if the model has one, else text.
        grader: one of `GRADINGS`. "official": the scoring that belongs to the prompt; a name: that scoring, if it
            scores the task.
        has_template: whether the model has a chat template.
    Raises:
        ValueError: the task has no right answers, no official scoring fits it and the prompt, or the named scoring does
            not score the task; the message says which do.
        FileNotFoundError: the demonstrations are not in the task's data_dir; the message says which file to put there.
        ConfigError: a chat template is asked for and the model has none.
    """
    benchmark = LISTED.get(task.name)
    if benchmark and benchmark.kind == "prompt":
        raise ValueError(f"tasks: {task.name} has no right answers, a judge is needed: leave it out")
    if template == "chat" and not has_template:
        raise ConfigError("template chat: the model's tokenizer has no chat template; use base.")
    prompt = _prompt(task, problem, prompt)
    chat = has_template and (template == "chat" or (template == "auto" and prompt == "zero"))
    return Protocol(task, prompt, chat, _official(task.name, prompt, grader))


def _official(task: str, prompt: str, grader: str) -> str | None:
    """The name of the published scoring that a grading stands for; None: the grader that training uses."""
    if grader == "modern":
        return None
    use = " or ".join(["modern", *(name for name, scoring in OFFICIAL.items() if task in scoring.tasks)])
    if grader == "official":
        under = [other for name, other in OFFICIAL_OF if name == task]
        if prompt != "mmlu" and prompt not in under:
            only = f", only under {' and '.join(under)}" if under else ""
            raise ValueError(f"grading: nothing official scores {task} under the prompt {prompt}{only}; use {use}")
        return OFFICIAL_OF.get((task, prompt))
    if task not in OFFICIAL[grader].tasks:
        raise ValueError(f"grading: {grader} does not score {task}; use {use}")
    if prompt == "mmlu":
        raise ValueError(f"grading: under the prompt mmlu there is no text for {grader}; use prompt deepseekmath")
    return grader


def _prompt(task: Task, problem: Problem, wanted: str) -> str:
    usual = USUAL.get(task.name)
    if wanted == "zero" or (wanted in ("auto", "few") and usual is None):
        return "zero"
    name = usual if wanted in ("auto", "few") else wanted
    try:
        few_shot_prompt(task, problem, name)
    except FileNotFoundError as error:
        if wanted != "auto":
            raise
        warnings.warn(f"{task.name} is asked zero-shot and not by {name}: {error}.", stacklevel=3)
        return "zero"
    return name


def _profile(task: Task) -> str | None:
    """The grading profile of a benchmark; None for a task that only itself can grade."""
    benchmark = LISTED.get(task.name)
    return benchmark.profile if benchmark else None


def cut(text: str, stop: str) -> str:
    """A completion cut where the next demonstration would begin.

    >>> cut(" 3 + 4 = 7. The answer is 7.\\n\\nQ: If", "\\nQ:")
    ' 3 + 4 = 7. The answer is 7.\\n'
    """
    return text.partition(stop)[0] if stop else text
