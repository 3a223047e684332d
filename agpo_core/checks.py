"""First-line checks shared by the estimators. Each error names the argument and says what to do."""

import math

import torch

# Types of answers that are neither tensors nor NaN: most rows hold nothing else, and need no look at each answer.
PLAIN_ANSWERS = frozenset((str, int, bool, type(None)))


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
    if _surely_finite(rewards_P_G):
        return
    finite_P = rewards_P_G.isfinite().all(dim=1)
    if not finite_P.all():
        rows = (~finite_P).nonzero().flatten().tolist()
        raise ValueError(f"rewards_P_G is NaN or infinite in groups {rows}; give every rollout a finite reward.")


def check_same_shape(**tensors):
    """Raise unless all the tensors, passed by name, have one shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"shapes differ: {shapes}; give all of them one shape.")


def check_range(name, value, low=0.0, high=math.inf):
    """Raise unless `value` is a finite number in [low, high]."""
    if not (low <= value <= high and math.isfinite(value)):
        raise ValueError(f"{name}={value} is out of range; give a finite number in [{low:g}, {high:g}].")


def check_floats(**tensors):
    """Raise unless all the tensors, passed by name, hold floating-point numbers."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; convert it to float32 or float64.")


def check_matrix(**tensors):
    """Raise unless all the tensors, passed by name, have one row a sequence and one column a token."""
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; give one row a sequence and one column a token, (B, T)."
            )


def check_beside_tokens(tokens, **others):
    """Raise unless each of the others is a number or has the tokens' shape (B, T), or (B, 1).

    Any other shape would broadcast: a (B,) against (B, T) by columns, a (T,) against (B, 1) into a table.
    """
    for name, value in others.items():
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if shape not in ((), tuple(tokens.shape), (*tokens.shape[:-1], 1)):
            raise ValueError(
                f"{name} has shape {shape} beside a ratio of shape {tuple(tokens.shape)}; give the same shape, or "
                "one column, (B, 1), for one value a rollout: value_B[:, None]."
            )


def check_answers(name, answers_P_N):
    """Raise unless each row is a list of answers; return the rows with None for answers that are NaN."""
    rows = []
    for answers_N in answers_P_N:
        if isinstance(answers_N, (str, bytes, torch.Tensor)):
            raise TypeError(
                f"{name} holds a row that is a {type(answers_N).__name__}: its letters or numbers would vote each for "
                "themselves. Give one list of answers a prompt; of a tensor, its .tolist()."
            )
        if not isinstance(answers_N, list):
            answers_N = list(answers_N)
        if not PLAIN_ANSWERS.issuperset(map(type, answers_N)):
            if any(isinstance(answer, torch.Tensor) for answer in answers_N):
                raise TypeError(f"{name} holds tensors, which never equal one another as votes; give their .item().")
            # NaN differs from itself, so would be a class of its own each time
            answers_N = [None if isinstance(answer, float) and answer != answer else answer for answer in answers_N]
        rows.append(answers_N)
    return rows


def checked_denominator(denominator):
    """Give what a sum is divided by: at least 1, for a batch without tokens is zero and not 0 / 0."""
    if not denominator >= 0:
        raise ValueError(f"denominator={denominator}; give the sequences or tokens of the whole batch, 0 or more.")
    return denominator if denominator > 0 else 1


def check_values(name, values, counted=None):
    """Raise unless `values` is float32 or float64 and finite where `counted` (bool, same shape) holds."""
    if values.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} is {values.dtype}; convert it to float32 or float64.")
    if _surely_finite(values):
        return
    bad = ~values.isfinite() if counted is None else ~values.isfinite() & counted
    if bad.any():
        places = bad.nonzero()[:5].tolist()
        raise ValueError(
            f"{name} is NaN or infinite at {places}; correct these entries, or mask them where there is a mask."
        )


def _surely_finite(values):
    """True only if all values are finite: one that is not stays in their sum.

    A look at each value takes ten times as long, and is left for the sum that is not finite: it may have overflowed.
    """
    return bool(values.detach().sum().isfinite())


def check_token_mask(name, rewards, mask_B_T):
    """Raise unless the mask has one row for each of the rewards, passed with their name."""
    if mask_B_T.ndim != 2 or len(mask_B_T) != rewards.numel():
        raise ValueError(
            f"mask_B_T has shape {tuple(mask_B_T.shape)}; {name} of shape {tuple(rewards.shape)} needs one row of "
            "tokens for each reward, (B, T)."
        )


def check_group_size(rewards_P_G, remedy):
    """Raise where a group is a single rollout, which equals its own mean."""
    if rewards_P_G.shape[1] == 1:
        raise ValueError(
            "rewards_P_G: a group of one equals its own mean, so that its advantage carries no signal; "
            f"sample two or more rollouts a prompt, or {remedy}."
        )
