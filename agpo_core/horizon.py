"""The clock of a run: what it may spend, what it has spent, and where its random numbers come from.

Everything else depends on these three things.

* **Ledger and horizon.** A run may generate a number of tokens, make a number of updates or compute for a number of
  seconds. *Progress* is the consumed share of that; learning rate, evaluations and stop are functions of progress and
  of nothing else. The paper counts sampled continuation tokens of both phases (§4.1); so does the ledger, with EOS,
  without prompts and pads, over all ranks. Evaluation tokens are counted apart.
* **Streams.** Random numbers are *counter-based* (Philox 4x32-10; Salmon et al., SC 2011): the number for a token is a
  function of (seed, phase, update, prompt, sample, token) alone. A sample therefore does not depend on the batch it is
  drawn in, on the dropping of finished rows, on the number of ranks, or on whether there was a probe.
* **State.** All of it is one small JSON object.
"""

import functools
from dataclasses import dataclass, field

import torch
from torch import Tensor

PHASES = {"prompts": 0, "probe": 1, "train": 2, "evaluation": 3}

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


@dataclass
class Horizon:
    """What a run may spend and what it has spent (tokens as in AGPO §4.1; updates and seconds are ours).

    progress = spent / total, in [0, 1];  spent = probe + train tokens, or updates, or seconds

    Args:
        unit: "tokens", "updates" or "seconds" (of training; evaluation is not counted).
        total: the budget in that unit, >= 0.
    """

    unit: str
    total: float
    tokens: dict = field(default_factory=lambda: {"probe": 0, "train": 0, "evaluation": 0})
    updates: int = 0
    seconds: float = 0.0

    def __post_init__(self):
        if self.unit not in ("tokens", "updates", "seconds"):
            raise ValueError(f"unit must be tokens, updates or seconds; got {self.unit!r}.")
        if not self.total >= 0:
            raise ValueError(f"total must be 0 or more {self.unit}; got {self.total!r}.")

    @property
    def spent(self) -> float:
        """What has been spent, in the horizon's unit: training and probe tokens, updates or seconds."""
        if self.unit == "tokens":
            return self.tokens["probe"] + self.tokens["train"]
        return getattr(self, self.unit)

    @property
    def progress(self) -> float:
        """The consumed share of the horizon, in [0, 1]."""
        return min(1.0, self.spent / self.total) if self.total > 0 else 1.0

    @property
    def done(self) -> bool:
        """True once the whole horizon is spent."""
        return self.spent >= self.total

    def count(self, phase: str, tokens: int) -> None:
        """Count sampled continuation tokens (of all ranks) under "probe", "train" or "evaluation"."""
        if phase not in self.tokens:
            raise ValueError(f"phase must be one of {', '.join(self.tokens)}; got {phase!r}.")
        if tokens < 0:
            raise ValueError(f"tokens must be 0 or more; got {tokens!r}.")
        self.tokens[phase] += int(tokens)

    def tick(self, seconds: float) -> None:
        """Count one update and the seconds that it took."""
        self.updates += 1
        self.seconds += seconds

    def state(self) -> dict:
        """The horizon as plain JSON; `Horizon(**state)` gives an equal one."""
        return {
            "unit": self.unit,
            "total": self.total,
            "tokens": dict(self.tokens),
            "updates": self.updates,
            "seconds": self.seconds,
        }


def crossed(before: float, after: float, every: float) -> bool:
    """Say whether progress passed a multiple of `every` on its way from `before` to `after` (ours).

    crossed = 1[⌊after / every⌋ > ⌊before / every⌋]

    Args:
        before, after: progress in [0, 1], before <= after.
        every: share of the horizon in (0, 1].
    Returns:
        bool. True where `after` lies on the multiple, false where `before` does.
    Example:
        >>> crossed(0.2, 0.25, every=0.25), crossed(0.25, 0.3, every=0.25)
        (True, False)
    """
    slack = 1e-9  # 3 * (1 / 3) must count as 1
    return int(after / every + slack) > int(before / every + slack)


def philox(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox 4x32-10, the counter-based generator of Salmon et al. 2011 (SC), vectorised.

    (c0, c1, c2, c3) <- (high(M1 c2) ^ c1 ^ k0, low(M1 c2), high(M0 c0) ^ c3 ^ k1, low(M0 c0)), ten times,
    k <- k + W after each;  high and low are the 32-bit words of a product, M0 = D2511F53, M1 = CD9E8D57,
    W = (9E3779B9, BB67AE85), in hexadecimal

    Args:
        counter: four int64 tensors of equal shape holding unsigned 32-bit words.
        key: two unsigned 32-bit words.
    Returns:
        Four int64 tensors of unsigned 32-bit words, a bijection of the counter under the key.
    Example:
        >>> zero = torch.tensor([0])
        >>> [f"{word.item():08x}" for word in philox((zero,) * 4, (0, 0))]  # the authors' test vector
        ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low = c0 * _MULTIPLIERS[0]  # int64 products wrap; their bits are those of the unsigned product
        high = c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (high >> 32) & _MASK ^ c1 ^ k0,
            high & _MASK,
            (low >> 32) & _MASK ^ c3 ^ k1,
            low & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniforms(seed: int, phase: str, update: int, prompts_B: Tensor, samples_B: Tensor, token: int) -> Tensor:
    """Uniform numbers in [0, 1), each a function of its own key alone (Salmon et al. 2011; the key is ours).

    u = (53 bits of Philox at counter (prompt, sample, token, update) and key (seed, phase)) / 2^53

    Args:
        seed: the run's seed, in [0, 2^32).
        phase: a name in PHASES; phases have independent streams.
        update: index of the update.
        prompts_B: int64, index of each row's prompt within the update, over all ranks.
        samples_B: int64, index of each row within its group.
        token: index of the token within the completion.
    Returns:
        float64, shape of prompts_B.
    Example:
        >>> rows = torch.tensor([0, 1, 2])
        >>> together = uniforms(7, "train", 0, rows, rows, token=3)
        >>> alone = uniforms(7, "train", 0, rows[1:2], rows[1:2], token=3)
        >>> bool(together[1] == alone[0])
        True
    """
    if phase not in PHASES:
        raise ValueError(f"phase must be one of {', '.join(PHASES)}; got {phase!r}.")
    ones = torch.ones_like(prompts_B)
    counter = (prompts_B, samples_B, ones * token, ones * update)
    a, b, _, _ = philox(counter, (seed & _MASK, PHASES[phase]))
    return ((a >> 5) * 2**26 + (b >> 6)).double() / 2**53


@functools.lru_cache(maxsize=64)
def permutation(seed: int, n: int, key: int) -> Tensor:
    """A random order of n items that depends on (seed, key) alone (ours).

    order = argsort(u_0, ..., u_{n - 1}),  u as in `uniforms`

    Args:
        seed: the run's seed.
        n: number of items.
        key: names the permutation, in [0, 2^32).
    Returns:
        int64 of shape (n,). It is cached between calls: do not change it in place.
    Example:
        >>> sorted(permutation(seed=7, n=4, key=0).tolist())
        [0, 1, 2, 3]
    """
    items = torch.arange(n)
    return uniforms(seed, "prompts", key, items, torch.zeros_like(items), 0).argsort()
