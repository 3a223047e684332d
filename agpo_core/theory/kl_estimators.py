"""Value, spread and gradient of the KL estimators k1, k2 and k3, computed over a small vocabulary without a model.

A policy is a vector of log-probabilities over V tokens, so an expectation is a sum of V terms. Gradients are with
respect to the logits of its softmax. An estimator is used *as a loss* in the way of a training loop: the tokens are
drawn first, and the estimator is differentiated at the drawn tokens. The drawing itself is not differentiated.

One departure: sampled descents round their logits to a grid (see `descend`), so that they end alike on every processor.

The second half treats answers of two tokens; all V² sequences are enumerated in the same way.
"""

import math

import pandas as pd
import torch

from agpo_core.advantages import token_returns
from agpo_core.checks import check_choice
from agpo_core.kl import categorical_kl, k1, k2, k3
from agpo_core.losses import kl_penalty

ESTIMATORS = {"k1": k1, "k2": k2, "k3": k3}
DIRECTIONS = ("random", "temperature")
PENALTIES = ("sequence", "k2", "k3")
SEQUENCE_PENALTIES = (
    "KL of the answer", "k1 in the reward, to go", "k2 of the answer",
    "k1 in the reward, own token", "k2 per token", "k3 per token",
)  # fmt: skip


# -- policies


def reference_policy(vocabulary: int, seed: int) -> torch.Tensor:
    """Log-probabilities of a reference policy with standard normal logits, float64, (V,)."""
    return _normal(vocabulary, generator=_generator(seed)).log_softmax(-1)


def moved_policies(reference_logps_V, scales, direction, seed=0):
    """Policies along a line that starts at the reference.

    log π_s = log π_ref + s u - log Z_s

    u has mean 0 and standard deviation 1 under π_ref. So s is the typical size of a token's log-ratio under π_ref, in
    nats, and KL(π_s‖π_ref) ≈ s² / 2 near s = 0.

    Args:
        reference_logps_V: log π_ref.
        scales: s, nats, any sign; S of them.
        direction: "random" (u is normal) or "temperature" (u is log π_ref, standardised: a positive s sharpens, a
            negative one flattens).
        seed: of the random direction.

    Returns:
        logps_S_V.
    """
    check_choice("direction", direction, DIRECTIONS)
    p_V = reference_logps_V.exp()
    if direction == "random":
        u_V = _normal(len(p_V), generator=_generator(seed))
    else:
        u_V = reference_logps_V
    u_V = u_V - (p_V * u_V).sum()
    u_V = u_V / (p_V * u_V.square()).sum().sqrt()
    return (reference_logps_V + torch.tensor(scales, dtype=torch.float64)[:, None] * u_V).log_softmax(-1)


# -- values


def expectations(logps_S_V, reference_logps_V, scales) -> pd.DataFrame:
    """Exact mean, standard deviation and second moment of every estimator under the policy's own tokens.

    Returns:
        One row per scale and estimator: scale, estimator, mean, std, second (the second moment); and reverse and
        forward, the divergences KL(π‖π_ref) and KL(π_ref‖π). Nats.
    """
    rows = []
    for scale, logps_V in zip(scales, logps_S_V, strict=True):
        divergences = _divergences(logps_V, reference_logps_V)
        for name, estimator in ESTIMATORS.items():
            values_V = estimator(logps_V, reference_logps_V)
            mean, std = _moments(logps_V.exp(), values_V)
            second = (logps_V.exp() * values_V.square()).sum().item()
            rows.append({"scale": scale, "estimator": name, "mean": mean, "std": std, "second": second, **divergences})
    return pd.DataFrame(rows)


