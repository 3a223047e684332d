"""Estimate the memory per rank, the tokens and the hours of a grid, by arithmetic: without a GPU and without weights.

Weights, gradients and optimiser states are exact up to padding. Activations, logits and the sampler's cache are rough
upper bounds, at full sequence length.
"""

import functools
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.jobs.progress import duration
from agpo_core.model_files import model_source, to_make
from agpo_core.tasks import get_task
from agpo_core.tasks.benchmarks.table import LISTED
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
    linear: int  # input and output widths of all linear maps, summed: a LoRA of rank r has r times as many


SHAPES = {  # hub id -> shape, for planning where the weights are not at hand
    "Qwen/Qwen2.5-14B": Shape(14_770_033_664, 48, 5120, 1024, 152_064, 4_300_800),
    "Qwen/Qwen2.5-7B": Shape(7_615_616_512, 28, 3584, 512, 152_064, 2_523_136),
    "meta-llama/Meta-Llama-3-8B": Shape(8_030_261_248, 32, 4096, 1024, 128_256, 2_621_440),
    "OpenRLHF/Llama-3-8b-sft-mixture": Shape(8_030_261_248, 32, 4096, 1024, 128_256, 2_621_440),
    "OpenRLHF/Llama-3-8b-rm-700k": Shape(7_504_928_768, 32, 4096, 1024, 128_256, 2_621_440),  # a score for the head
    "google/gemma-2-9b": Shape(9_241_705_984, 42, 3584, 2048, 256_000, 3_376_128),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(134_515_008, 30, 576, 192, 49_152, 305_280),
}


@functools.cache
def shape_of(model: str) -> Shape:
    """The shape of a named hub model, or of a folder in Hugging Face format, whose weights are not read.

    Raises:
        ConfigError: the model is neither; the message lists the named models.
    """
    if model in SHAPES:
        return SHAPES[model]
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    skeleton = _skeleton(model, AutoModelForCausalLM)
    config = skeleton.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    if heads is None:
        raise ConfigError(f"model {model!r} has no attention heads: its memory cannot be estimated here.")
    key_value_heads = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        key_value_heads = 1  # GPTBigCode, Falcon; a newer Falcon keeps its few keys once a head
    sizes = {
        "parameters": _parameters(skeleton),
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "key_values": key_value_heads * (getattr(config, "head_dim", None) or config.hidden_size // heads),
        "vocabulary": config.vocab_size,
    }
    with torch.device("meta"), warnings.catch_warnings(action="ignore"):
        adapted = get_peft_model(skeleton, LoraConfig(r=1, target_modules="all-linear"))
    return Shape(**sizes, linear=_parameters(adapted) - sizes["parameters"])


def _skeleton(model: str, kind: type):
    """A model built from its config.json: it has the shapes of its weights, and no values.

    Args:
        model: names a folder, as in the settings.
        kind: the transformers class to build, such as AutoModelForCausalLM.
    """
    from transformers import AutoConfig

    folder = Path(model_source(model))
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the size of model {model!r} is not known: give a folder with its config.json, "
            f"or one of {', '.join(SHAPES)}."
        )
    try:
        with torch.device("meta"):
            return kind.from_config(AutoConfig.from_pretrained(folder))
    except (OSError, ValueError) as error:
        raise ConfigError(f"model {model!r}: its config.json cannot be used. {error}") from error


def _parameters(skeleton) -> int:
    return sum(parameter.numel() for parameter in skeleton.parameters())


@functools.cache
def _reward_parameters(config: TrainConfig) -> int:
    source = reward_source(config)
    if source in SHAPES:
        return SHAPES[source].parameters
    from transformers import AutoModelForSequenceClassification

    return _parameters(_skeleton(source, AutoModelForSequenceClassification))


