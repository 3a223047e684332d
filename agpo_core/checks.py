"""First-line checks shared by the estimators. Each error names the argument and says what to do."""

import torch


def check_choice(name, value, choices):
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}.")


def check_rewards(rewards_P_G):
    """Raise unless the rewards are a finite float32 or float64 matrix, prompts by group."""
    if rewards_P_G.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"rewards_P_G is {rewards_P_G.dtype}; convert it to float32 or float64.")
    if rewards_P_G.ndim != 2 or rewards_P_G.shape[1] == 0:
        raise ValueError(
            f"rewards_P_G has shape {tuple(rewards_P_G.shape)}; give one row a prompt and one "
            "column a rollout: rewards_B.view(P, G)."
        )
    finite_P = rewards_P_G.isfinite().all(dim=1)
    if not finite_P.all():
        rows = (~finite_P).nonzero().flatten().tolist()
        raise ValueError(f"rewards_P_G is NaN or infinite in groups {rows}; grade every rollout in [0, 1].")


def check_same_shape(**tensors):
    """Raise unless all the tensors, passed by name, have one shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"shapes differ: {shapes}; give one value for each token of each sequence.")
