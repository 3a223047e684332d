"""The bias of normalised advantages: REINFORCE++, Appendix A, made exact.

A group has N rewards r_i = ε_i, centred and drawn independently from N(0, σ²). One reward is held fixed, the others are
drawn, and

    A_i = (ε_i - mean_j ε_j) / D,    D² = (1/N) Σ_j (ε_j - mean_k ε_k)²

is averaged over the draws. An unbiased A would have E[A_i | ε_i] = ε_i / σ, or ε_i times another constant.

Departures from the paper's text, which we know from a commentary:

- The target is ε/σ, since A has no unit; the text compares with ε.
- D divides by N here (`ddof=0`), as in Appendix A. GRPO's standard deviation divides by N - 1 (`ddof=1`). With it every
  advantage, and every number of this module that contains A, is smaller by the constant factor sqrt((N - 1)/N).
- The proof expands 1/D in a Taylor series, and replaces the expectation of a product by the product of expectations.
  Neither step is needed: E[A_i | ε_i] is an integral over one variable, without a singularity at any N >= 2.
- Binary rewards are not Gaussian. For them the expectation is a finite sum, and groups of equal rewards count as A = 0.
"""

import math
from numbers import Integral

import torch

from agpo_core.checks import check_choice

ESTIMATORS = ("local", "leave_one_out", "global")
REWARDS = ("gaussian", "binary")
DDOF = (0, 1)
# Numbers drawn at once, and groups drawn at once: few enough for a chunk to stay in a core's cache.
CHUNK_NUMBERS, CHUNK_DRAWS = 2**18, 2**13
NODES = 512  # of the trapezoid rule; they hold its error below 1e-12
EPSILON_MAX = 1.0e6  # in units of σ; far beyond any draw, while its square is still far below float64's largest number


def conditional_expectation(epsilon, group_size, sigma=1.0, ddof=0, nodes=NODES):
    """Compute E[A_i | ε_i] under Gaussian rewards, exactly.

    E[A_i | ε_i] = sqrt(2/π) n e ∫₀¹ exp(-n e² y² / 2) [(1 - y²) / (1 + n y²)]^(n/2 - 1/2) dy
    n = N - 1,  e = ε_i / σ                                      (setting of R++ App. A; the integral is ours)

    Given ε_i, the mean of the other n rewards has the distribution N(0, σ²/n). Their sum of squares about it has the
    distribution σ² χ²_{N-2} and is independent of it. With 1/√x = (2/√π) ∫₀^∞ exp(-x t²) dt both expectations have a
    closed form, and the integral over t is left. At N = 2 the result is erf(e / √2); as N grows it tends to e.

    The result is an odd, increasing function of ε_i. It stays within ±sqrt(N - 1), the largest |A| possible in a group
    of N.

    Args:
        epsilon: ε_i, in units of reward; a number or a tensor of any shape, finite, |ε_i| <= 10⁶ σ.
        group_size: N >= 2; under global normalisation the number of all rewards in the batch.
        sigma: σ > 0, in units of reward.
        ddof: D² divides by N - ddof; 0 (Appendix A) or 1 (GRPO's code).
        nodes: number of nodes of the trapezoid rule; 512 hold the error below 1e-12. Memory: one float64 per node
            and ε.

    Returns:
        float64, the shape of `epsilon`; no unit. Differentiable in `epsilon`.

    Raises:
        ValueError: ε not finite or beyond 10⁶ σ, N < 2, σ <= 0, or an unknown ddof.

    Example:
        >>> conditional_expectation([0.5, 3.0], group_size=8)
        tensor([0.5388, 2.0246], dtype=torch.float64)
    """
    epsilon = _checked(epsilon, group_size, sigma)
    check_choice("ddof", ddof, DDOF)
    n, e = group_size - 1, epsilon / sigma
    scale = math.sqrt(2 / math.pi) * n * math.sqrt((group_size - ddof) / group_size)
    return scale * e * _integral(e, group_size, power=group_size, nodes=nodes)