def memory(shape: Shape, config: TrainConfig, launcher: str, ranks: int, limit: float) -> dict[str, float]:
    """Memory of one rank in GB, by part. AdamW; under DeepSpeed, ZeRO-2.

    weights      b (N + A)            N parameters, and A of LoRA's adapters; b bytes each: 4 in float32, 2 in bfloat16
    critic       b (N + A + D + 1)    for a critic that is a model of its own; b (D + 1) for a head on width D
    reference    b (N + A)            for each frozen copy; with adapters, which are switched off for it, and under DPO
                                      there is none
    reward model b N_r                its N_r parameters, frozen, where it gives the reward
    gradients    b T / R              T trained parameters: N, or A with LoRA, and the critic's; ZeRO-2 shards gradients
                                      and states over R ranks
    AdamW states 12 T / R             mean and variance, and under DeepSpeed a float32 copy; else 2 b T
    batch        the larger of two: the activations and logits of a micro-batch, or the sampler's memory, which is its
                 cache; vLLM, which sleeps during training, takes the share engine_memory of the GPU's `limit` GB
    """
    b = 2 if config.dtype == "bfloat16" else 4
    sharded = launcher == "deepspeed"
    R = ranks if sharded else 1
    state = 12 if sharded else 2 * b  # bytes a parameter
    adapters = config.lora_rank * shape.linear
    model = shape.parameters + adapters
    trained_of_a_model = adapters or shape.parameters
    head = shape.hidden + 1 if config.critic != "none" else 0
    twice = config.critic == "model"
    trained = trained_of_a_model * (1 + twice) + head
    parts = {
        "weights": b * model,
        **({"critic": b * (model * twice + head)} if head else {}),
        "reference": b * model * frozen_copies(config),
        **({"reward model": b * _reward_parameters(config)} if config.reward_model else {}),
        "gradients": b * trained / R,
        "AdamW states": state * trained / R,
        "batch": max(
            _training_batch(shape, config, ranks, b),
            config.engine_memory * limit * GB if config.engine == "vllm" else _cache(shape, config, ranks, b),
        ),
    }
    return {name: size / GB for name, size in parts.items()}


def frozen_copies(config: TrainConfig) -> int:
    """Copies of the start that a run holds for its reference."""
    automatic = config.reference == "auto" and config.lora_rank == 0 and config.beta > 0
    return int(config.reference == "frozen_copy" or automatic)


def _training_batch(shape: Shape, config: TrainConfig, ranks: int, b: int) -> float:
    """Bytes of activations and logits in the largest forward pass of training."""
    per_step = math.ceil(config.prompts_per_update / config.minibatches / ranks)
    prompts = min(config.micro_batch_prompts or per_step, per_step)
    sequences = prompts * config.group_size
    if config.method == "dpo":
        sequences += sequences % 2  # whole pairs
    tokens = sequences * config.max_sequence_tokens
    depth = LAYER_WIDTHS * shape.layers  # with checkpointing: each layer's input, and one whole layer
    if config.activation_checkpointing:
        depth = shape.layers + LAYER_WIDTHS
    activations = tokens * depth * shape.hidden * b * (1 + (config.critic == "model"))
    logits = tokens * shape.vocabulary * (b + 8)  # as computed, in float32, and their gradient
    return activations + logits


