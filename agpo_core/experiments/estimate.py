"""What a grid would take: memory per rank, tokens, hours, by arithmetic; needs no GPU and no weights.

Weights, gradients and optimiser states are exact up to padding. Activations, logits and the
sampler's cache are rough upper bounds, at full sequence length.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.training.policy import model_source
from agpo_core.training.progress import duration
from agpo_core.training.reward_model import reward_source

GB = 1.0e9  # bytes
LAYER_WIDTHS = 16  # activations that a layer keeps for its backward pass, in units of its width


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that memory depends on."""

    parameters: int
    layers: int
    hidden: int  # width of the residual stream
    key_values: int  # width of a layer's keys: key-value heads x head size
    vocabulary: int


SHAPES = {  # hub id -> shape, for planning where the weights are not at hand
    "Qwen/Qwen2.5-14B": Shape(14_770_033_664, 48, 5120, 1024, 152_064),
    "Qwen/Qwen2.5-7B": Shape(7_615_616_512, 28, 3584, 512, 152_064),
    "meta-llama/Meta-Llama-3-8B": Shape(8_030_261_248, 32, 4096, 1024, 128_256),
    "google/gemma-2-9b": Shape(9_241_705_984, 42, 3584, 2048, 256_000),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(134_515_008, 30, 576, 192, 49_152),
}


def shape_of(model: str) -> Shape:
    """The shape of a named hub model, or of a folder in Hugging Face format.

    Raises:
        ConfigError: neither; the message lists the named ones.
    """
    if model in SHAPES:
        return SHAPES[model]
    folder = Path(model_source(model))
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the size of model {model!r} is not known: give a folder with its config.json, "
            f"or one of {', '.join(SHAPES)}."
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    head_size = config.get("head_dim") or config["hidden_size"] // heads
    return Shape(
        parameters=_parameters(folder),
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        key_values=config.get("num_key_value_heads", heads) * head_size,
        vocabulary=config["vocab_size"],
    )