def expected_inverse_dispersion(epsilon, group_size, sigma=1.0, nodes=NODES):
    """Compute g(ε_i) = E[1/D | ε_i] under Gaussian rewards, exactly.

    E[1/D | ε_i] = sqrt(2/π) (N/σ) ∫₀¹ exp(-n e² y² / 2) [(1 - y²) / (1 + n y²)]^(n/2 - 1/2) dy / (1 - y²)
    n = N - 1,  e = ε_i / σ                                      (setting of R++ App. A; the integral is ours)

    This is the g of the proof's third step; it decreases in ε_i². It is infinite at N = 2, where D = |ε_1 - ε_2| / 2
    may come arbitrarily close to zero. Arguments as for `conditional_expectation`; D² divides by N.

    Returns:
        float64, the shape of `epsilon`, in 1 / units of reward.

    Example:
        >>> expected_inverse_dispersion([0.0, 3.0], group_size=8)
        tensor([1.3054, 0.7789], dtype=torch.float64)
    """
    epsilon = _checked(epsilon, group_size, sigma)
    if group_size == 2:
        return torch.full_like(epsilon, math.inf)
    scale = math.sqrt(2 / math.pi) * group_size / sigma
    return scale * _integral(epsilon / sigma, group_size, power=group_size - 2, nodes=nodes)


def _integral(e, N, power, nodes):
    """∫₀^∞ exp(-n e² y² / 2) (1 + n y²)^(1 - N/2) cosh(v)^(-power) dv,  y = tanh v,  n = N - 1.

    The integrand is even and analytic in v, and falls off at least as cosh(v)^(-power): the trapezoid rule converges
    exponentially in the number of nodes.
    """
    n = N - 1
    steepness = math.sqrt(n) * e.detach().abs()
    # Beyond `reach` the integrand is below exp(-40), because of its power of cosh or, earlier, of its first factor.
    early = (9 / steepness.clamp(min=10)).atanh()
    reach = torch.where(steepness > 10, early.clamp(max=40 / power), 40 / power)
    v = reach[..., None] * torch.linspace(0, 1, nodes, dtype=torch.float64, device=e.device)
    square = v.tanh().square()
    # log cosh² v = log1p(sinh² v): this form is exact where v is small and N is large.
    logs = n * e[..., None].square() * square + (N - 2) * (n * square).log1p() + power * v.sinh().square().log1p()
    return torch.trapezoid((-logs / 2).exp(), v)


def conditional_expectation_binary(reward, group_size, p, ddof=0):
    """Compute E[A_i | r_i] exactly, where each other reward is 1 with probability p and 0 otherwise.

    E[A_i | r_i = 1] =  Σ_k B(k) sqrt((N - 1 - k) / (k + 1))
    E[A_i | r_i = 0] = -Σ_k B(k) sqrt(k / (N - k))
    B(k) = C(N - 1, k) p^k (1 - p)^(N - 1 - k)                                                     (ours)

    k is the number of right answers among the other N - 1. In a group of equal rewards, with k = N - 1 beside a right
    answer or k = 0 beside a wrong one, A counts as 0. A group's advantages sum to zero, so
    p E[A | 1] + (1 - p) E[A | 0] = 0: with ε = r - p the expectation is ε times a weight that depends on p and N alone.

    Args:
        reward: r_i, 0 or 1; a number or a tensor.
        group_size: N >= 2.
        p: probability of a right answer, in [0, 1]; a number or a tensor that broadcasts with `reward`.
        ddof: D² divides by N - ddof; 0 or 1.

    Returns:
        float64, the broadcast shape; no unit. Differentiable in p on (0, 1).

    Raises:
        ValueError: a reward that is neither 0 nor 1, p outside [0, 1], N < 2, or an unknown ddof.

    Example:
        >>> conditional_expectation_binary([1.0, 0.0], group_size=2, p=0.25)  # .75 and -.25: A = ±1 where they differ
        tensor([ 0.7500, -0.2500], dtype=torch.float64)
    """
    _check_count("group_size", group_size, 2)
    check_choice("ddof", ddof, DDOF)
    given = [value.device for value in (reward, p) if isinstance(value, torch.Tensor)]
    device = next((place for place in given if place.type != "cpu"), None)  # a number takes the other argument's device
    reward, p = (torch.as_tensor(value, dtype=torch.float64, device=device) for value in (reward, p))
    _check_binary("reward", reward)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p must lie in [0, 1]: it is the probability of a right answer.")
    N, n = group_size, group_size - 1
    k = torch.arange(N, dtype=torch.float64, device=reward.device)
    log_choose = math.lgamma(N) - (k + 1).lgamma() - (N - k).lgamma()
    share = torch.exp(log_choose + torch.xlogy(k, p[..., None]) + torch.xlogy(n - k, 1 - p[..., None]))
    right, wrong = ((n - k) / (k + 1)).sqrt(), -(k / (N - k)).sqrt()
    advantage = torch.where(reward[..., None] == 1, right, wrong)
    return (share * advantage).sum(-1) * math.sqrt((N - ddof) / N)