def _cache(shape: Shape, config: TrainConfig, ranks: int, b: int) -> float:
    """Bytes of the keys and values that sampling with transformers holds, for prompts and for their completions."""
    at_once, (counts, unknown) = config.rollout_batch, evaluated(config)

    def held(prompts: int, samples: int) -> int:
        return prompts + min(prompts, max(1, at_once // config.group_size)) * samples

    looked_at = config.probed_prompts if config.needs_probe else 0
    updates = [(config.prompts_per_update, config.group_size), (looked_at, config.probe_size)]
    numbers = [at_once * ranks] if unknown else counts.values()
    sequences = max(
        *(held(math.ceil(n / ranks), k) for n, k in updates),
        # an evaluation takes its prompts in parts
        *(
            held(min(math.ceil(n / ranks), max(1, at_once // k)), k)
            for n in numbers
            for k in (1, config.test_samples or 1)
        ),
    )
    return sequences * config.max_sequence_tokens * shape.layers * 2 * shape.key_values * b


def ranks_needed(shape: Shape, config: TrainConfig, launcher: str, limit: float) -> int | None:
    """The smallest of 1, 2, 4 ... 1024 ranks at which a rank fits into `limit` GB; None if none does."""
    for ranks in (2**k for k in range(11)) if launcher == "deepspeed" else (1,):
        if sum(memory(shape, config, launcher, ranks, limit).values()) <= limit:
            return ranks
    return None


def completions(config: TrainConfig) -> tuple[int, int]:
    """Completions of an update: how many are trained on, and how many are only looked at.

    The first is an upper bound: groups without signal may be drawn twice.
    """
    P = config.prompts_per_update
    trained_on = P * config.group_size * (1 + (config.equal_groups == "resample"))
    looked_at = config.probed_prompts * config.probe_size if config.needs_probe else 0
    return trained_on, looked_at + P * (config.advantage == "greedy_baseline")


def tokens(config: TrainConfig) -> float | None:
    """Tokens that a run generates: its horizon, or an upper bound for one in updates; None for one in seconds."""
    if config.horizon_unit == "tokens":
        return config.horizon
    if config.horizon_unit == "seconds":
        return None
    return config.horizon * sum(completions(config)) * config.max_completion_tokens


def evaluation_tokens(config: TrainConfig) -> int:
    """An upper bound on the tokens of a run's evaluations: a greedy completion per problem each time, more at the end.

    A run is evaluated at the start, at every share `eval_every` of the horizon and at its end. Where a reward model
    gives the reward, every problem is answered a second time, by sampling.
    """
    c, (counts, _) = config, evaluated(config)
    points = 1 if c.method == "dpo" else math.ceil(1 / c.eval_every - 1e-9)
    if c.horizon_unit == "updates":
        points = min(points, math.ceil(c.horizon))
    if c.horizon == 0:
        points = 0
    each = 1 + (c.reward_model is not None)
    answers = (1 + points) * each * (counts["dev"] + counts["train"])
    if c.test_problems != 0:
        answers += (each + c.test_samples) * (counts["test"] + counts["train"])
    return answers * c.max_completion_tokens


def evaluated(config: TrainConfig) -> tuple[dict[str, int], list[str]]:
    """How many problems a run is evaluated on: of dev, of test, and of the few that it is trained on.

    Returns:
        the numbers by split, and the names of what is not counted, because only its files tell how many there are.
    """
    counts, unknown = {"dev": 0, "test": 0, "train": len(config.tasks) * (config.train_problems or 0)}, []
    for split, names, asked in (
        ("dev", config.tasks, config.dev_problems),
        ("test", config.test_tasks or config.tasks, config.test_problems),
    ):
        for name in names:
            number = _problems(name, split, config.data_dir) if asked is None else asked
            counts[split] += number or 0
            if number is None:
                unknown.append(f"the {split} problems of {name}")
    return counts, unknown


@functools.cache
def _problems(name: str, split: str, data_dir: str | None) -> int | None:
    """The number of problems in a split; None where it is not listed and only the hub, which is not asked, knows it."""
    listed = LISTED.get(name.removesuffix("_python"))
    if listed and listed.sizes.get(split):
        return listed.sizes[split]
    if data_dir is None and (listed or name.startswith("knights_and_knaves")):
        return None
    try:
        return len(get_task(name, data_dir).problems(split))
    except (ConnectionError, FileNotFoundError, ImportError):
        return None


def forward_passes(config: TrainConfig, tokens_train: float, tokens_probe: float) -> float:
    """Compute of a run, in forward passes over one completion token each.

    C = N_train (1 + 1 + 1 + r + 3 E) + N_probe

    A token that is trained on is sampled, scored before the update and after it (step KL), scored by the reference
    (r = 1 where there is one), and passes E epochs forward and backward: a backward pass costs two forward ones
    (Kaplan et al. 2020, §2.1). A probe's token is only sampled. Prompts, the critic and the optimiser are left out.

    Args:
        config: gives E and r.
        tokens_train, tokens_probe: completion tokens of the two phases.
    """
    reference = config.beta > 0
    return tokens_train * (3 + reference + 3 * config.epochs) + tokens_probe


def describe(jobs: list, params: dict) -> str:
    """The jobs of a grid, their tokens, hours and memory, as text.

    For each model, memory is shown for the job that needs the most; of a start that is yet to be made it is not known.

    Args:
        jobs: `grid.PlannedRun`s.
        params: the grid's parameters.
    """
    ranks = f"{params['ranks']} rank{'s' * (params['ranks'] > 1)}"
    finished = sum(job.finished for job in jobs)
    lines = [
        f"profile {params['profile']}: {len(jobs)} jobs, {finished} finished; {params['parallel']} at a time, "
        f"each under {params['launcher']} with {ranks}",
        "",
        _workload(jobs, params),
    ]
    by_model = {}
    for job in jobs:
        if job.config:
            by_model.setdefault(job.config.model, []).append(job)
    if commands := to_make(by_model):
        lines += ["", f"memory of a rank: not known of starts that are not made yet; this makes them: {commands}"]
        by_model = {model: several for model, several in by_model.items() if not to_make([model])}
    for several in by_model.values():
        most = max(several, key=lambda job: (sum(_parts(job.config, params).values()), job.config.horizon > 0))
        lines += ["", _memory(most.config, most.arm.title, params)]
    return "\n".join(lines)


def seconds_left(jobs: list, params: dict, counted: set[str] | None = None) -> float:
    """Seconds that the unfinished jobs of a grid take, `parallel` at a time, evaluation included: an upper bound.

    Args:
        jobs: `grid.PlannedRun`s.
        params: the grid's parameters; they state the speeds.
        counted: hashes of runs that another grid has counted. These are left out, and those of this grid are added.
    """
    counted, total = set() if counted is None else counted, 0.0
    for job in jobs:
        identity = job.config.hash() if job.config else ""
        if not job.finished and identity not in counted:
            total += sum(_seconds(job, jobs, params))
        counted |= {identity} - {""}
    return total / params["parallel"]


def _leader(job, jobs: list):
    """The job that sets this one's horizon; None if there is none."""
    key = (job.arm.follows, job.seed, job.start)
    return next((other for other in jobs if (other.arm.name, other.seed, other.start) == key), None)


def _generated(job, jobs: list) -> float | None:
    """Tokens that a job generates in its updates; None if its horizon does not tell.

    An arm that follows another has the tokens of that arm's training phase, or of its compute.
    """
    config = job.config or _leader(job, jobs).config
    generated = tokens(config)
    if job.config is None and generated is not None:
        trained_on, looked_at = completions(config)
        share = trained_on / (trained_on + looked_at)
        if job.arm.matched == "compute":
            share = forward_passes(config, share, 1 - share) / forward_passes(config, 1, 0)
        generated *= share
    return generated


def _seconds(job, jobs: list, params: dict) -> tuple[float, float]:
    """Seconds of a job's updates, and of its evaluations."""
    config, generated = job.config or _leader(job, jobs).config, _generated(job, jobs)
    probed = config.needs_probe and job.config is not None
    speed = params["tokens_per_second_probe" if probed else "tokens_per_second"]
    of_updates = config.horizon if generated is None else generated / speed
    return of_updates, evaluation_tokens(config) / params["tokens_per_second"]


def _workload(jobs: list, params: dict) -> str:
    """One row per arm."""
    rows, total, evaluating, unknown = {}, 0.0, 0.0, {}
    for job in jobs:
        leader, generated = _leader(job, jobs), _generated(job, jobs)
        config = job.config or leader.config
        horizon = f"{config.horizon:,.0f} {config.horizon_unit}"
        if job.config is None:
            horizon = f"the {job.arm.matched} of {leader.arm.title}"
        seconds, seconds_of_evaluation = _seconds(job, jobs, params)
        total += seconds
        evaluating += seconds_of_evaluation
        unknown |= dict.fromkeys(evaluated(config)[1])
        row = {"jobs": 0, "horizon": horizon}
        row["tokens a job"] = "" if generated is None else f"{generated:,.0f}"
        row["time a job"] = duration(seconds)
        row["evaluation tokens"] = f"{evaluation_tokens(config):,.0f}"
        row["evaluation time"] = duration(seconds_of_evaluation)
        rows.setdefault(job.arm.title, row)["jobs"] += 1
    speeds = params["tokens_per_second"], params["tokens_per_second_probe"]
    whole = total + evaluating
    return (
        f"{pd.DataFrame.from_dict(rows, orient='index').to_string()}\n\n"
        f"{duration(total)} of updates and at most {duration(evaluating)} of evaluation, together "
        f"{duration(whole / params['parallel'])} with {params['parallel']} at a time,\n"
        f"at {speeds[0]:,.0f} generated tokens a second, {speeds[1]:,.0f} with a probe.\n"
        "The tokens of evaluation are an upper bound, and so are those of a horizon in updates."
        + (f"\nNot counted, as only their files tell how many there are: {', '.join(unknown)}." if unknown else "")
    )


def _parts(config: TrainConfig, params: dict) -> dict[str, float]:
    return memory(shape_of(config.model), config, params["launcher"], params["ranks"], params["memory_gb"])


def _memory(config: TrainConfig, arm: str, params: dict) -> str:
    shape = shape_of(config.model)
    launcher, ranks, limit = params["launcher"], params["ranks"], params["memory_gb"]
    parts = _parts(config, params)
    total = sum(parts.values())
    sharding = f", ZeRO-2 over {ranks} ranks" if launcher == "deepspeed" else ""
    trained = "all trained"
    if config.lora_rank:
        trained = f"plus {_number(config.lora_rank * shape.linear)} in adapters; only these are trained"
    lines = [
        f"memory of a rank: {config.model}, {_number(shape.parameters)} parameters in {config.dtype},",
        f"{trained} with AdamW{sharding}; batch is a rough upper bound",
        f"the arm that needs the most: {arm}",
        *(f"  {name:14}{_size(gigabytes)}" for name, gigabytes in parts.items()),
        f"  {'together':14}{_size(total)}, of {limit:.0f} GB",
    ]
    if total <= limit:
        lines.append("It fits.")
    elif total - parts["batch"] <= limit:
        smaller = "engine_memory" if config.engine == "vllm" else "rollout_batch"
        lines.append(f"Without the batch it fits. Lower {smaller}, micro_batch_prompts or max_sequence_tokens.")
    else:
        lines.append("It does not fit without offload. ZeRO-2 shards neither weights nor reference.")
        needed = ranks_needed(shape, config, launcher, limit)
        lines.append(f"With GPUs of this size it fits from {needed} ranks on." if needed else "More ranks do not help.")
    return "\n".join(lines)


def _number(of: int) -> str:
    return f"{of / 1e9:.2f} B" if of > 1e9 else f"{of / 1e6:.2f} M"


def _size(gigabytes: float) -> str:
    return f"{gigabytes:9.2f} GB" if gigabytes >= 0.1 else f"{1000 * gigabytes:9.2f} MB"
