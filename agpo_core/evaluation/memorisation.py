"""Memorisation probe: does a model complete truncated prompts word for word? (AGPO §4.1)

    python -m agpo_core.evaluation.memorisation --model MODEL --tasks gsm8k,math --data-dir FOLDER --out FOLDER

AGPO runs "a low-temperature memorization probe on dev prompts" and says no more about it. We do this: the question,
without the task's instruction, is cut after half of its tokens, and the model writes on at temperature 0.1 from the
full vocabulary. A prompt is memorised if the whole rest follows, character by character. The model gets plain text
without a chat template, as it would have seen the question in training. The length of the common prefix says how near
the other completions came.

A question whose rest is short, or follows from its beginning, can be completed by a model that has not seen it; and a
model that has seen a question need not recite it. If none of n prompts is memorised, the bootstrap's interval is the
point 0, although a share of 3 / n would still give none in one probe of twenty.

A question that does not fit into the model's context is not probed; it is counted under `too_long`, not under `n`.

The folder `--out` receives memorisation.jsonl (a line for each problem, without its text), table.csv and run.json,
which says how the probe ended.
"""

import argparse
import math
import statistics
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from os.path import commonprefix
from pathlib import Path

import pandas as pd
import torch

from agpo_core import metrics, provenance
from agpo_core.config import KINDS, ConfigError, TrainConfig
from agpo_core.evaluation.evaluation_run import refuse_file
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.prompts import token_ids
from agpo_core.rollouts.rollout import make_engine
from agpo_core.sandbox import SandboxRefused
from agpo_core.settings import choices
from agpo_core.tasks import SPLITS, Problem, get_task
from agpo_core.tasks.decontamination import questions

LINES = "memorisation.jsonl"


def truncate(tokenizer, text: str, shown: float) -> tuple[str, str]:
    """A text cut after a share of its tokens: the part that is shown and the rest, each of at least one token.

    A character of several tokens is not split; it belongs to the part that is shown.

    Args:
        tokenizer: a fast tokenizer, which gives the offsets of its tokens.
        text: a text of two tokens or more.
        shown: share of the tokens that is shown, in (0, 1); their number is rounded down.
    Raises:
        ValueError: one of the two parts would be empty.
    """
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    last = max(1, int(shown * len(offsets))) - 1
    end = offsets[last][1] if offsets else 0
    if not 0 < end < len(text):
        raise ValueError(f"the text {text!r} has too few tokens to be cut after {shown:g} of them; leave it out.")
    return text[:end], text[end:]


def common_characters(completion: str, rest: str) -> tuple[int, int]:
    """The number of characters that a completion has in common with the start of the rest, and the rest's length.

    White space at the start does not count, because tokenizers differ in whether it belongs to the next word.
    """
    completion, rest = completion.lstrip(), rest.lstrip()
    return len(commonprefix([completion, rest])), len(rest)


def probe(
    model, tokenizer, texts: Sequence[str], config: TrainConfig, shown: float = 0.5, temperature: float = 0.1
) -> list[dict]:  # fmt: skip
    """Let a model complete truncated texts, and count what it reproduces.

    Args:
        model, tokenizer: a causal language model and its tokenizer; a chat template is not used.
        texts: the texts that the model may have memorised.
        config: uses model, dtype, seed, engine, rollout_batch.
        shown: share of a text's tokens that it is shown, in (0, 1).
        temperature: >= 0; 0 decodes greedily.
    Returns:
        a dict for each text: tokens (of the rest), characters (of the rest), prefix (characters of the rest that were
        reproduced before the first different one), memorised (whether all were), and too_long (whether the text does
        not fit into the model's context; then prefix and memorised are None).
    Raises:
        ConfigError: shown or temperature is out of range, or no text fits into the model's context.
        ValueError: a text cannot be cut.
    """
    if not 0 < shown < 1:
        raise ConfigError(f"shown={shown} must lie between 0 and 1: .5 shows half of a prompt's tokens.")
    if not 0 <= temperature < math.inf:
        raise ConfigError(f"temperature={temperature} must be 0 or more, and finite; 0 decodes greedily.")
    pairs = [truncate(tokenizer, text, shown) for text in texts]
    rests = [len(tokenizer(rest, add_special_tokens=False)["input_ids"]) for _, rest in pairs]
    starts = [len(ids) for ids in token_ids(tokenizer, [start for start, _ in pairs], rendered=False)]
    context = getattr(model.config, "max_position_embeddings", None) or math.inf
    kept = sorted(range(len(pairs)), key=lambda i: starts[i] + rests[i])
    while kept and max(starts[i] for i in kept) + max(rests[i] for i in kept) > context:
        kept.pop()
    if not kept:
        shortest = min(a + b for a, b in zip(starts, rests, strict=True))
        raise ConfigError(
            f"texts: none fits into the model's context of {context} tokens, the shortest has {shortest}; take another "
            "model, or other tasks."
        )
    kept.sort()
    longest, room = max(starts[i] for i in kept), max(rests[i] for i in kept)
    config = replace(
        config, top_p=1.0, max_completion_tokens=room, max_sequence_tokens=longest + room,
        chat_template="never", system_prompt=None, template_arguments=(), stop_tokens=(),
    )  # fmt: skip
    problems = [Problem("memorisation", str(i), *pairs[i]) for i in kept]
    completions, at_once = [], config.rollout_batch
    with closing(make_engine(model, tokenizer, config)) as sampler:
        for first in range(0, len(problems), at_once):
            part = problems[first : first + at_once]
            slots = [zlib.crc32(problem.prompt.encode()) for problem in part]  # keyed by the text alone
            prompts = sampler.encode(part, slots)
            tau_P = torch.full((len(part),), temperature, device=prompts.slots_P.device)
            completions += sampler.sample(prompts, sampler.open(prompts), 1, tau_P, "evaluation", 0).texts
    written = dict(zip(kept, completions, strict=True))
    lines = []
    for i, ((_, rest), tokens) in enumerate(zip(pairs, rests, strict=True)):
        line = {"tokens": tokens, "characters": len(rest.lstrip()), "prefix": None, "memorised": None}
        if i in written:
            line["prefix"], characters = common_characters(written[i], rest)
            line["memorised"] = line["prefix"] == characters
        lines.append(line | {"too_long": i not in written})
    return lines


