"""What a configuration asks for: training problems, controllers, accelerator, learning rate."""

import math
import os
from collections.abc import Callable, Collection

import torch

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.controllers import (
    AdaptiveClip,
    AdaptiveKL,
    AdaptiveTemperature,
    FixedClip,
    FixedKL,
    FixedTemperature,
)
from agpo_core.horizon import permutation
from agpo_core.tasks import Problem, Task
from agpo_core.tasks.benchmarks.task import EVALUATION_ONLY
from agpo_core.tasks.decontamination import load_sets, overlaps

FEW = 2**32 - 1  # key of the first task's draw of `train_problems`; the loop's own orders count up from 0


def refuse_evaluation_sets(tasks: dict[str, Task]) -> None:
    """Refuse to train on benchmarks that are for evaluation only, before anything of them is read.

    Raises:
        ConfigError: one is among the tasks, and train_on_evaluation_sets is not set.
    """
    for name, task in tasks.items():
        if getattr(task, "evaluation_only", False):
            raise ConfigError(EVALUATION_ONLY.format(name))


def contaminated_problems(config: TrainConfig, tasks: dict[str, Task]) -> dict[str, dict[str, list[str]]]:
    """What `decontaminate` forbids to train on: {task: {evaluation set: ids of training problems}}.

    Raises:
        ConfigError: no training problem of a task is left.
    """
    if not config.decontaminate:
        return {}
    train = {name: task.problems("train") for name, task in tasks.items()}
    evaluation = load_sets(config.decontaminate, "test", config.data_dir)
    found = overlaps(train, evaluation)
    forbidden = {name: {one: found[name, one].contaminated for one in evaluation} for name in train}
    for name, problems in train.items():
        if len(set().union(*forbidden[name].values())) == len(problems):
            raise ConfigError(
                f"decontaminate: every training problem of {name} stands in {', '.join(evaluation)} too; train on "
                "another task, or take the set out of decontaminate."
            )
    return forbidden


def training_problems(
    config: TrainConfig,
    tasks: dict[str, Task],
    forbidden: Collection[tuple[str, str]] = (),
    fitting: Callable[[str, list[Problem]], list[Problem]] = lambda name, pool: pool,
) -> dict[str, list[Problem]]:
    """What is trained on, by task: the train split, or `train_problems` of it.

    Few problems are drawn by the seed, so that methods with the same seed share them, and in the split's order.

    Args:
        config: uses train_problems and seed.
        tasks: by name.
        forbidden: (task, id) of problems to leave out.
        fitting: keeps of a task's problems those whose prompts leave room for an answer.
    Raises:
        ConfigError: a task has fewer training problems than asked for, or none that fits.
    """
    pools = {
        name: fitting(name, [problem for problem in task.problems("train") if (name, problem.id) not in forbidden])
        for name, task in tasks.items()
    }
    for name, pool in pools.items():
        if not pool:
            raise ConfigError(
                f"no training prompt of {name} fits into max_sequence_tokens - max_completion_tokens = "
                f"{config.max_sequence_tokens - config.max_completion_tokens} tokens: raise max_sequence_tokens."
            )
    few = config.train_problems
    if few is None:
        return pools
    for i, (name, pool) in enumerate(pools.items()):
        if len(pool) < few:
            raise ConfigError(
                f"task {name!r} has {len(pool)} train problems, {few} were asked for: lower train_problems."
            )
        drawn = permutation(config.seed, len(pool), key=FEW - i)[:few]
        pools[name] = [pool[j] for j in sorted(drawn.tolist())]
    return pools


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Linear warm-up, then cosine decay to zero, as a function of progress alone.

    lr = peak * p / w  for p < w;  peak * (1 + cos(pi (p - w) / (1 - w))) / 2  after

    Warm-up starts at a tenth of the peak: at progress 0 the first update must not be void.
    """
    w = config.warmup
    if progress < w:
        return config.learning_rate * max(0.1, progress / w)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - w) / (1 - w)))


def forward_prompts(config: TrainConfig, ranks: int) -> int:
    """Prompts of a forward on one rank, with their groups, in every phase: a rank's share of a minibatch, or fewer."""
    return config.micro_batch_prompts or config.prompts_per_update // (config.minibatches * ranks)


