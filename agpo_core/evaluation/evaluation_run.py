"""Evaluates a model on benchmarks; `python -m agpo_core.evaluation.evaluate` runs this.

The results go into a folder:

    problems.jsonl   one line for each problem: prompt, gold, and each completion's text, answer, reward and tokens
    table.csv        one row for each task and metric (see `evaluation_table`)
    run.json         settings, commit, digests of code, weights and problems, versions, hardware, exit status

The ranks take the problems in batches. Each rank appends finished problems to its own file, and rank 0 merges the files
at the end. If a run was interrupted, the same command resumes it and reads what is finished, provided that code, model
and problems are the same to the last byte. Batches contain the same problems for any number of ranks and interruptions,
and every random number is keyed by seed, task, problem and sample. So the lines are the same to the last character. For
several ranks, one on each GPU:

    accelerate launch --num_processes 8 -m agpo_core.evaluation.evaluate --model MODEL --tasks gsm8k
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from accelerate import PartialState

from agpo_core import paths, provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.evaluation import evaluation_table
from agpo_core.evaluation.protocols import GRADINGS, PROMPTS, TEMPLATES, Protocol, cut, protocol_of
from agpo_core.jobs.together import OtherRankFailed, together
from agpo_core.model_files import model_source
from agpo_core.rollouts.grades import graded
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import prefill
from agpo_core.rollouts.prompts import token_ids
from agpo_core.rollouts.rollout import ENGINES, RolloutEngine, make_engine
from agpo_core.sandbox import SandboxRefused
from agpo_core.settings import AnyText, AtLeast, OneOf, Within, settle
from agpo_core.tasks import SPLITS, Problem, Task, get_task
from agpo_core.tasks.benchmarks.schemas import LETTERS

RECORDED = ("task", "id", "answers", "rewards", "tokens", "truncated", "too_long")  # no text of a benchmark
LONGEST_WAIT = timedelta(days=7)  # a rank waits this long for the slowest; the backends' defaults are 10 and 30 minutes


@dataclass(frozen=True)
class Settings:
    """The settings of an evaluation.

    Args:
        model: an embedded model, a folder, or a hub id.
        tasks: names known to `tasks.get_task`.
        split: "train", "dev" or "test".
        problems: number of problems of each task, the first of the split (see `first`), >= 1; None: all.
        k: completions for each problem, >= 1.
        temperature: tau >= 0, finite; 0 decodes greedily, and then k must be 1.
        top_p: p in (0, 1], the nucleus of sampled completions.
        max_new_tokens: tokens of a completion at most, >= 1.
        prompt, template, grading: see `protocols.protocol_of`.
        system_prompt, template_arguments, stop_tokens: as in training, see `TrainConfig`; the first two need a task
            that is asked in the chat template.
        seed: in [0, 2**31); keys the random streams.
        batch: completions decoded together, >= 1; it changes a sample only by rounding.
        engine: "transformers" or "vllm".
        dtype: of the weights, "float32" or "bfloat16".
        data_dir: folder of the benchmarks' official files; None reads the hub.
        failed_grading: "zero" (a completion that makes its grader fail gets reward 0) or "raise".
    Raises:
        ConfigError: a value is out of range.
    """

    model: str
    tasks: tuple[str, ...]
    split: Annotated[str, OneOf(SPLITS)] = "test"
    problems: Annotated[int, AtLeast(1)] | None = None
    k: Annotated[int, AtLeast(1)] = 1
    temperature: Annotated[float, AtLeast(0)] = 0.0
    top_p: Annotated[float, Within("(0, 1]")] = 0.95
    max_new_tokens: Annotated[int, AtLeast(1)] = 1024
    prompt: Annotated[str, OneOf(PROMPTS)] = "auto"
    template: Annotated[str, OneOf(TEMPLATES)] = "auto"
    grading: Annotated[str, OneOf(GRADINGS)] = "modern"
    system_prompt: Annotated[str, AnyText] | None = None
    template_arguments: tuple[str, ...] = ()
    stop_tokens: tuple[Annotated[str, AnyText], ...] = ()
    seed: Annotated[int, Within("[0, 2**31)")] = 42
    batch: Annotated[int, AtLeast(1)] = 32
    engine: Annotated[str, OneOf(tuple(ENGINES))] = "transformers"
    dtype: Literal["float32", "bfloat16"] = "float32"
    data_dir: str | None = None
    failed_grading: Literal["zero", "raise"] = "zero"

    def __post_init__(self):
        settle(self)
        if not 0 < len(set(self.tasks)) == len(self.tasks):
            raise ConfigError(f"tasks must be one name or several, each once; got {self.tasks!r}.")
        if self.template == "base" and (self.system_prompt is not None or self.template_arguments):
            raise ConfigError("template base: system_prompt and template_arguments are for a chat template; use auto.")
        if self.k > 1 and self.temperature == 0:
            raise ConfigError(f"k {self.k} at temperature 0: greedy completions are all the same; raise temperature.")

    @property
    def title(self) -> str:
        """The model's name without the folders above it."""
        return Path(self.model).name

    @functools.cached_property
    def weights(self) -> str | None:
        """Digest of all files of the model's folder; None for a model of the hub, which its id identifies."""
        folder = Path(model_source(self.model))
        return digest_of_files(folder.iterdir()) if folder.is_dir() else None

    def identity(self) -> dict:
        """All that the numbers depend on except the problems; of an absolute path only the last part is used."""
        values = dataclasses.asdict(self) | {"model": self.title if Path(self.model).is_absolute() else self.model}
        del values["data_dir"]
        return {
            "settings": json.loads(json.dumps(values)),
            "commit": provenance.git_commit(),
            "code": code_digest(),
            "weights": self.weights,
        }

    def folder(self) -> Path:
        """The default folder of the results; another model, code, setting or data folder gets another one."""
        data_dir = self.data_dir and str(Path(self.data_dir).absolute())
        text = json.dumps([self.identity(), data_dir], sort_keys=True)
        return paths.runs() / "evaluation" / f"{self.title}-{_digest(text.encode())[:10]}"

    def config(self, context: int) -> TrainConfig:
        """The training settings by which the model is loaded and sampled; `context` is its context in tokens."""
        return TrainConfig(
            model=self.model,
            dtype=self.dtype,
            seed=self.seed,
            top_p=self.top_p,
            max_completion_tokens=self.max_new_tokens,
            max_sequence_tokens=context,
            rollout_batch=self.batch,
            group_size=self.k,
            advantage="reinforce_pp",  # group advantages would refuse k = 1; nothing is trained
            engine=self.engine,
            chat_template="never" if self.template == "base" else "auto",
            system_prompt=self.system_prompt,
            template_arguments=self.template_arguments,
            stop_tokens=self.stop_tokens,
        )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def digest_of_files(files: Iterable[Path]) -> str:
    """Sixteen hexadecimal digits of SHA-256 of the names and contents of the files among `files`, in any order."""
    found = []
    for path in sorted(files):
        if path.is_file():
            with open(path, "rb") as file:
                found.append([path.name, hashlib.file_digest(file, "sha256").hexdigest()])
    return _digest(json.dumps(found).encode())


