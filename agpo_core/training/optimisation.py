"""The schedule of the learning rate, and the parameters that it moves."""

import math

from agpo_core.config import TrainConfig


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Linear warm-up, then cosine decay to zero, as a function of progress alone.

    lr = peak * p / w  for p < w;  peak * (1 + cos(pi (p - w) / (1 - w))) / 2  after

    Warm-up starts at a tenth of the peak: otherwise the first update, at progress 0, would change nothing.
    """
    w = config.warmup
    if progress < w:
        return config.learning_rate * max(0.1, progress / w)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - w) / (1 - w)))


def parameter_groups(modules: list[tuple[list, float]], weight_decay: float) -> tuple[list[dict], list[float]]:
    """Parameter groups for AdamW; parameters with fewer than two dimensions, norms and biases, have no weight decay.

    Args:
        modules: (parameters, learning rate relative to the policy's) of each part that is trained.
        weight_decay: of all other parameters.
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