def parameter_groups(modules: list[tuple[list, float]], weight_decay: float) -> tuple[list[dict], list[float]]:
    """Parameters for AdamW: norms and biases, all with fewer than two dimensions, are not decayed.

    Args:
        modules: (parameters, learning rate relative to the policy's) of each part that is trained.
        weight_decay: of the others.
    Returns:
        Groups, and the relative learning rate of each; the first is the policy's. No group is empty.
    """
    groups, rates = [], []
    for parameters, rate in modules:
        for decayed in (True, False):
            chosen = [p for p in parameters if p.requires_grad and (p.ndim >= 2) == decayed]
            if chosen:
                groups.append({"params": chosen, "weight_decay": weight_decay * decayed})
                rates.append(rate)
    return groups, rates


def make_controllers(config: TrainConfig, vocabulary_size: int):
    """The controllers of clip radius, temperature and KL weight that a configuration asks for."""
    c = config
    clip = FixedClip(c.epsilon_base)
    if c.clip == "adaptive":
        clip = AdaptiveClip(
            epsilon_base=c.epsilon_base,
            epsilon_min=c.epsilon_min,
            epsilon_max=c.epsilon_max,
            alpha=c.alpha,
            gamma=c.gamma,
            delta=c.delta,
            zeta=c.zeta,
            signals_mask=c.signals_mask,
            entropy=c.clip_entropy,
            step_kl=c.step_kl,
            vocabulary_size=vocabulary_size,
        )
    temperature = FixedTemperature(c.tau_base)
    if c.temperature == "adaptive":
        temperature = AdaptiveTemperature(
            tau_base=c.tau_base,
            tau_min=c.tau_min,
            tau_max=c.tau_max,
            sensitivity=c.sensitivity,
            momentum=c.momentum,
            weights=c.weights,
            signals_mask=c.signals_mask,
            start=c.baseline_start,
            centring=c.centring,
        )
    kl = FixedKL(c.beta)
    if c.kl_control == "adaptive":
        kl = AdaptiveKL(c.beta, c.kl_target, c.kl_horizon)
    return clip, temperature, kl


def make_accelerator(config: TrainConfig):
    """One process without a launcher; DeepSpeed ZeRO-2 under it, on GPUs or (gloo) on CPUs."""
    from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs

    ranks = int(os.environ.get("WORLD_SIZE", 1))
    parts = config.minibatches * ranks
    if config.prompts_per_update % parts:
        raise ConfigError(
            f"prompts_per_update {config.prompts_per_update} must be a multiple of minibatches x ranks "
            f"= {config.minibatches} x {ranks}."
        )
    if config.probed_prompts % ranks:
        raise ConfigError(
            f"probe_share {config.probe_share} of {config.prompts_per_update} prompts are {config.probed_prompts}: "
            f"choose a share that the {ranks} ranks can divide."
        )
    share = config.prompts_per_update // parts
    if config.dtype == "bfloat16" and "LOCAL_RANK" not in os.environ:
        raise ConfigError(
            "dtype bfloat16 needs DeepSpeed, which keeps float32 weights to add small updates to: "
            "set launcher to deepspeed (one rank will do), or dtype to float32."
        )
    common = {
        "mixed_precision": "bf16" if config.dtype == "bfloat16" else "no",
        "gradient_accumulation_steps": math.ceil(share / (config.micro_batch_prompts or share)),
    }
    if "LOCAL_RANK" not in os.environ:
        return Accelerator(**common)
    cuda = torch.cuda.is_available()
    if not cuda:
        os.environ["DS_ACCELERATOR"] = os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    plugin = DeepSpeedPlugin(
        hf_ds_config={
            "train_micro_batch_size_per_gpu": 1,  # unused: the loop makes its own batches
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": config.max_grad_norm,
            "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": config.dtype == "bfloat16"},
        }
    )
    backend = InitProcessGroupKwargs(backend="nccl" if cuda else "gloo")
    return Accelerator(**common, deepspeed_plugin=plugin, kwargs_handlers=[backend])