@functools.cache
def code_digest() -> str:
    """Digest of the package's code, which also identifies a changed tree and code outside of git."""
    return digest_of_files(Path(provenance.__file__).parent.rglob("*.py"))


class Evaluator:
    """A model that answers problems after `start` has made its engine.

    Args:
        settings: the settings of the evaluation.
        tasks: {name: task}; a completion may call the tool of its problem's task.
        device: the device of the model.
    Raises:
        ConfigError: the model cannot be found, or its context has no room for `max_new_tokens`.
    """

    def __init__(self, settings: Settings, tasks: dict[str, Task], device):
        self.settings = settings
        self.model, tokenizer = load_policy(settings.config(context=settings.max_new_tokens + 1))
        self.model.to(device).eval()
        text_config = self.model.config.get_text_config()
        self.context = getattr(text_config, "max_position_embeddings", None) or sys.maxsize
        if settings.max_new_tokens >= self.context:
            raise ConfigError(
                f"max_new_tokens {settings.max_new_tokens}: the context of {settings.title} has {self.context} "
                "tokens, prompt and completion together; lower it."
            )
        self.tasks = tasks
        self.engine = RolloutEngine(self.model, tokenizer, settings.config(self.context), tasks)  # reads prompts only

    def start(self, prompt_tokens: int) -> None:
        """Make the engine for prompts of at most `prompt_tokens`; vLLM reserves memory for the longest sequence.

        With a tool that is the whole context, because a tool's output has no limit in tokens.
        """
        tokens = self.context if self.engine.tools else prompt_tokens + self.settings.max_new_tokens
        self.engine = make_engine(self.model, self.engine.tokenizer, self.settings.config(tokens), self.tasks)

    def close(self) -> None:
        """Free what sampling uses; who makes an evaluator must close it."""
        self.engine.close()

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template that may be used."""
        return self.settings.template != "base" and self.engine.tokenizer.chat_template is not None

    def texts(self, protocol: Protocol, problems: list[Problem]) -> list[str]:
        """The prompts as the model reads them."""
        return self.engine.texts_of(self._asked(protocol, problems))

    def _asked(self, protocol: Protocol, problems: list[Problem]) -> list[Problem]:
        """The problems with the protocol's prompts; also sets the engine to use or not to use the chat template."""
        self.engine.format.allowed = protocol.chat
        return [dataclasses.replace(problem, prompt=protocol.ask(problem).prompt) for problem in problems]

    def lengths(self, protocol: Protocol, texts: list[str]) -> list[int | None]:
        """The number of tokens of each prompt; None where the prompt leaves no room for an answer."""
        room = self.context - (1 if protocol.by_letter else self.settings.max_new_tokens)
        ids = token_ids(self.engine.tokenizer, texts, protocol.chat)
        return [len(prompt) if len(prompt) <= room else None for prompt in ids]

    def answer(self, protocol: Protocol, problems: list[Problem], slots: list[int]) -> list[dict]:
        """The lines of some problems.

        Args:
            protocol: the protocol by which they are asked and graded.
            problems: problems of the protocol's task.
            slots: their places among the task's problems, which key the random streams.
        """
        texts = self.texts(protocol, problems)
        fits = [length is not None for length in self.lengths(protocol, texts)]
        fitting = [i for i, fit in enumerate(fits) if fit]
        found = iter(())
        if fitting:
            answered = self.letters if protocol.by_letter else self.completions
            found = iter(answered(protocol, [problems[i] for i in fitting], [slots[i] for i in fitting]))
        k = 1 if protocol.by_letter else self.settings.k
        missing = {"completions": [], "answers": [None] * k, "rewards": [0.0] * k, "tokens": [0] * k,
                   "truncated": [False] * k}  # fmt: skip
        return [
            {"task": problem.task, "id": problem.id, "prompt": text, "gold": problem.answer, "too_long": not fit}
            | (next(found) if fit else missing)
            for problem, text, fit in zip(problems, texts, fits, strict=True)
        ]

    def completions(self, protocol: Protocol, problems: list[Problem], slots: list[int]) -> list[dict]:
        """Sampled and graded completions; one that the protocol cut at its end does not count as truncated."""
        tau_P = torch.full((len(problems),), self.settings.temperature, device=self.engine.device)
        prompts = self.engine.encode(self._asked(protocol, problems), slots)
        stream = zlib.crc32(protocol.task.name.encode())  # each task has its own stream, whatever the other tasks are
        k = self.settings.k
        rollouts = self.engine.sample(prompts, self.engine.open(prompts), k, tau_P, "evaluation", stream)
        texts = rollouts.grouped(rollouts.texts)
        tokens = rollouts.grouped(rollouts.mask_B_T.sum(dim=1).tolist())
        limited = rollouts.grouped(rollouts.truncated_B.tolist())
        lines = []
        for i, problem in enumerate(problems):
            stop = protocol.ask(problem).stop
            ended = [cut(text, stop) for text in texts[i]]
            grades, failed = zip(
                *(graded(protocol.grade, problem, text, self.settings.failed_grading) for text in ended), strict=True
            )
            lines.append(
                {
                    "completions": ended,
                    "answers": [None if g.answer is None else str(g.answer) for g in grades],
                    "rewards": [g.reward for g in grades],
                    "tokens": tokens[i],
                    "truncated": [
                        full and text == whole for full, text, whole in zip(limited[i], ended, texts[i], strict=True)
                    ],
                }
                | ({"failed_grades": failures} if (failures := [*filter(None, failed)]) else {})
            )
        return lines

    def letters(self, protocol: Protocol, problems: list[Problem], slots: list[int]) -> list[dict]:
        """The likeliest of the letters A to D after each prompt, from one forward pass a problem (hendrycks/test)."""
        lines = []
        logps = letter_logps(self.model, self.engine.tokenizer, self.texts(protocol, problems), protocol.chat)
        for problem, of_letter in zip(problems, logps, strict=True):
            letter = max(of_letter, key=of_letter.get)
            lines.append(
                {
                    "completions": [letter],
                    "answers": [letter],
                    "rewards": [float(letter == problem.answer)],
                    "tokens": [0],
                    "truncated": [False],
                    "logprobs": of_letter,
                }
            )
        return lines