def expected_squared_dispersion(epsilon, group_size, sigma=1.0):
    """Compute E[D² | ε_i], where D² divides by N.

    E[D² | ε_i] = ((N - 1)² / N²) σ² + ((N - 1) / N²) ε_i²                       (R++ App. A, second step)

    Holds for rewards of any distribution with mean 0 and variance σ². Arguments as for `conditional_expectation`.

    Returns:
        float64, the shape of `epsilon`, in squared units of reward.

    Example:
        >>> expected_squared_dispersion([0.0, 2.0], group_size=2)  # σ²/4 + ε²/4
        tensor([0.2500, 1.2500], dtype=torch.float64)
    """
    epsilon = _checked(epsilon, group_size, sigma)
    n, N = group_size - 1, group_size
    return (n / N) ** 2 * sigma**2 + n / N**2 * epsilon.square()


def monte_carlo(
    rewards_E,
    group_size,
    draws,
    estimator="local",
    rewards="gaussian",
    groups=1,
    sigma=1.0,
    p=0.5,
    ddof=0,
    seed=0,
):
    """Estimate E[A_i | r_i] and E[D² | r_i] by drawing the other rewards.

    local:          A = (r_i - mean) / D within the group                                      (AGPO Eq. 1; R++ Eq. 3)
    global:         the same within a batch of several groups: N = groups × group_size                      (R++ Eq. 5)
    leave_one_out:  A = r_i - mean of the others, without a scale                               (Ahmadian et al., 2024)

    Under leave_one_out E[A_i | r_i] = r_i - E[r], without bias.

    A = 0 where all rewards are equal. All of the other N - 1 rewards are drawn, in float32. The A of any r_i depends on
    them only by their mean and their sum of squares about it. All points of the grid therefore share the same draws,
    and their errors are correlated. Memory is bounded: a chunk holds 2^18 numbers, and 2^13 groups for each point.

    Args:
        rewards_E: r_i held fixed, one per point of the grid; floats, or 0 and 1. With mean-zero Gaussian
            rewards r = ε.
        group_size: rewards per prompt, >= 2.
        draws: M >= 2 groups (or batches), each of N - 1 other rewards.
        estimator: "local", "leave_one_out" or "global".
        rewards: the others are "gaussian", N(0, σ²), or "binary", 1 with probability p.
        groups: groups in the batch; only "global" allows more than 1.
        sigma, p: parameters of the others' distribution.
        ddof: A's D² divides by N - ddof; 0 or 1. The D² returned divides by N.
        seed: of the draws; at equal N the three estimators get the same draws.

    Returns:
        dict: mean, standard_error (of the mean), squared_dispersion, squared_dispersion_error, each float64 (E,);
        and draws.

    Raises:
        ValueError: an argument out of its range, named.

    Example:
        >>> monte_carlo([1.0], group_size=4, draws=10, rewards="binary", p=0.0)["mean"]  # sqrt(3): alone right in four
        tensor([1.7321], dtype=torch.float64)
    """
    check_choice("estimator", estimator, ESTIMATORS)
    check_choice("rewards", rewards, REWARDS)
    check_choice("ddof", ddof, DDOF)
    rewards_E = _checked(rewards_E, group_size, sigma, "rewards_E")
    if rewards_E.ndim != 1:
        raise ValueError(f"rewards_E has shape {tuple(rewards_E.shape)}; give one reward per point of the grid, (E,).")
    _check_count("draws", draws, 2)
    _check_count("groups", groups, 1)
    if groups > 1 and estimator != "global":
        raise ValueError(f"groups={groups} under {estimator!r}, which uses one group; take 'global', or groups=1.")
    if rewards == "binary":
        _check_binary("rewards_E", rewards_E)
        if not 0 <= p <= 1:
            raise ValueError(f"p={p} must lie in [0, 1]: it is the probability of a right answer.")
    N, n = group_size * groups, group_size * groups - 1
    unit = sigma if rewards == "gaussian" else 1.0  # A has no unit, and float32 has a narrow range
    own_E_1 = (rewards_E / unit).float()[:, None]
    generator = torch.Generator(rewards_E.device).manual_seed(seed)
    sums = {name: torch.zeros_like(rewards_E) for name in ("A", "A²", "D²", "D⁴")}
    done = 0
    while done < draws:
        C = min(draws - done, CHUNK_DRAWS, max(1, CHUNK_NUMBERS // n))
        mean_C, squares_C = _statistics_of_the_others(n, C, rewards, p, generator)
        gap_E_C = own_E_1 - mean_C
        # N D² = Σ_j≠i (r_j - mean_j≠i)² + (n/N) (r_i - mean_j≠i)²
        squares_E_C = torch.addcmul(squares_C, gap_E_C, gap_E_C, value=n / N)
        if estimator == "leave_one_out":
            advantage_E_C = gap_E_C
        else:  # r_i - mean = (n/N) (r_i - mean_j≠i); the constant factors follow after the sums
            advantage_E_C = squares_E_C.rsqrt().mul_(gap_E_C)
        sums["A"] += advantage_E_C.sum(1)
        sums["A²"] += torch.linalg.vector_norm(advantage_E_C, dim=1).double().square()
        sums["D²"] += squares_E_C.sum(1)
        sums["D⁴"] += torch.linalg.vector_norm(squares_E_C, dim=1).double().square()
        done += C
    scale = unit if estimator == "leave_one_out" else n / N * math.sqrt(N - ddof)
    mean_E, error_E = _mean_and_error(sums["A"] * scale, sums["A²"] * scale**2, draws)
    scale = unit**2 / N
    squared_E, squared_error_E = _mean_and_error(sums["D²"] * scale, sums["D⁴"] * scale**2, draws)
    return {
        "mean": mean_E,
        "standard_error": error_E,
        "squared_dispersion": squared_E,
        "squared_dispersion_error": squared_error_E,
        "draws": draws,
    }


def _statistics_of_the_others(n, C, rewards, p, generator):
    """Draw C times n rewards; return their means and sums of squares about them, each (C,)."""
    if rewards == "gaussian":
        others_n_C = torch.randn(n, C, generator=generator, device=generator.device)
    else:
        others_n_C = torch.rand(n, C, generator=generator, device=generator.device).lt_(p)
    sum_C = others_n_C.sum(0)
    mean_C = sum_C / n
    squares_C = others_n_C.square_().sum(0)  # in place: a second tensor of that size costs more than the sum
    # Equal rewards have zero squares and a zero gap: with 1e-30 their quotient is zero, not NaN.
    return mean_C, (squares_C - mean_C * sum_C).clamp_(min=1.0e-30)


def _mean_and_error(total, total_of_squares, draws):
    mean = total / draws
    variance = (total_of_squares - draws * mean.square()) / (draws - 1)
    return mean, (variance.clamp(min=0) / draws).sqrt()  # rounding makes it negative where all draws are equal


def _checked(epsilon, group_size, sigma, name="epsilon"):
    """ε as float64, after a check of ε, N and σ; errors call ε by the caller's name for it."""
    _check_count("group_size", group_size, 2)
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma={sigma} must be positive and finite: it is the rewards' standard deviation.")
    epsilon = torch.as_tensor(epsilon, dtype=torch.float64)
    if not epsilon.isfinite().all():
        raise ValueError(f"{name}, the reward held fixed, is NaN or infinite; give finite values.")
    if (epsilon.abs() > EPSILON_MAX * sigma).any():
        raise ValueError(
            f"{name} lies more than {EPSILON_MAX:.0e} standard deviations from the mean 0 (sigma={sigma}): no such "
            "reward is drawn; check the units of both."
        )
    return epsilon


def _check_count(name, value, least):
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number, {least} or more.")


def _check_binary(name, values):
    if not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{name} must hold 0 or 1; threshold graded rewards first.")
