"""Makes the embedded models: random weights, then one supervised pass over demonstrations.

    python -m agpo_core.models.tiny_models              all of them, one after the other
    python -m agpo_core.models.tiny_models --only tiny-llama

There are three architectures of about 0.2 M parameters with a character-level tokenizer. Qwen2 has six supervised
starts that differ only in the seed, and one that was trained on Knights and Knaves instead of the micro-tasks. Each
model is written to `agpo_core/models/<name>/` in Hugging Face format. Its measurements before any reinforcement
learning are written to `agpo_core/models/starts.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch

from agpo_core import paths
from agpo_core.tasks import MICRO_TASKS, get_task
from agpo_core.tasks.knights import PEOPLE, Knights, roles_right
from agpo_core.tasks.micro import ALPHABET, MicroTask
from agpo_core.training.baselines import sft

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
SAMPLES = 8  # completions for each problem, for pass@8
SAMPLED_PROBLEMS = 100  # test problems of each task, for pass@8 and entropy
MAX_NEW_TOKENS = 24

# Attention is scaled by the head size everywhere; Gemma-2 has to be told.
ARCHITECTURES = {"qwen2": {}, "llama": {}, "gemma2": {"query_pre_attn_scalar": 16}}


class Supervision(NamedTuple):
    """One supervised pass over demonstrations."""

    steps: int  # optimizer steps
    batch: int  # demonstrations in each step, the tasks in turn
    learning_rate: float  # the peak


class Start(NamedTuple):
    """How an embedded model is made and measured."""

    architecture: str
    seed: int  # of the weights and of the demonstrations
    taught: tuple[str, ...] = MICRO_TASKS  # tasks that are demonstrated, in turn
    tested: tuple[str, ...] = MICRO_TASKS
    recipe: Supervision = Supervision(steps=2600, batch=99, learning_rate=5.0e-3)


KNIGHTS = Supervision(steps=1000, batch=64, learning_rate=2.0e-3)  # at the micro-tasks' rate, no role in 700 steps

MODELS = {
    **{f"tiny-qwen2-{letter}": Start("qwen2", seed) for seed, letter in enumerate("abcdef", start=1)},
    "tiny-llama": Start("llama", 1),
    "tiny-gemma2": Start("gemma2", 1),
    # It names as many people as its demonstrations had, and hardly one more, so 2 and 3 are too few for R++ Fig. 4.
    "tiny-knights": Start(
        "qwen2", 1, tuple(f"knights_{n}" for n in (2, 3, 4, 5)), tuple(f"knights_{n}" for n in PEOPLE), KNIGHTS
    ),
}


def character_tokenizer(architecture: str = "qwen2"):
    """A tokenizer with one token for each character; padding and end-of-sequence are different tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate((PAD, EOS, UNKNOWN, *ALPHABET))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=64,
        # Without this entry AutoTokenizer uses Qwen2's own class and ignores the saved one.
        **({"auto_map": {"AutoTokenizer": [None, None]}} if architecture == "qwen2" else {}),
    )