def table(lines: Sequence[dict]) -> pd.DataFrame:
    """A table with one row for each task: the share of memorised prompts with an interval, and the prefixes.

    Columns: task; n (without the questions that are too long); too_long; memorised (a share), low and high (its 95 %
    bootstrap interval over problems, which needs two); prefix_mean, prefix_median and prefix_max (of the share of the
    rest that was reproduced before the first different character). A task whose questions are all too long has no
    shares.
    """
    rows = []
    for task in dict.fromkeys(line["task"] for line in lines):
        every = [line for line in lines if line["task"] == task]
        mine = [line for line in every if not line["too_long"]]
        memorised = [float(line["memorised"]) for line in mine] or [math.nan]
        shares = [line["prefix"] / line["characters"] for line in mine] or [math.nan]
        low, high = metrics.bootstrap_interval(memorised) if len(mine) > 1 else (math.nan, math.nan)
        rows.append(
            {
                "task": task,
                "n": len(mine),
                "too_long": len(every) - len(mine),
                "memorised": statistics.mean(memorised),
                "low": low,
                "high": high,
                "prefix_mean": statistics.mean(shares),
                "prefix_median": statistics.median(shares),
                "prefix_max": max(shares),
            }
        )
    return pd.DataFrame(rows)


def first_questions(name: str, split: str, count: int, data_dir: str | None = None) -> list[Problem]:
    """A task's first problems, with only the question as their prompt.

    Raises:
        ConfigError: the split has fewer problems.
    """
    problems = get_task(name, data_dir).problems(split)
    if len(problems) < count:
        raise ConfigError(f"problems: {name} has {len(problems)} {split} problems, {count} were asked for; lower it.")
    texts = questions(problems)
    return [replace(p, prompt=text.strip()) for p, text in zip(problems[:count], texts[:count], strict=True)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m agpo_core.evaluation.memorisation",
        description="Let a model complete truncated prompts, and count those that it has memorised.",
    )
    parser.add_argument("--model", required=True, help="an embedded model, a folder, or a hub id")
    parser.add_argument("--tasks", required=True, help="names with commas between them")
    parser.add_argument("--split", choices=SPLITS, default="dev")
    parser.add_argument("--problems", type=int, default=50, help="problems of each task, the first of the split")
    parser.add_argument("--shown", type=float, default=0.5, help="share of a question's tokens, in (0, 1)")
    parser.add_argument("--temperature", type=float, default=0.1, help="0: greedy")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--engine", choices=choices(KINDS["engine"]), default="transformers")
    parser.add_argument("--dtype", choices=choices(KINDS["dtype"]), default="float32")
    parser.add_argument("--data-dir", metavar="FOLDER", help="the official files; default: the hub")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args(argv)
    try:
        found = run(arguments)
    except (ConnectionError, FileNotFoundError, SandboxRefused, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(found.to_string(index=False, float_format="{:.3f}".format))
    return 0


def run(arguments: argparse.Namespace) -> pd.DataFrame:
    """Probe the model, write the results into the folder `out`, and return the table.

    Raises:
        ConfigError: the folder is a file or not empty, or a setting is out of range.
        SandboxRefused: a task runs programs, and this machine offers no sandbox.
    """
    out, before = arguments.out, provenance.memory()
    refuse_file(out)
    if out.exists() and {path.name for path in out.iterdir()} - {"run.json"}:  # a failed probe leaves it
        raise ConfigError(f"out: {out} is not empty; give another folder, or delete that one.")
    if arguments.problems < 1:
        raise ConfigError(f"problems={arguments.problems} must be 1 or more.")
    asked = [
        (name, problem)
        for name in dict.fromkeys(arguments.tasks.split(","))
        for problem in first_questions(name, arguments.split, arguments.problems, arguments.data_dir)
    ]
    config = TrainConfig(model=arguments.model, dtype=arguments.dtype, seed=arguments.seed, engine=arguments.engine)
    model, tokenizer = load_policy(config)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    # Only the last part of a folder's path is recorded.
    settings = {name: Path(value).name if Path(str(value)).is_absolute() else value
                for name, value in vars(arguments).items() if value is not None}  # fmt: skip
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "agpo_core.evaluation.memorisation", *words]
    record = {
        key: value
        for key, value in provenance.collect(command, config).items()
        if key not in ("method", "hash", "numerics_version")  # they describe a training run
    } | {name: value for name, value in settings.items() if name not in ("out", "data_dir")}
    out.mkdir(parents=True, exist_ok=True)
    provenance.write_json(out / "run.json", record)
    error = None
    try:
        found = probe(model, tokenizer, [p.prompt for _, p in asked], config, arguments.shown, arguments.temperature)
        lines = [{"task": name, "id": p.id, **line} for (name, p), line in zip(asked, found, strict=True)]
        rows = table(lines)
        rows.to_csv(out / "table.csv", index=False)
        provenance.write_jsonl(out / LINES, lines)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        provenance.write_json(out / "run.json", provenance.conclude(record, int(error is not None), error, before))
    return rows


if __name__ == "__main__":
    sys.exit(main())