def monte_carlo(logps_S_V, reference_logps_V, scales, batch: int, batches: int, seed: int) -> pd.DataFrame:
    """The means of `expectations` from sampled tokens, and how far a batch's own standard error can be trusted.

    Returns:
        One row per scale and estimator: mean and std of all draws; exact, the enumerated mean; exact_error, the
        standard error of the mean of all draws, from the enumerated spread; z = (mean - exact) / exact_error; and
        coverage, the share of batches whose own mean ± 1.96 standard errors contains `exact` (nominally .95).
    """
    generator = _generator(seed)
    rows = []
    for scale, logps_V in zip(scales, logps_S_V, strict=True):
        tokens_N_B = draw(logps_V.expand(batches, -1), batch, generator)
        for name, estimator in ESTIMATORS.items():
            values_V = estimator(logps_V, reference_logps_V)
            exact, std = _moments(logps_V.exp(), values_V)
            values_N_B = values_V[tokens_N_B]
            half_N = 1.96 * values_N_B.std(dim=1) / math.sqrt(batch)
            error = std / math.sqrt(batch * batches)
            mean = values_N_B.mean().item()
            rows.append({
                "scale": scale, "estimator": name, "mean": mean, "std": values_N_B.std().item(), "exact": exact,
                "exact_error": error, "z": (mean - exact) / error,
                "coverage": ((values_N_B.mean(dim=1) - exact).abs() <= half_N).double().mean().item(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def draw(logps_R_V, tokens: int, generator) -> torch.Tensor:
    """Sample `tokens` indices from each row, by inversion of the distribution function; (R, tokens)."""
    uniform_R_B = torch.rand(len(logps_R_V), tokens, dtype=torch.float64, generator=generator)
    # Rounding can leave the last sum below 1.
    return torch.searchsorted(logps_R_V.exp().cumsum(-1), uniform_R_B).clamp(max=logps_R_V.shape[-1] - 1)


def geometric_moments(vocabularies, base: float, reference_bases) -> pd.DataFrame:
    """E[k2²] and E[k3²] for two truncated geometric distributions, as the vocabulary grows.

    π(n) ∝ baseⁿ and π_ref(n) ∝ bⁿ for n = 0 … V - 1. Without the truncation Σ π_ref² / π converges where b² < base.

    Returns:
        One row per V; columns "E[k2²], b = …" and "E[k3²], b = …".
    """
    rows = {}
    for V in vocabularies:
        n_V = torch.arange(V, dtype=torch.float64)
        logps_1_V = (n_V * math.log(base)).log_softmax(-1)[None]
        rows[V] = {}
        for b in reference_bases:
            table = expectations(logps_1_V, (n_V * math.log(b)).log_softmax(-1), [0.0]).set_index("estimator")
            rows[V] |= {f"E[{k}²], b = {b:g}": table.loc[k, "second"] for k in ("k2", "k3")}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("V")


def in_precision(log_ratios, dtype) -> pd.DataFrame:
    """k2, k3 and their slopes at single tokens, computed in the precision `dtype`; one row per log-ratio d."""
    rows = {}
    for d in log_ratios:
        logp, zero = torch.tensor([d], dtype=dtype), torch.zeros(1, dtype=dtype)
        rows[d] = {k: ESTIMATORS[k](logp, zero).item() for k in ("k2", "k3")}
        rows[d] |= {f"slope of {k}": slopes(k, logp, zero).item() for k in ("k2", "k3")}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("d")


# -- gradients


def slopes(estimator: str, logps, reference_logps):
    """The derivative of an estimator in log π, token by token: 1, d and 1 - exp(-d)."""
    leaf = logps.detach().clone().requires_grad_()
    return torch.autograd.grad(ESTIMATORS[estimator](leaf, reference_logps.expand_as(leaf)).sum(), leaf)[0]


def token_gradients(estimator: str, logps_V, reference_logps_V):
    """The gradient of an estimator as a loss, in the logits, for each token that may be drawn.

    g(v) = k'(d_v) (e_v - π),   e_v the v-th unit vector

    Returns:
        gradients_V_V, one row per token.
    """
    score_V_V = torch.eye(len(logps_V), dtype=logps_V.dtype) - logps_V.exp()
    return slopes(estimator, logps_V, reference_logps_V)[:, None] * score_V_V


def loss_gradient(estimator: str, logps_V, reference_logps_V, sampler_logps_V=None, corrected=False):
    """The expected gradient of an estimator as a loss, in the logits.

    Σ_v μ(v) w(v) g(v),   w = 1, or π / μ where corrected

    Args:
        estimator: "k1", "k2" or "k3".
        logps_V, reference_logps_V: log π and log π_ref.
        sampler_logps_V: log μ, if tokens come from a distribution μ other than π. Default: π.
        corrected: weight each token by π / μ, held constant.

    Returns:
        gradient_V.
    """
    sampler_logps_V = logps_V if sampler_logps_V is None or corrected else sampler_logps_V  # μ (π / μ) = π
    return sampler_logps_V.exp() @ token_gradients(estimator, logps_V, reference_logps_V)


def expectation_gradient(estimator: str, logps_V, reference_logps_V):
    """∇ Σ_v π(v) k(v) in the logits. The drawing is differentiated too, which no loss on drawn tokens does."""
    logits_V = logps_V.detach().clone().requires_grad_()
    logps_V = logits_V.log_softmax(-1)
    expectation = (logps_V.exp() * ESTIMATORS[estimator](logps_V, reference_logps_V)).sum()
    return torch.autograd.grad(expectation, logits_V)[0]


def divergence_gradients(logps_V, reference_logps_V) -> dict:
    """∇KL(π‖π_ref), "reverse", and ∇KL(π_ref‖π), "forward", in the logits of π, by automatic differentiation."""
    logits_V = logps_V.detach().clone().requires_grad_()
    values = {
        "reverse": categorical_kl(logits_V, reference_logps_V),
        "forward": categorical_kl(reference_logps_V, logits_V),
    }
    return {name: torch.autograd.grad(value, logits_V)[0] for name, value in values.items()}


def gradient_table(logps_S_V, reference_logps_V, scales) -> pd.DataFrame:
    """Where each estimator's gradient as a loss points, and how much its single tokens scatter.

    Returns:
        One row per scale and estimator: scale, estimator; norm of the expected gradient; to_reverse and to_forward, its
        distance from ∇KL(π‖π_ref) and ∇KL(π_ref‖π) as a share of their norm; scatter, the root of the trace of the
        covariance of one token's gradient; tokens, the number that makes the standard error as large as the gradient,
        (scatter / norm)².
    """
    rows = []
    for scale, logps_V in zip(scales, logps_S_V, strict=True):
        true = divergence_gradients(logps_V, reference_logps_V)
        for name in ESTIMATORS:
            gradient_V = loss_gradient(name, logps_V, reference_logps_V)
            scatter = gradient_scatter(token_gradients(name, logps_V, reference_logps_V), logps_V)
            norm = gradient_V.norm().item()
            rows.append({
                "scale": scale, "estimator": name, "norm": norm,
                "to_reverse": distance(gradient_V, true["reverse"]),
                "to_forward": distance(gradient_V, true["forward"]),
                "scatter": scatter, "tokens": math.inf if norm < 1e-12 else (scatter / norm) ** 2,
            })  # fmt: skip
    return pd.DataFrame(rows)


def sampled_gradients(logps_S_V, reference_logps_V, scales, tokens: int, seed: int) -> pd.DataFrame:
    """The distance of a mean gradient of drawn tokens from the expected gradient, and its standard error.

    The three estimators see the same tokens.

    Returns:
        One row per scale and estimator: scale, estimator; norm of the expected gradient; off, the norm of (mean of the
        drawn gradients - expected gradient); error, the exact root mean square of `off`, scatter / sqrt(tokens);
        own_error, the same from the scatter of the draws alone; and z = off / error.
    """
    generator = _generator(seed)
    rows = []
    for scale, logps_V in zip(scales, logps_S_V, strict=True):
        shares_V = _shares(draw(logps_V[None], tokens, generator), logps_V[None])[0]
        for name in ESTIMATORS:
            gradients_V_V = token_gradients(name, logps_V, reference_logps_V)
            expected_V = loss_gradient(name, logps_V, reference_logps_V)
            off = (shares_V @ gradients_V_V - expected_V).norm().item()
            error = gradient_scatter(gradients_V_V, logps_V) / math.sqrt(tokens)
            rows.append({
                "scale": scale, "estimator": name, "norm": expected_V.norm().item(), "off": off, "error": error,
                "own_error": gradient_scatter(gradients_V_V, shares_V.log()) / math.sqrt(tokens), "z": off / error,
            })  # fmt: skip
    return pd.DataFrame(rows)


def gradient_scatter(gradients_V_V, logps_V) -> float:
    """The root of the trace of the covariance of one token's gradient, sqrt(E|g|² - |E g|²)."""
    p_V = logps_V.exp()
    return ((p_V * gradients_V_V.square().sum(-1)).sum() - (p_V @ gradients_V_V).square().sum()).sqrt().item()


def distance(gradient, true) -> float:
    """‖gradient - true‖ as a share of ‖true‖."""
    return ((gradient - true).norm() / true.norm()).item()


def sampler_table(logps_V, reference_logps_V, samplers: dict) -> pd.DataFrame:
    """Values and gradients when the tokens come from a distribution μ other than π.

    Args:
        logps_V, reference_logps_V: log π and log π_ref.
        samplers: name -> log μ.

    Returns:
        One row per sampler: k1 and k3, their expectations in nats; k2_reverse and k3_forward, the distance of k2's
        gradient from ∇KL(π‖π_ref), and of k3's from ∇KL(π_ref‖π); the columns with _corrected give the same distances
        with each token weighted by π / μ.
    """
    true = divergence_gradients(logps_V, reference_logps_V)
    rows = {}
    for name, sampler_logps_V in samplers.items():
        row = {
            k: (sampler_logps_V.exp() * ESTIMATORS[k](logps_V, reference_logps_V)).sum().item() for k in ("k1", "k3")
        }
        for suffix, corrected in (("", False), ("_corrected", True)):
            for k, divergence in (("k2", "reverse"), ("k3", "forward")):
                gradient_V = loss_gradient(k, logps_V, reference_logps_V, sampler_logps_V, corrected)
                row[f"{k}_{divergence}{suffix}"] = distance(gradient_V, true[divergence])
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


# -- descent

GRID = 2.0**20  # grid points per unit of a logit


def descend(estimator, logps_V, reference_logps_V, learning_rate, steps, tokens=None, runs=1, seed=0, max_norm=None):
    """Gradient descent on the logits, with an estimator as the only loss and tokens of the current policy at each step.

    Where tokens are drawn, the logits are rounded to multiples of 2⁻²⁰. Under k1 the distance between two paths with
    the same draws grows by a factor at every step, so the last bits of a processor's exp would decide where they end.
    The rounding removes these bits.

    Args:
        estimator: "k1", "k2" or "k3".
        logps_V, reference_logps_V: log π at the start, and log π_ref.
        learning_rate: of plain gradient descent.
        steps: number of steps.
        tokens: number drawn at each step; None takes the expected gradient.
        runs: independent repetitions.
        seed: of the draws.
        max_norm: the gradient is clipped to this norm; None: no clipping.

    Returns:
        kl_T_R: KL(π‖π_ref) before the first step and after each, (steps + 1, runs), nats; infinite from the step on
        at which a run's logits are no longer finite.
    """
    generator = _generator(seed)
    logits_R_V = logps_V.expand(runs, -1).clone()
    path = []
    for _ in range(steps + 1):
        logps_R_V = logits_R_V.log_softmax(-1)
        p_R_V = logps_R_V.exp()
        path.append((p_R_V * (logps_R_V - reference_logps_V)).sum(-1))
        weight_R_V = p_R_V if tokens is None else _shares(draw(logps_R_V, tokens, generator), logps_R_V)
        # Zero where a token was not drawn, even if its slope overflows.
        pull_R_V = torch.where(weight_R_V > 0, weight_R_V * slopes(estimator, logps_R_V, reference_logps_V), 0.0)
        gradient_R_V = pull_R_V - p_R_V * pull_R_V.sum(-1, keepdim=True)
        if max_norm is not None:
            norm_R_1 = gradient_R_V.norm(dim=-1, keepdim=True)
            gradient_R_V = gradient_R_V * (max_norm / norm_R_1.clamp(min=max_norm))
        logits_R_V = logits_R_V - learning_rate * gradient_R_V
        if tokens is not None:
            logits_R_V = torch.round(logits_R_V * GRID) / GRID
    return torch.stack(path).nan_to_num(nan=math.inf)


def steps_until(kl_T, share: float) -> float:
    """The first step at which the KL is at most `share` of its first value; infinite if there is none."""
    reached = (kl_T <= share * kl_T[0]).nonzero()
    return reached[0].item() if len(reached) else math.inf


def descent_table(paths: dict, shares=(0.5, 0.1)) -> pd.DataFrame:
    """First and last KL of descents with expected gradients, and the steps they took to reach shares of the first KL.

    Args:
        paths: start -> loss -> kl_T_R of `descend`, one run.
        shares: of the first KL.

    Returns:
        One row per start and loss, KL in nats; infinite steps where a share was not reached.
    """
    rows = {}
    for start, of_start in paths.items():
        for loss, kl_T_R in of_start.items():
            kl_T = kl_T_R[:, 0]
            until = {f"steps to {share:.0%}": steps_until(kl_T, share) for share in shares}
            rows[start, loss] = {"first KL": kl_T[0].item(), "last KL": kl_T[-1].item(), **until}
    return pd.DataFrame.from_dict(rows, orient="index")


def ends_table(paths: dict) -> pd.DataFrame:
    """The last KL of sampled descents: its median over runs, and the share of runs in which it is above the first KL.

    Args:
        paths: start -> loss -> kl_T_R of `descend`, many runs.

    Returns:
        One row per start and loss: "median last KL", nats, and "ended farther away".
    """
    rows = {}
    for start, of_start in paths.items():
        for loss, kl_T_R in of_start.items():
            away = (kl_T_R[-1] > kl_T_R[0]).double().mean().item()
            rows[start, loss] = {"median last KL": kl_T_R[-1].median().item(), "ended farther away": away}
    return pd.DataFrame.from_dict(rows, orient="index")


# -- answers of two tokens


def two_token_policy(vocabulary: int, seed: int, problems: int | None = None):
    """A policy over answers of two tokens with standard normal logits.

    Returns:
        first_V, log π(a), and second_V_V, log π(b | a), one row per a; both with a leading dimension if `problems` is
        given.
    """
    leading = () if problems is None else (problems,)
    generator = _generator(seed)
    first = _normal(*leading, vocabulary, generator=generator)
    second = _normal(*leading, vocabulary, vocabulary, generator=generator)
    return first.log_softmax(-1), second.log_softmax(-1)


def sequence_gradients(policy, reference) -> dict:
    """The exact gradient of the KL of whole answers, and the exact gradient that each penalty puts in its place.

    KL of the answer             ∇ Σ_y π(y) log (π(y) / π_ref(y))
    k1 in the reward, to go      every token is charged for itself and for what follows (R++ Eq. 4)
    k2 of the answer             (log π(y) / π_ref(y))² / 2 as a loss
    k1 in the reward, own token  every token is charged for itself alone
    k2 per token, k3 per token   as a loss, summed over the answer, prefixes as the policy draws them

    Args:
        policy, reference: first_V and second_V_V of each.

    Returns:
        name -> (gradient in the first token's logits, (V,); in the second's, (V, V)); both are for gradient descent.
    """
    found = {}
    for name in SEQUENCE_PENALTIES:
        logits = [part.detach().clone().requires_grad_() for part in policy]
        logps_B_2 = _token_logps(*(part.log_softmax(-1) for part in logits))
        found[name] = torch.autograd.grad(_sequence_loss(name, logps_B_2, _token_logps(*reference)), logits)
    return found


def _sequence_loss(name, logps_B_2, reference_logps_B_2):
    """The expected loss of one of SEQUENCE_PENALTIES, summed over all answers; takes (B, 2) log-probabilities."""
    share_B = logps_B_2.sum(1).exp()
    if name == "KL of the answer":
        return (share_B * (logps_B_2 - reference_logps_B_2).sum(1)).sum()
    share_B = share_B.detach()  # the drawing is not differentiated
    if name == "k2 of the answer":
        return (share_B * k2(logps_B_2.sum(1), reference_logps_B_2.sum(1))).sum()
    if name in ("k2 per token", "k3 per token"):
        return (share_B * kl_penalty(logps_B_2, reference_logps_B_2, name[:2]).sum(1)).sum()
    kl_B_2 = kl_penalty(logps_B_2, reference_logps_B_2, "k1", "reward")
    returns_B_2 = -kl_B_2
    if name == "k1 in the reward, to go":
        returns_B_2 = token_returns(torch.zeros_like(share_B), torch.ones_like(kl_B_2), kl_B_2, beta=1.0)
    return -(share_B * (returns_B_2 * logps_B_2).sum(1)).sum()


def penalised_optimum(penalty: str, reference, rewards, beta: float):
    """The policy at which updates with this penalty stop: the expected gradient of E[r] - β penalty is zero.

    sequence  π(b|a) ∝ π_ref(b|a) exp(r(a,b) / β);  π(a) ∝ π_ref(a) exp(V(a) / β),  V(a) = E[r | a] - β KL(· | a)
    k2        the same, with E[r | a] in place of V(a): no token is charged for the KL that follows it
    k3        π(v) = β π_ref(v) / (λ - Q(v)), λ such that it sums to 1; Q = r for b, and E[r | a] for a

    k2 and k3 are the penalties of each token as a loss, summed over the answer.

    Args:
        penalty: "sequence", "k2" or "k3".
        reference: first (..., V) and second (..., V, V), log-probabilities.
        rewards: r(a, b), (..., V, V).
        beta: β, units of reward per nat, > 0.

    Returns:
        first and second, log-probabilities.
    """
    check_choice("penalty", penalty, PENALTIES)
    if not beta > 0:
        raise ValueError(f"beta={beta} must be above 0: without a penalty there is no policy at which updates stop.")
    tilt = _tilt_forward if penalty == "k3" else _tilt_reverse
    first, second = reference
    answers = tilt(second, rewards, beta)
    worth = (answers.exp() * rewards).sum(-1)
    if penalty == "sequence":
        worth = worth - beta * categorical_kl(answers, second)
    return tilt(first, worth, beta), answers


def outcome(policy, reference, rewards):
    """E[r] of a policy over answers of two tokens, and its KL(π‖π_ref) over whole answers."""
    p = (policy[0].unsqueeze(-1) + policy[1]).exp()
    d = (policy[0] - reference[0]).unsqueeze(-1) + policy[1] - reference[1]
    return (p * rewards).sum((-2, -1)), (p * d).sum((-2, -1))


def equal_beta(betas, vocabulary: int, problems: int, seed: int) -> pd.DataFrame:
    """Reward and KL of each penalty's optimum at the same β, averaged over random problems.

    A problem is a reference and rewards, all standard normal; each is solved exactly.

    Returns:
        One row per β and penalty: beta, penalty; reward and kl, means over problems; kl_gap, the mean paired difference
        of the KL from that of the penalty "sequence"; and their standard errors, with the suffix _error.
    """
    reference = two_token_policy(vocabulary, seed, problems)
    rewards = _normal(problems, vocabulary, vocabulary, generator=_generator(seed + 1))
    rows = []
    for beta in betas:
        found = {p: outcome(penalised_optimum(p, reference, rewards, beta), reference, rewards) for p in PENALTIES}
        for penalty, (reward_P, kl_P) in found.items():
            row = {"beta": beta, "penalty": penalty}
            columns = {"reward": reward_P, "kl": kl_P, "kl_gap": kl_P - found["sequence"][1]}
            for column, values_P in columns.items():
                row[column] = values_P.mean().item()
                row[f"{column}_error"] = (values_P.std() / math.sqrt(problems)).item()
            rows.append(row)
    return pd.DataFrame(rows)


# -- parts


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(*shape: int, generator) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def _moments(p_V, values_V) -> tuple[float, float]:
    mean = (p_V * values_V).sum()
    return mean.item(), (p_V * (values_V - mean).square()).sum().sqrt().item()


def _divergences(logps_V, reference_logps_V) -> dict:
    return {
        "reverse": categorical_kl(logps_V, reference_logps_V).item(),
        "forward": categorical_kl(reference_logps_V, logps_V).item(),
    }


def _shares(tokens_R_B, logps_R_V) -> torch.Tensor:
    """How often each token was drawn, as a share."""
    counts_R_V = torch.zeros_like(logps_R_V).scatter_add_(1, tokens_R_B, torch.ones_like(tokens_R_B).to(logps_R_V))
    return counts_R_V / tokens_R_B.shape[1]


def _token_logps(first_V, second_V_V) -> torch.Tensor:
    """The two tokens' log-probabilities of each of the V² answers, (V², 2)."""
    return torch.stack([first_V[:, None].expand_as(second_V_V).flatten(), second_V_V.flatten()], dim=1)


def _tilt_reverse(reference_logps, worth, beta):
    """The policy that maximises E[worth] - β KL(π‖π_ref)."""
    return (reference_logps + worth / beta).log_softmax(-1)


def _tilt_forward(reference_logps, worth, beta):
    """The policy where E[worth] - β KL(π_ref‖π) has gradient zero; λ by bisection in (max worth, max worth + β]."""
    low = worth.max(-1, keepdim=True).values
    high = low + beta
    for _ in range(100):  # halves an interval of width β down to rounding
        middle = (low + high) / 2
        above_one = (beta * reference_logps.exp() / (middle - worth)).sum(-1, keepdim=True) > 1
        low, high = torch.where(above_one, middle, low), torch.where(above_one, high, middle)
    return (reference_logps + math.log(beta) - (high - worth).log()).log_softmax(-1)
