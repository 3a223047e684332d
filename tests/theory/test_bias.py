"""The bias of normalised advantages: exact curves against closed forms, direct integration and Monte Carlo."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from agpo_core.advantages import group_advantages
from agpo_core.theory import bias
from agpo_core.theory.bias import (
    conditional_expectation,
    conditional_expectation_binary,
    expected_inverse_dispersion,
    expected_squared_dispersion,
    monte_carlo,
)

quick = settings(derandomize=True, max_examples=60)
sizes = st.integers(2, 2000)
epsilons = st.floats(-50, 50)

GRID = torch.linspace(-6, 6, 49, dtype=torch.float64)
EXACT = dict(atol=1e-12, rtol=0)


def direct(function, epsilon, N):
    """Integrate function(w, s) over the two independent variables of Appendix A; σ = 1, N >= 4.

    With n = N - 1 the fixed reward lies sqrt(N/n) w above the mean of the others, w is N(ε sqrt(n/N), 1/N), and the sum
    of squares of the others about their mean is s², s of the chi distribution with N - 2 degrees of freedom. Hence
    N D² = s² + w².
    """
    nu, mu = N - 2, epsilon * math.sqrt((N - 1) / N)
    log_norm = (1 - nu / 2) * math.log(2) - math.lgamma(nu / 2)
    mode = math.sqrt(nu - 1)

    def chi(s):
        return math.exp(log_norm + (nu - 1) * math.log(s) - s * s / 2) if s > 0 else 0.0

    def given_w(w):
        normal = math.sqrt(N / (2 * math.pi)) * math.exp(-N * (w - mu) ** 2 / 2)
        ends, inside = (
            (max(0.0, mode - 10), mode + 10),
            [p for p in (abs(w), mode) if max(0.0, mode - 10) < p < mode + 10],
        )
        return normal * integrate.quad(lambda s: function(w, s) * chi(s), *ends, points=inside, epsabs=1e-12)[0]

    low, high = mu - 9 / math.sqrt(N), mu + 9 / math.sqrt(N)
    inside = [p for p in (0.0, mu) if low < p < high]
    return integrate.quad(given_w, low, high, points=inside, epsabs=1e-12)[0]


# -- the exact curve under Gaussian rewards


def test_two_rewards_give_the_error_function():
    # A = sign(ε_1 - ε_2): E = P(ε_2 < ε_1) - P(ε_2 > ε_1) = 2 Φ(ε_1 / σ) - 1.
    torch.testing.assert_close(conditional_expectation(GRID, 2), torch.erf(GRID / math.sqrt(2)), **EXACT)


@pytest.mark.parametrize("epsilon", [0.1, 0.5353797, 2.0, 6.0])
def test_three_rewards_agree_with_an_integral_of_their_own(epsilon):
    # s² = χ²_1 has a singular density, but E[1 / sqrt(s² + w²)] = exp(w²/4) K_0(w²/4) / sqrt(2π), K_0 of Bessel.
    def given_w(w):
        density = math.sqrt(3 / (2 * math.pi)) * math.exp(-3 * (w - mu) ** 2 / 2)
        return density * math.sqrt(2) * w * special.kve(0, w * w / 4) / math.sqrt(2 * math.pi)

    mu = epsilon * math.sqrt(2 / 3)
    low, high = mu - 9 / math.sqrt(3), mu + 9 / math.sqrt(3)
    expected, _ = integrate.quad(given_w, low, high, points=[0.0], epsabs=1e-13, limit=200)
    assert conditional_expectation(epsilon, 3).item() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("N", [4, 5, 8, 64, 1024])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_the_curve_agrees_with_direct_integration(N, epsilon):
    expected = direct(lambda w, s: math.sqrt(N - 1) * w / math.hypot(w, s), epsilon, N)
    assert conditional_expectation(epsilon, N).item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("N", [2, 3, 4, 5, 8, 16, 64, 1024, 10**6])
def test_the_quadrature_has_converged(N):
    for function in (conditional_expectation, expected_inverse_dispersion):
        torch.testing.assert_close(function(GRID, N), function(GRID, N, nodes=4096), **EXACT)
    far = torch.tensor([7.0, 20.0, 1e3, 1e6], dtype=torch.float64)
    torch.testing.assert_close(
        conditional_expectation(far, N), conditional_expectation(far, N, nodes=4096), atol=0, rtol=1e-12
    )


@quick
@given(N=sizes, epsilon=epsilons, step=st.floats(1e-3, 10))
def test_the_curve_is_odd_increasing_and_bounded(N, epsilon, step):
    low, high, mirrored = conditional_expectation([epsilon, epsilon + step, -epsilon], N).tolist()
    assert mirrored == -low
    # Where the curve meets its bound, a step is lost in rounding.
    assert high >= low - 1e-12
    assert abs(low) <= math.sqrt(N - 1) + 1e-12


@quick
@given(N=sizes, epsilon=epsilons, sigma=st.floats(1e-3, 1e3))
def test_only_the_ratio_to_sigma_matters(N, epsilon, sigma):
    scaled = conditional_expectation(sigma * epsilon, N, sigma)
    torch.testing.assert_close(scaled, conditional_expectation(epsilon, N), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        expected_squared_dispersion(sigma * epsilon, N, sigma), sigma**2 * expected_squared_dispersion(epsilon, N)
    )
    torch.testing.assert_close(
        sigma * expected_inverse_dispersion(sigma * epsilon, N, sigma), expected_inverse_dispersion(epsilon, N)
    )


@pytest.mark.parametrize("N", [2, 8])
def test_the_other_divisor_is_a_constant_factor(N):
    ratio = conditional_expectation(GRID, N, ddof=1) / conditional_expectation(GRID, N)
    torch.testing.assert_close(ratio[GRID != 0], torch.full((48,), math.sqrt((N - 1) / N), dtype=torch.float64))


def test_the_bias_decays_as_one_over_N():
    # Expanding the integrand in 1/N: E - e = e (3 - 2 e²) / (4 N) + O(1/N²), e = ε/σ.
    e = torch.linspace(-3, 3, 13, dtype=torch.float64)
    N = 10**6
    torch.testing.assert_close(N * (conditional_expectation(e, N) - e), e * (3 - 2 * e.square()) / 4, atol=1e-3, rtol=0)


@pytest.mark.parametrize("N", [2, 3, 8, 64])
def test_the_mean_slope_is_the_expected_dispersion(N):
    # Σ_j A_j ε_j = N D, so E[A ε] = E[D] = sqrt(2/N) Γ(N/2) / Γ((N-1)/2) at σ = 1.
    e = torch.linspace(-9, 9, 361, dtype=torch.float64)
    density = torch.exp(-e.square() / 2) / math.sqrt(2 * math.pi)
    slope = torch.trapezoid(conditional_expectation(e, N) * e * density, e).item()
    assert slope == pytest.approx(math.sqrt(2 / N) * math.gamma(N / 2) / math.gamma((N - 1) / 2), abs=1e-12)


@pytest.mark.parametrize("N", [2, 3, 8])
@pytest.mark.parametrize("function", [conditional_expectation, expected_squared_dispersion])
def test_gradient_equals_finite_differences(function, N):
    epsilon = torch.tensor([-1.3, 0.0, 0.4, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: function(x, N), epsilon)


def test_gradient_holds_also_where_the_integrand_is_cut_early():
    # sqrt(N - 1) ε > 10: the end of the range depends on ε, and the result must not.
    epsilon = torch.tensor([5.0, 12.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: conditional_expectation(x, 8), epsilon)


def test_numbers_lists_and_tensors_of_any_shape_are_taken_and_float64_is_returned():
    matrix = conditional_expectation(torch.ones(2, 3), 8)
    assert matrix.shape == (2, 3) and matrix.dtype == torch.float64
    assert conditional_expectation(1, 8).shape == ()
    assert torch.equal(matrix[0], conditional_expectation([1, 1, 1], 8))
    assert conditional_expectation(torch.empty(0), 8).shape == (0,)


# -- the dispersion


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.5])
def test_expected_squared_dispersion_equals_enumeration(epsilon):
    # Any distribution of mean 0 and variance σ² will do: the other three are ±2, so σ = 2.
    groups = torch.tensor([[epsilon, *others] for others in itertools.product([-2.0, 2.0], repeat=3)])
    enumerated = groups.double().var(dim=1, correction=0).mean().item()
    assert expected_squared_dispersion(epsilon, 4, sigma=2.0).item() == pytest.approx(enumerated, abs=1e-12)


@pytest.mark.parametrize("N", [4, 8, 64])
@pytest.mark.parametrize("epsilon", [0.0, 2.0])
def test_expected_inverse_dispersion_agrees_with_direct_integration(N, epsilon):
    expected = direct(lambda w, s: math.sqrt(N) / max(math.hypot(w, s), 1e-300), epsilon, N)
    assert expected_inverse_dispersion(epsilon, N).item() == pytest.approx(expected, abs=1e-9)


def test_expected_inverse_dispersion_is_infinite_at_two_and_decreases_beyond():
    assert expected_inverse_dispersion([0.0, 1.0], 2).tolist() == [math.inf, math.inf]
    for N in (3, 8, 1024):
        g = expected_inverse_dispersion(torch.linspace(0, 6, 13), N)
        assert (g.diff() < 0).all()
        # 1 / sqrt(x) is convex: E[1/D] >= 1 / sqrt(E[D²])  (Jensen).
        assert (g > expected_squared_dispersion(torch.linspace(0, 6, 13), N).rsqrt()).all()


# -- binary rewards


def test_binary_expectation_by_hand():
    # N = 3, p = 1/4. r = 1 beside k = 0, 1, 2 right ones: A = sqrt(2), sqrt(1/2), 0, with chances 9/16, 6/16, 1/16.
    right = (9 * math.sqrt(2) + 6 * math.sqrt(1 / 2)) / 16
    # r = 0: A = 0, -sqrt(1/2), -sqrt(2).
    wrong = -(6 * math.sqrt(1 / 2) + 1 * math.sqrt(2)) / 16
    assert conditional_expectation_binary([1, 0], 3, 0.25).tolist() == pytest.approx([right, wrong], abs=1e-14)


@pytest.mark.parametrize("N", [2, 5, 8])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_binary_expectation_equals_an_enumeration_of_all_groups(N, reward):
    p = 0.3
    others = list(itertools.product([0.0, 1.0], repeat=N - 1))
    groups = torch.tensor([[reward, *other] for other in others], dtype=torch.float64)
    chance = torch.tensor([math.prod(p if r else 1 - p for r in other) for other in others], dtype=torch.float64)
    expected = (chance * group_advantages(groups)[:, 0]).sum().item()  # GRPO's code: divides by N - 1
    # Eq. 1 adds 1e-8 to the dispersion.
    assert conditional_expectation_binary(reward, N, p, ddof=1).item() == pytest.approx(expected, abs=1e-7)


@quick
@given(N=sizes, p=st.floats(0.0, 1.0))
def test_binary_expectation_is_proportional_to_the_true_advantage(N, p):
    right, wrong = conditional_expectation_binary([1, 0], N, p).tolist()
    assert p * right + (1 - p) * wrong == pytest.approx(0, abs=1e-9)
    assert -math.sqrt(N - 1) - 1e-9 <= wrong <= 0 <= right <= math.sqrt(N - 1) + 1e-9
    # Swapping right and wrong answers turns the sign.
    assert conditional_expectation_binary(0, N, 1 - p).item() == pytest.approx(-right, rel=1e-6, abs=1e-9)


def test_binary_expectation_tends_to_the_standardised_reward():
    p = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    limit = (1 - p) / (p * (1 - p)).sqrt()
    torch.testing.assert_close(conditional_expectation_binary(1, 100_000, p), limit, atol=1e-4, rtol=0)


def test_equal_binary_rewards_count_as_zero():
    # p = 1: all others are right, beside a right answer. p = 0: all are wrong.
    assert conditional_expectation_binary([1, 0], 8, 1.0).tolist() == pytest.approx([0, -math.sqrt(7)])
    assert conditional_expectation_binary([1, 0], 8, 0.0).tolist() == pytest.approx([math.sqrt(7), 0])


def test_binary_expectation_broadcasts_and_has_the_gradient_of_finite_differences():
    p = torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64, requires_grad=True)
    assert conditional_expectation_binary([[1.0], [0.0]], 8, p).shape == (2, 3)
    assert torch.autograd.gradcheck(lambda q: conditional_expectation_binary([[1.0], [0.0]], 8, q), p)


# -- Monte Carlo

POINTS = [-3.0, -1.0, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("N", [2, 3, 8, 64])
@pytest.mark.parametrize("ddof", [0, 1])
def test_monte_carlo_agrees_with_the_exact_curve(N, ddof):
    run = monte_carlo(POINTS, N, draws=40_000, ddof=ddof, seed=1)
    exact = conditional_expectation(POINTS, N, ddof=ddof)
    assert ((run["mean"] - exact).abs() < 4 * run["standard_error"]).all()
    assert (run["standard_error"] < 0.01).all()
    exact = expected_squared_dispersion(POINTS, N)
    assert ((run["squared_dispersion"] - exact).abs() < 4 * run["squared_dispersion_error"]).all()


@pytest.mark.parametrize("N", [2, 8])
def test_monte_carlo_agrees_with_the_binary_sum(N):
    run = monte_carlo([0.0, 1.0], N, draws=40_000, rewards="binary", p=0.3, seed=1)
    exact = conditional_expectation_binary([0.0, 1.0], N, 0.3)
    assert ((run["mean"] - exact).abs() < 4 * run["standard_error"]).all()


@pytest.mark.parametrize("rewards", ["gaussian", "binary"])
def test_leave_one_out_is_without_bias(rewards):
    own = torch.tensor([0.0, 1.0])
    run = monte_carlo(own, 4, draws=40_000, estimator="leave_one_out", rewards=rewards, p=0.3, seed=1)
    expected = own - (0.3 if rewards == "binary" else 0)
    assert ((run["mean"] - expected).abs() < 4 * run["standard_error"]).all()
    # The mean of three others: sd / sqrt(3), over the root of the draws.
    spread = math.sqrt(0.3 * 0.7) if rewards == "binary" else 1.0
    torch.testing.assert_close(
        run["standard_error"], torch.full((2,), spread / math.sqrt(3 * 40_000), dtype=torch.float64), rtol=0.02, atol=0
    )


@pytest.mark.parametrize("rewards", ["gaussian", "binary"])
@pytest.mark.parametrize("estimator", ["local", "leave_one_out"])
def test_monte_carlo_equals_a_slow_loop_over_its_own_draws(estimator, rewards):
    own, N, draws, p = [0.0, 1.0], 4, 200, 0.3
    generator = torch.Generator().manual_seed(5)
    if rewards == "gaussian":
        others_n_C = torch.randn(N - 1, draws, generator=generator)
    else:
        others_n_C = (torch.rand(N - 1, draws, generator=generator) < p).float()
    run = monte_carlo(own, N, draws, estimator, rewards, p=p, ddof=1, seed=5)
    for i, reward in enumerate(own):
        groups = torch.tensor([[reward, *column] for column in others_n_C.T.tolist()], dtype=torch.float64)
        if estimator == "local":
            advantages = group_advantages(groups)[:, 0]
        else:
            advantages = groups[:, 0] - groups[:, 1:].mean(dim=1)
        squared = groups.var(dim=1, correction=0)
        for name, values in {"mean": advantages, "squared_dispersion": squared}.items():
            error = "standard_error" if name == "mean" else "squared_dispersion_error"
            assert run[name][i].item() == pytest.approx(values.mean().item(), abs=1e-5)
            assert run[error][i].item() == pytest.approx(values.std().item() / math.sqrt(draws), rel=1e-4, abs=1e-6)


def test_global_is_local_over_all_rewards_of_the_batch():
    batch = monte_carlo(POINTS, 4, draws=500, estimator="global", groups=8)
    group = monte_carlo(POINTS, 32, draws=500)
    assert all(torch.equal(batch[name], group[name]) for name in batch if name != "draws")


def test_standard_errors_are_those_of_repeated_runs():
    means, errors = [], []
    for seed in range(200):
        run = monte_carlo([0.5], 4, draws=200, seed=seed)
        means.append(run["mean"])
        errors.append(run["standard_error"])
    # The sd of 200 means is known to 5 %.
    assert torch.stack(means).std().item() == pytest.approx(torch.stack(errors).mean().item(), rel=0.15)


def test_chunks_are_bounded_and_add_up(monkeypatch):
    drawn = []
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, **options: (drawn.append(size), randn(*size, **options))[1])
    monte_carlo(POINTS, 3, draws=20_000)
    monte_carlo(POINTS, 1025, draws=1000)
    assert sum(C for n, C in drawn if n == 2) == 20_000 and sum(C for n, C in drawn if n == 1024) == 1000
    assert all(C <= bias.CHUNK_DRAWS and n * C <= bias.CHUNK_NUMBERS for n, C in drawn)
    assert len(drawn) > 5


def test_a_seed_fixes_the_draws_and_leaves_the_global_stream_alone():
    before = torch.get_rng_state()
    first, again, other = (monte_carlo([1.0], 8, draws=100, seed=seed)["mean"] for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("sigma", [1e-30, 0.1, 1e30])
def test_monte_carlo_scales_with_sigma(sigma):
    plain = monte_carlo([-1.0, 2.0], 8, draws=100)
    scaled = monte_carlo([-sigma, 2 * sigma], 8, draws=100, sigma=sigma)
    torch.testing.assert_close(scaled["mean"], plain["mean"])
    torch.testing.assert_close(scaled["squared_dispersion"], sigma**2 * plain["squared_dispersion"])


def test_equal_groups_give_exactly_zero_in_monte_carlo():
    run = monte_carlo([1.0], 8, draws=100, rewards="binary", p=1.0)
    assert run["mean"].item() == run["standard_error"].item() == 0
    assert run["squared_dispersion"].item() == pytest.approx(0, abs=1e-30)


# -- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conditional_expectation(1.0, 1), "group_size=1 must be a whole number, 2 or more"),
        (lambda: conditional_expectation(1.0, 2.5), "group_size=2.5"),
        (lambda: conditional_expectation(math.nan, 8), "epsilon, the reward held fixed, is NaN or infinite"),
        (lambda: conditional_expectation(2e6, 8), "epsilon lies more than 1e.06 standard deviations"),
        (lambda: expected_inverse_dispersion([0.0, -1.0], 8, sigma=1e-7), "epsilon lies more than"),
        (lambda: monte_carlo([2e6], 8, draws=10), "rewards_E lies more than"),
        (lambda: conditional_expectation(1.0, 8, sigma=0.0), "sigma=0.0 must be positive"),
        (lambda: conditional_expectation(1.0, 8, sigma=math.inf), "sigma=inf"),
        (lambda: conditional_expectation(1.0, 8, ddof=2), "ddof=2 is unknown; choose one of 0, 1"),
        (lambda: expected_inverse_dispersion(1.0, 1), "group_size=1"),
        (lambda: expected_squared_dispersion(1.0, 8, sigma=-1.0), "sigma=-1.0"),
        (lambda: conditional_expectation_binary(0.5, 8, 0.5), "reward must hold 0 or 1"),
        (lambda: conditional_expectation_binary(1, 8, 1.5), r"p must lie in \[0, 1\]"),
        (lambda: conditional_expectation_binary(1, 8, math.nan), "p must lie"),
        (lambda: conditional_expectation_binary(1, 1, 0.5), "group_size=1"),
        (lambda: monte_carlo([1.0], 8, draws=1), "draws=1 must be a whole number, 2 or more"),
        (lambda: monte_carlo([1.0], 8, draws=1e6), "draws=1000000.0"),
        (lambda: monte_carlo([1.0], 8, draws=10, groups=2), "groups=2 under 'local'"),
        (lambda: monte_carlo([1.0], 8, draws=10, groups=0, estimator="global"), "groups=0"),
        (lambda: monte_carlo([1.0], 8, draws=10, estimator="rloo"), "estimator='rloo' is unknown"),
        (lambda: monte_carlo([1.0], 8, draws=10, rewards="uniform"), "rewards='uniform' is unknown"),
        (lambda: monte_carlo([[1.0]], 8, draws=10), r"rewards_E has shape \(1, 1\)"),
        (lambda: monte_carlo([0.5], 8, draws=10, rewards="binary"), "rewards_E must hold 0 or 1"),
        (lambda: monte_carlo([1.0], 8, draws=10, rewards="binary", p=-0.1), "p=-0.1"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_at_the_largest_epsilon_the_curve_is_at_its_bound():
    for N in (2, 8, 1000):
        assert conditional_expectation(1e6, N).item() == pytest.approx(math.sqrt(N - 1), rel=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_binary_expectation_takes_a_number_beside_a_tensor_on_a_gpu():
    expected = conditional_expectation_binary([1.0, 0.0], 4, 0.25)
    rewards = torch.tensor([1.0, 0.0], device="cuda")
    for p in (0.25, torch.tensor(0.25), torch.tensor(0.25, device="cuda")):
        torch.testing.assert_close(conditional_expectation_binary(rewards, 4, p).cpu(), expected)
    found = conditional_expectation_binary(1, 4, torch.tensor(0.25, device="cuda"))
    torch.testing.assert_close(found.cpu(), expected[0])