@torch.no_grad()
def letter_logps(model, tokenizer, texts: list[str], chat: bool) -> list[dict[str, float]]:
    """The log-probability of each letter A to D after each text, in nats.

    The token of a letter is the first token in which the text with this letter differs from the text with another: " A"
    after "Answer:", and "A" at the start of a chat model's answer.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its tokenizer, which pads on the left.
        texts: the prompts as the model reads them.
        chat: whether they are in the chat template, which has the special tokens already.
    """
    begun, candidates = [], []
    for text in texts:
        ids = token_ids(tokenizer, [text + " " * (not chat) + letter for letter in LETTERS], chat)
        same = next(i for i, tokens in enumerate(zip(*ids, strict=False)) if len(set(tokens)) > 1)
        begun.append({"input_ids": ids[0][:same]})
        candidates.append([letter[same] for letter in ids])
    batch = tokenizer.pad(begun, return_tensors="pt").to(model.device)
    logps = prefill(model, batch["input_ids"], batch["attention_mask"]).logits[:, -1].float().log_softmax(dim=-1)
    chosen = logps.gather(1, torch.tensor(candidates, device=logps.device)).tolist()
    return [dict(zip(LETTERS, values, strict=True)) for values in chosen]


def first(problems: list[Problem], count: int | None) -> list[Problem]:
    """The first problems of a split; if the split is sorted by subject (MATH, MMLU), the subjects take turns."""
    subjects = [(key, list(group)) for key, group in itertools.groupby(problems, lambda p: getattr(p, "subject", ""))]
    if count is not None and 1 < len(subjects) == len({key for key, _ in subjects}):
        turns = itertools.zip_longest(*(group for _, group in subjects))
        problems = [problem for turn in turns for problem in turn if problem is not None]
    return problems[:count]