def new_model(architecture: str, tokenizer, seed: int):
    """A randomly initialised model of about 0.2 M parameters with tied embeddings."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=224,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **ARCHITECTURES[architecture],
    )
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def demonstrations(tasks: Sequence[MicroTask], count: int, seed: int) -> list[tuple[str, str]]:
    """`count` demonstrations as (prompt, completion), from the tasks in turn."""
    streams = [task.demonstrations(seed) for task in tasks]
    return [next(streams[i % len(streams)]) for i in range(count)]


def train_supervised(architecture: str, tasks: Sequence[MicroTask], seed: int, recipe: Supervision):
    """A new model after one supervised pass over demonstrations of some tasks.

    Returns:
        (model, tokenizer, log), the log as from `baselines.sft`.
    """
    tokenizer = character_tokenizer(architecture)
    model = new_model(architecture, tokenizer, seed)
    steps, batch, learning_rate = recipe
    pairs = demonstrations(tasks, steps * batch, seed)
    log = sft(model, tokenizer, pairs, batch_size=batch, learning_rate=learning_rate, warmup_steps=50, seed=seed)
    return model, tokenizer, log


@torch.no_grad()
def complete(model, tokenizer, prompts: list[str], samples: int = 0):
    """Completions of prompts: greedy, or `samples` of each at temperature 1 from the full vocabulary.

    Returns:
        (texts, entropy, length): the completions without end-of-sequence, the samples of a prompt side by side; the
        mean entropy of their tokens in nats; their mean number of tokens. Both means count the end-of-sequence token.
    """
    encoded = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    output = model.generate(
        **encoded,
        do_sample=samples > 0,
        num_return_sequences=max(samples, 1),
        top_k=0,
        max_new_tokens=MAX_NEW_TOKENS,
        return_dict_in_generate=True,
        output_logits=True,
    )
    ids_B_T = output.sequences[:, encoded["input_ids"].shape[1] :]
    ends_B_T = (ids_B_T == tokenizer.eos_token_id).long()
    mask_B_T = ends_B_T.cumsum(1) == ends_B_T  # all tokens up to and with the first end-of-sequence
    logps_B_T_V = torch.stack(output.logits, dim=1).log_softmax(-1)
    entropy_B_T = -(logps_B_T_V.exp() * logps_B_T_V).sum(-1)
    texts = tokenizer.batch_decode(ids_B_T, skip_special_tokens=True)
    return texts, entropy_B_T[mask_B_T].mean().item(), mask_B_T.sum(1).float().mean().item()


def measure(model, tokenizer, seed: int, names: Sequence[str] = MICRO_TASKS) -> dict:
    """Measurements of a start on test problems, before reinforcement learning.

    Returns:
        {"macro": {...}, "tasks": {task: {...}}} with greedy (mean reward of greedy answers), sampled (mean reward at
        temperature 1), pass_at_8 (share of problems that one of 8 samples solves), entropy (nats for each token) and
        length (tokens). For multiple choice there is also letters (each letter's share of the greedy answers). For
        Knights and Knaves there are also roles (share of people whose role is right in the greedy answers) and
        everyone_named (share of greedy answers with as many letters as people).
    """
    model.eval()
    torch.manual_seed(seed)
    tasks = {name: _measure_task(model, tokenizer, get_task(name)) for name in names}
    keys = ("greedy", "sampled", "pass_at_8", "length")
    macro = {key: round(sum(row[key] for row in tasks.values()) / len(tasks), 4) for key in keys}
    nats = sum(row["entropy"] * row["length"] for row in tasks.values())
    macro["entropy"] = round(nats / sum(row["length"] for row in tasks.values()), 4)
    return {"macro": macro, "tasks": tasks}


def _measure_task(model, tokenizer, task) -> dict:
    problems = task.problems("test")
    answers, *_ = complete(model, tokenizer, [p.prompt for p in problems])
    greedy = [task.grade(p, text) for p, text in zip(problems, answers, strict=True)]
    some = problems[:SAMPLED_PROBLEMS]
    texts, entropy, length = complete(model, tokenizer, [p.prompt for p in some], SAMPLES)
    rewards = [task.grade(some[i // SAMPLES], text).reward for i, text in enumerate(texts)]
    groups = [rewards[i : i + SAMPLES] for i in range(0, len(rewards), SAMPLES)]
    measured = {
        "greedy": sum(graded.reward for graded in greedy) / len(greedy),
        "sampled": sum(rewards) / len(rewards),
        "pass_at_8": sum(max(group) == 1 for group in groups) / len(groups),
        "entropy": entropy,
        "length": length,
    }
    if isinstance(task, Knights):
        measured["roles"] = sum(map(partial(roles_right, task), problems, answers)) / len(answers)
        measured["everyone_named"] = sum(sum(map(str.isalpha, text)) == task.people for text in answers) / len(answers)
    measured = {key: round(value, 4) for key, value in measured.items()}
    if task.name.startswith("choice"):
        votes = Counter(graded.answer for graded in greedy)
        measured["letters"] = {letter: votes[letter] / len(greedy) for letter in "ABCD"}
    return measured


def make(name: str) -> dict:
    """Train, save and measure one embedded model; returns its entry in starts.json."""
    architecture, seed, taught, tested, recipe = MODELS[name]
    began = time.perf_counter(), time.process_time()
    model, tokenizer, _ = train_supervised(architecture, [get_task(task) for task in taught], seed, recipe)
    ended = time.perf_counter(), time.process_time()
    folder = paths.models() / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "architecture": architecture,
        "seed": seed,
        "parameters": model.num_parameters(),
        "command": f"python -m agpo_core.models.tiny_models --only {name}",
        "training_seconds": round(ended[0] - began[0], 1),
        "training_cpu_seconds": round(ended[1] - began[1], 1),
        "steps": recipe.steps,
        "batch": recipe.batch,
        **measure(model, tokenizer, seed, tested),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MODELS, help="make only this model")
    only = parser.parse_args(arguments).only
    torch.set_num_threads(1)
    record = paths.models() / "starts.json"
    for name in [only] if only else MODELS:
        start = make(name)
        starts = json.loads(record.read_text()) if record.exists() else {}
        starts[name] = start
        record.write_text(json.dumps(dict(sorted(starts.items())), indent=1) + "\n")
        print(name, start["macro"])


if __name__ == "__main__":
    main()