def _parameters(folder: Path) -> int:
    """Counted in the headers of the safetensors files; without any, on the meta device."""
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return sum(_elements(file) for file in files)
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def _elements(file: Path) -> int:
    """A safetensors file opens with the length of its header, eight bytes, and the header, JSON."""
    with open(file, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(math.prod(t["shape"]) for name, t in header.items() if name != "__metadata__")


def memory(shape: Shape, config: TrainConfig, launcher: str, ranks: int, limit: float) -> dict[str, float]:
    """Memory of one rank in GB, by part. Full-parameter AdamW; under DeepSpeed, ZeRO-2.

    weights      b N                  b bytes a number: 4 in float32, 2 in bfloat16
    reference    b N                  a frozen copy, where beta > 0
    reward model b N_r                of N_r parameters, frozen, where it gives the reward
    gradients    b N / R              ZeRO-2 shards gradients and states over R ranks
    AdamW states 12 N / R             mean and variance, and under DeepSpeed a float32 copy
    batch        the larger of a micro-batch's activations and logits, and the sampler: its cache; vLLM, which sleeps
                 while the policy is trained, takes engine_memory of the `limit` GB that a GPU has
    """
    b = 2 if config.dtype == "bfloat16" else 4
    sharded = launcher == "deepspeed"
    R = ranks if sharded else 1
    N = shape.parameters
    state = 12 if sharded else 2 * b  # bytes a parameter
    per_step = math.ceil(config.prompts_per_update / config.minibatches / ranks)
    tokens = min(config.micro_batch_prompts or per_step, per_step) * config.group_size * config.max_sequence_tokens
    depth = LAYER_WIDTHS * shape.layers  # with checkpointing: a layer's input, and one layer whole
    if config.activation_checkpointing:
        depth = shape.layers + LAYER_WIDTHS
    activations = tokens * depth * shape.hidden * b
    logits = tokens * shape.vocabulary * (b + 8)  # as computed, in float32, and their gradient
    sequences = min(config.rollout_batch, config.prompts_per_update * config.group_size // ranks)
    cache = sequences * config.max_sequence_tokens * shape.layers * 2 * shape.key_values * b
    parts = {
        "weights": b * N,
        "reference": b * N if config.beta > 0 else 0,
        **({"reward model": b * shape_of(reward_source(config)).parameters} if config.reward_model else {}),
        "gradients": b * N / R,
        "AdamW states": state * N / R,
        "batch": max(activations + logits, config.engine_memory * limit * GB if config.engine == "vllm" else cache),
    }
    return {name: size / GB for name, size in parts.items()}


def ranks_needed(shape: Shape, config: TrainConfig, launcher: str, limit: float) -> int | None:
    """The fewest ranks, of 1, 2, 4 ... 1024, whose share fits into `limit` GB; None: not so."""
    for ranks in (2**k for k in range(11)) if launcher == "deepspeed" else (1,):
        if sum(memory(shape, config, launcher, ranks, limit).values()) <= limit:
            return ranks
    return None


def tokens(config: TrainConfig) -> float | None:
    """Tokens a run generates: its horizon, or at most so many; None where it counts seconds."""
    if config.horizon_unit == "tokens":
        return config.horizon
    if config.horizon_unit == "seconds":
        return None
    group = config.group_size + (config.probe_size if config.needs_probe else 0)
    return config.horizon * config.prompts_per_update * group * config.max_completion_tokens


def describe(jobs: list, params: dict) -> str:
    """The jobs of a grid, their tokens, hours and memory, as text.

    Args:
        jobs: `grid.Job`s.
        params: the grid's parameters.
    """
    ranks = f"{params['ranks']} rank{'s' * (params['ranks'] > 1)}"
    finished = sum(job.finished for job in jobs)
    configs = {}
    for config in [job.config for job in jobs if job.config]:
        configs.setdefault(config.model, config)
    lines = [
        f"profile {params['profile']}: {len(jobs)} jobs, {finished} finished; {params['parallel']} at a time, "
        f"each under {params['launcher']} with {ranks}",
        "",
        _workload(jobs, params),
    ]
    for model, config in configs.items():
        lines += ["", _memory(model, config, params)]
    return "\n".join(lines)


def _workload(jobs: list, params: dict) -> str:
    """A row an arm. An arm that follows another has its updates, and of its tokens those of the training phase."""
    by_key = {(job.arm.name, job.seed, job.start): job for job in jobs}
    rows, total = {}, 0.0
    for job in jobs:
        leader = by_key.get((job.arm.follows, job.seed, job.start))
        config = job.config or leader.config
        probed = config.needs_probe and job.config is not None
        generated = tokens(config)
        horizon = f"{config.horizon:,.0f} {config.horizon_unit}"
        if job.config is None:
            horizon = f"the updates of {leader.arm.title}"
            if generated is not None:
                generated *= config.group_size / (config.group_size + config.probe_size)
        speed = params["tokens_per_second_probe" if probed else "tokens_per_second"]
        seconds = config.horizon if generated is None else generated / speed
        total += seconds
        row = {"jobs": 0, "horizon": horizon}
        row["tokens a job"] = "" if generated is None else f"{generated:,.0f}"
        row["time a job"] = duration(seconds)
        rows.setdefault(job.arm.title, row)["jobs"] += 1
    speeds = params["tokens_per_second"], params["tokens_per_second_probe"]
    return (
        f"{pd.DataFrame.from_dict(rows, orient='index').to_string()}\n\n"
        f"{duration(total)} of jobs, {duration(total / params['parallel'])} with {params['parallel']} at a time, "
        f"at {speeds[0]:,.0f} generated tokens a second, {speeds[1]:,.0f} with a probe.\n"
        "Where a horizon is in updates, its tokens are an upper bound."
    )


def _memory(model: str, config: TrainConfig, params: dict) -> str:
    shape = shape_of(model)
    launcher, ranks, limit = params["launcher"], params["ranks"], params["memory_gb"]
    parts = memory(shape, config, launcher, ranks, limit)
    total = sum(parts.values())
    sharding = f", ZeRO-2 over {ranks} ranks" if launcher == "deepspeed" else ""
    size = f"{shape.parameters / 1e9:.2f} B" if shape.parameters > 1e9 else f"{shape.parameters / 1e6:.2f} M"
    lines = [
        f"memory of a rank: {model}, {size} parameters in {config.dtype},",
        f"all of them trained with AdamW{sharding}; batch is a rough upper bound",
        *(f"  {name:14}{gigabytes:9.2f} GB" for name, gigabytes in parts.items()),
        f"  {'together':14}{total:9.2f} GB, of {limit:.0f} GB",
    ]
    if total <= limit:
        lines.append("It fits.")
    elif total - parts["batch"] <= limit:
        smaller = "engine_memory" if config.engine == "vllm" else "rollout_batch"
        lines.append(f"Without the batch it fits. Lower {smaller}, micro_batch_prompts or max_sequence_tokens.")
    else:
        lines.append("It does not fit without offload. ZeRO-2 shards neither weights nor reference.")
        needed = ranks_needed(shape, config, launcher, limit)
        lines.append(
            f"With GPUs of this size it fits from {needed} ranks on." if needed else "More ranks do not mend that."
        )
    return "\n".join(lines)