def run(settings: Settings, out: Path, command: list[str]) -> pd.DataFrame:
    """Evaluate, or resume an evaluation; returns its table on every rank.

    Args:
        settings: the settings of the evaluation.
        out: the folder of the results; it is made if it does not exist.
        command: the words of the command line, for run.json.
    Raises:
        ConfigError: the folder is a file, contains something else or is being written by another process, the model
            cannot be found, or no prompt of a task fits.
        ValueError, FileNotFoundError, ConnectionError: a task or its records cannot be loaded.
        GradingError: grading failed, and `failed_grading` is "raise".
        SandboxRefused: a task runs programs, and this machine offers no sandbox.
        OtherRankFailed: another rank raised.
    """
    refuse_file(out)
    tasks = {name: get_task(name, settings.data_dir) for name in settings.tasks}
    problems = {name: first(task.problems(settings.split), settings.problems) for name, task in tasks.items()}
    identity = settings.identity() | {"data": _digest(repr(problems).encode())}
    if _finished(out, identity):
        return pd.read_csv(out / "table.csv")
    before = provenance.memory()
    state = _ranks()
    with contextlib.ExitStack() as held:
        with together(state):
            evaluator = held.enter_context(contextlib.closing(Evaluator(settings, tasks, state.device)))
            protocols = _protocols(evaluator, tasks, problems)
            described = {name: protocol.described(problems[name][0]) for name, protocol in protocols.items()}
            identity["protocols"] = described
            _refuse_other(out, identity)
        with together(state):
            if state.is_main_process:
                held.enter_context(_alone(out))
        state.wait_for_everyone()
        if _finished(out, identity):  # another process finished it meanwhile
            return pd.read_csv(out / "table.csv")
        done = _lines(out)
        state.wait_for_everyone()  # all ranks have read before one writes
        record = {
            key: value
            for key, value in provenance.collect(command, settings.config(evaluator.context)).items()
            if key not in ("method", "hash", "numerics_version")  # they describe a training run
        } | identity
        error = None
        try:
            with together(state):
                if state.is_main_process:
                    provenance.write_json(out / "run.json", record)
                _answer_all(evaluator, protocols, problems, done, out / f"rank{state.process_index}.jsonl", state)
            state.wait_for_everyone()
            with together(state):
                if state.is_main_process:
                    record |= _merge(out, settings, problems, described)
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            if state.is_main_process:
                record = provenance.conclude(record, int(error is not None), error, before)
                provenance.write_json(out / "run.json", record)
        if state.is_main_process:
            for shard in out.glob("rank*.jsonl"):
                shard.unlink()
        state.wait_for_everyone()
        return pd.read_csv(out / "table.csv")


