"""First-line checks shared by the estimators. Each error names the argument and says what to do."""

import math

import torch

# Types of answers that are neither tensors nor NaN. Most rows hold nothing else and need no check of each answer.
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
            f"rewards_P_G has shape {tuple(rewards_P_G.shape)}; give one row per prompt and "
            "one column per rollout: rewards_B.view(P, G)."
        )
    if _surely_finite(rewards_P_G):
        return
    finite_P = rewards_P_G.isfinite().all(dim=1)
    if not finite_P.all():
        rows = (~finite_P).nonzero().flatten().tolist()
        raise ValueError(f"rewards_P_G is NaN or infinite in groups {rows}; give every rollout a finite reward.")


def check_same_shape(**tensors):
    """Raise unless all the tensors, passed by name, have the same shape."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"shapes differ: {shapes}; give all of them the same shape.")


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
    """Raise unless all the tensors, passed by name, have one row per sequence and one column per token."""
    for name, tensor in tensors.items():
        if tensor.ndim != 2:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; give one row per sequence and one column per token, (B, T)."
            )


def check_beside_tokens(tokens, **others):
    """Raise unless each of the others is a number or has the tokens' shape (B, T), or (B, 1).

    Another shape would broadcast without an error: (B,) against (B, T) by columns, (T,) against (B, 1) into a table.
    """
    for name, value in others.items():
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if shape not in ((), tuple(tokens.shape), (*tokens.shape[:-1], 1)):
            raise ValueError(
                f"{name} has shape {shape}, the ratio has shape {tuple(tokens.shape)}; give the same shape, or "
                "one column, (B, 1), for one value per rollout: value_B[:, None]."
            )


def check_answers(name, answers_P_N):
    """Raise unless each row is a list of answers; return the rows with None for answers that are NaN."""
    rows = []
    for answers_N in answers_P_N:
        if isinstance(answers_N, (str, bytes, torch.Tensor)):
            raise TypeError(
                f"{name} holds a row that is a {type(answers_N).__name__}: each of its letters or numbers would count "
                "as an answer. Give one list of answers per prompt; call .tolist() on a tensor."
            )
        if not isinstance(answers_N, list):
            answers_N = list(answers_N)
        if not PLAIN_ANSWERS.issuperset(map(type, answers_N)):
            if any(isinstance(answer, torch.Tensor) for answer in answers_N):
                raise TypeError(f"{name} holds tensors, which never count as equal answers; give their .item().")
            # NaN does not equal itself: each NaN would count as another answer
            answers_N = [None if isinstance(answer, float) and answer != answer else answer for answer in answers_N]
        rows.append(answers_N)
    return rows


def checked_denominator(denominator):
    """Give the denominator of a mean, with 1 in place of 0: the mean of an empty batch is then zero and not 0 / 0."""
    if not denominator >= 0:
        raise ValueError(f"denominator={denominator}; give the whole batch's number of sequences or tokens, 0 or more.")
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
    """True only if all values are finite: any other value makes their sum NaN or infinite.

    Checking each value takes ten times as long. It is needed only where the sum is not finite, since a sum of finite
    values can overflow.
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
            "rewards_P_G: a group of one equals its own mean, so its advantage carries no signal; "
            f"sample two or more rollouts per prompt, or {remedy}."
        )