def refuse_file(out: Path) -> None:
    """Raise ConfigError if the folder cannot exist because it, or a folder above it, is a file."""
    file = next((path for path in (out, *out.parents) if path.exists() and not path.is_dir()), None)
    if file:
        raise ConfigError(f"out: {str(file)!r} is a file; give a folder.")


@contextlib.contextmanager
def _alone(out: Path):
    """A context that makes the folder if it does not exist, and locks it against other evaluations.

    Raises:
        ConfigError: another process has locked it.
    """
    out.mkdir(parents=True, exist_ok=True)
    folder = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise ConfigError(
            f"out: another process is writing to {str(out)!r}; wait for it or end it, or give another folder."
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(folder)


def _protocols(
    evaluator: Evaluator, tasks: dict[str, Task], problems: dict[str, list[Problem]]
) -> dict[str, Protocol]:  # fmt: skip
    """Each task's protocol; starts the engine, and raises if a task has no problem or none fits the context."""
    c, found, longest = evaluator.settings, {}, None
    for name, task in tasks.items():
        if not problems[name]:
            raise ConfigError(f"tasks: {name} has no {c.split} problem; leave it out, or take another split.")
        found[name] = protocol_of(task, problems[name][0], c.prompt, c.template, c.grading, evaluator.has_template)
        lengths = evaluator.lengths(found[name], evaluator.texts(found[name], problems[name]))
        fitting = [length for length in lengths if length is not None]
        if not fitting:
            raise ConfigError(
                f"tasks: no prompt of {name} fits into the {evaluator.context} tokens of {c.title}'s context with "
                f"{c.max_new_tokens} new ones; lower max_new_tokens, or ask zero-shot."
            )
        if not found[name].by_letter:
            longest = max(*fitting, longest or 0)
    if (c.system_prompt is not None or c.template_arguments) and not any(p.chat for p in found.values()):
        raise ConfigError(
            "system_prompt and template_arguments are for a chat template, and no task is asked in one: leave them "
            "out, or set template to chat."
        )
    if longest is not None:
        evaluator.start(longest)
    return found


def _ranks() -> PartialState:
    """The state of this rank among all ranks; without a launcher there is one."""
    return PartialState(cpu=not torch.cuda.is_available(), timeout=LONGEST_WAIT)


def _finished(out: Path, identity: dict) -> bool:
    """Whether the folder contains the finished evaluation; raises if it contains another one."""
    _refuse_other(out, identity)
    return (out / "run.json").is_file() and provenance.read_json(out / "run.json")["status"] == "finished"


def _refuse_other(out: Path, identity: dict) -> None:
    if not (out / "run.json").is_file():
        if out.exists() and any(out.iterdir()):
            raise ConfigError(f"out: {str(out)!r} is not empty and contains no evaluation; give another folder.")
        return
    found = provenance.read_json(out / "run.json")
    flat = [{**whole, **whole.get("settings", {}), "settings": None} for whole in (found, identity)]
    changed = [
        f"{name} {flat[0].get(name)!r}, not {value!r}" for name, value in flat[1].items() if flat[0].get(name) != value
    ]
    if changed:
        raise ConfigError(
            f"out: {str(out)!r} was made with {'; '.join(changed)}. Give another folder, or delete this one."
        )


def _lines(out: Path) -> dict[tuple[str, str], dict]:
    """The finished problems of all ranks: {(task, id): line}."""
    rows = [row for shard in sorted(out.glob("rank*.jsonl")) for row in provenance.read_jsonl(shard)]
    return {(row["task"], row["id"]): row for row in rows}


def _answer_all(
    evaluator: Evaluator, protocols: dict[str, Protocol], problems: dict[str, list[Problem]], done: dict, shard: Path,
    state: PartialState,
) -> None:  # fmt: skip
    """Append the lines of this rank's batches to its file; the ranks take turns at batches that are not done.

    A batch that is done in part is computed again as a whole.
    """
    size = max(1, evaluator.settings.batch // evaluator.settings.k)
    batches = [
        (name, start, several[start : start + size])
        for name, several in problems.items()
        for start in range(0, len(several), size)
    ]
    left = [(name, start, part) for name, start, part in batches if any((name, p.id) not in done for p in part)]
    for name, start, part in left[state.process_index :: state.num_processes]:
        begun = time.perf_counter()
        lines = evaluator.answer(protocols[name], part, list(range(start, start + len(part))))
        seconds = time.perf_counter() - begun
        for line in lines:
            if (name, line["id"]) not in done:
                provenance.append_jsonl(shard, line | {"seconds": seconds / len(part)})
        if state.is_main_process:
            tokens = sum(sum(line["tokens"]) for line in lines)
            end = f"{start + len(part)} of {len(problems[name])} problems"
            print(f"{name}: {end}, {tokens} tokens in {seconds:.1f} s", file=sys.stderr, flush=True)
        if failed := [sentence for line in lines for sentence in line.get("failed_grades", ())]:
            sentence = f"{len(failed)} x grading failed, which counts as 0. The first: {failed[0]}"
            print(sentence, file=sys.stderr, flush=True)


def _merge(out: Path, settings: Settings, problems: dict[str, list[Problem]], described: dict[str, dict]) -> dict:
    """Write the table, and the lines of all ranks in the order of the problems; times are only in the table.

    Returns an entry for run.json: the number of failed gradings of each task, if there are any.
    """
    done = _lines(out)
    lines = {name: [done[name, problem.id] for problem in several] for name, several in problems.items()}
    tau = settings.temperature
    sampled = {"model": settings.title, "k": settings.k, "tau": tau, "p": settings.top_p if tau else 1.0}
    by_letter = {"k": 1, "tau": 0.0, "p": 1.0}
    described = {
        name: words | sampled | (by_letter if words["grading"] == "likeliest letter" else {})
        for name, words in described.items()
    }
    evaluation_table.table(lines, described).to_csv(out / "table.csv", index=False, float_format="%.6g")
    provenance.write_jsonl(
        out / "problems.jsonl",
        [{key: line[key] for key in line if key != "seconds"} for several in lines.values() for line in several],
    )
    failed = {name: sum(len(line.get("failed_grades", ())) for line in several) for name, several in lines.items()}
    return {"failed_grades": failed} if any(failed.values()) else {}


def promote(out: Path, to: Path) -> None:
    """Copy a finished evaluation, without prompts, golds and completions, into a folder that is committed.

    Raises:
        ValueError: the evaluation is not finished, or was made from uncommitted changes.
    """
    record = provenance.read_json(out / "run.json")
    if record["status"] != "finished":
        raise ValueError(f"out: {str(out)!r} is not finished; run the same command again.")
    refuse_dirty(record["commit"])
    to.mkdir(parents=True, exist_ok=True)
    rows = [{key: row[key] for key in RECORDED} for row in provenance.read_jsonl(out / "problems.jsonl")]
    provenance.write_jsonl(to / "problems.jsonl", rows)
    (to / "table.csv").write_bytes((out / "table.csv").read_bytes())
    provenance.write_json(to / "run.json", record)


def refuse_dirty(commit: str) -> None:
    """Raise ValueError unless `commit` is a commit without changes, as a record needs."""
    if commit == "unknown" or commit.endswith("-dirty"):
        raise ValueError(f"record: made from {commit}, which is no clean commit; commit first, then run again.")


def main(argv: list[str] | None = None) -> None:
    """The command line; its options are those of `Settings`."""
    parser = argparse.ArgumentParser(
        prog="python -m agpo_core.evaluation.evaluate",
        description="Evaluate a model on benchmarks: a line for each problem, and a table. Started again, it resumes.",
    )
    add, defaults = parser.add_argument, {f.name: f.default for f in dataclasses.fields(Settings)}
    add("--model", required=True, help="an embedded model, a folder, or a hub id")
    add("--tasks", required=True, help="names with commas between them; `python -m agpo_core.tasks list` has them")
    add("--split", choices=SPLITS, default="test")
    add("--problems", type=int, help="number of problems of each task, the first ones; default all")
    add("--k", type=int, default=1, help="completions for each problem; 1: greedy accuracy; more: avg@k, pass@k, maj@k")
    add("--temperature", type=float, help="default 0 (greedy) for k 1, else 1")
    add("--top-p", type=float, default=defaults["top_p"], help="nucleus of sampled completions; default %(default)s")
    add("--max-new-tokens", type=int, default=defaults["max_new_tokens"], help="default %(default)s")
    add("--prompt", choices=PROMPTS, default="auto", help="zero: zero-shot, boxed; few: the published few-shot prompt, "
        "if there is one; auto: the same if its demonstrations are there; or a protocol by name")  # fmt: skip
    add("--template", choices=TEMPLATES, default="auto", help="auto: the model's chat template, if any, zero-shot")
    add("--system-prompt", metavar="TEXT", help="first message of every chat; default the template's own, if any")
    add("--template-argument", dest="template_arguments", action="append", default=[], metavar="NAME=VALUE",
        help="what the chat template is given, the value as JSON: enable_thinking=false; may be repeated")  # fmt: skip
    add("--stop-token", dest="stop_tokens", action="append", default=[], metavar="TEXT",
        help="a token that ends a completion, besides the model's own; may be repeated")  # fmt: skip
    add("--grading", default="modern", metavar="NAME", help="modern (the grader that training uses, the default); "
        "official (the published scoring that belongs to the prompt); or a published scoring by name, if it is of the "
        f"task: {', '.join(GRADINGS[2:])}")  # fmt: skip
    add("--data-dir", help="the official files, each benchmark's in its own folder; default the hub")
    add("--engine", choices=tuple(ENGINES), default="transformers")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--batch", type=int, default=defaults["batch"], help="completions decoded at once, default %(default)s")
    add("--seed", type=int, default=defaults["seed"])
    add("--failed-grading", choices=("zero", "raise"), default=defaults["failed_grading"],
        help="a completion that makes its grader fail counts as 0 (the default), or ends the evaluation")  # fmt: skip
    add("--out", type=Path, help="folder of the results; default one in outputs/runs/evaluation/")
    add("--record", help="a folder in outputs/reference/ that also receives the results, without the benchmarks' texts")
    words = sys.argv[1:] if argv is None else argv
    options = vars(parser.parse_args(words))
    out, record = options.pop("out"), options.pop("record")
    if options["temperature"] is None:
        options["temperature"] = 0.0 if options["k"] == 1 else 1.0
    for name in ("template_arguments", "stop_tokens"):
        options[name] = tuple(options[name])
    options["tasks"] = tuple(name.strip() for name in options["tasks"].split(",") if name.strip())
    try:
        settings = Settings(**options)
        if record:
            refuse_dirty(provenance.git_commit())
        out = out or settings.folder()
        found = run(settings, out, [sys.executable, "-m", "agpo_core.evaluation.evaluate", *words])
        state = _ranks()
        if state.is_main_process:
            print(f"{out}\n\n{evaluation_table.text(found)}")
            if record:
                promote(out, paths.reference() / record)
        state.destroy_process_group()
    except (ConnectionError, FileNotFoundError, OtherRankFailed, SandboxRefused, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
