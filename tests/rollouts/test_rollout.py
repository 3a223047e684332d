"""Sampling: which token a number draws, and that a sample depends on its own key alone."""

import math

import pytest
import torch

from agpo_core.config import ConfigError
from agpo_core.horizon import uniforms
from agpo_core.rollouts import rollout
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.rollouts.rollout import Rollouts, TransformersEngine, sample_token, score
from agpo_core.tasks import Graded, Problem

families = pytest.mark.parametrize("family", ["qwen2", "llama", "gemma2"])


def draw(logits, tau, top_p, u):
    """Draw from one distribution at many numbers."""
    u_B = torch.as_tensor(u, dtype=torch.float64)
    logits_B_V = torch.as_tensor(logits).expand(len(u_B), -1)
    return sample_token(logits_B_V, torch.full((len(u_B),), tau), top_p, u_B)


def log(*weights):
    return torch.tensor(weights, dtype=torch.float64).log()


# -- one token


def test_a_token_is_drawn_by_its_place_in_the_cumulative_distribution():
    # Weights 1/4, 1/2, 1/4: cumulative 1/4, 3/4, 1.
    ids, logps = draw(log(1, 2, 1), 1.0, 1.0, [0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53])
    assert ids.tolist() == [0, 0, 1, 1, 2, 2]
    expected = torch.tensor([0.25, 0.25, 0.5, 0.5, 0.25, 0.25]).log()
    torch.testing.assert_close(logps, expected)


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [  # masses 1/2, 1/4, 1/8, 1/8: reached after 1, 2, 3, 4 tokens: .5, .75, .875, 1
        (0.01, [0]),
        (0.5, [0]),
        (0.5001, [0, 2]),
        (0.75, [0, 2]),
        (0.8, [0, 1, 2]),  # of the two tokens at 1/8 the first
        (0.875, [0, 1, 2]),
        (0.9, [0, 1, 2, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_the_nucleus_keeps_the_fewest_tokens_that_reach_p(top_p, kept):
    weights = torch.tensor([4.0, 1.0, 2.0, 1.0])
    ids, logps = draw(weights.log(), 1.0, top_p, torch.linspace(0, 1 - 1e-9, 200))
    assert sorted(set(ids.tolist())) == kept
    # What is kept is renormalised.
    torch.testing.assert_close(logps, (weights[ids] / weights[kept].sum()).log())


def test_temperature_scales_the_logits_before_the_nucleus_is_taken():
    # Weights 3, 1. At tau = 1/2 their squares: 9 / 10 reaches p = .9; at tau = 1, 3 / 4 does not.
    u = torch.linspace(0, 1 - 1e-9, 100)
    assert set(draw(log(3, 1), 0.5, 0.89, u)[0].tolist()) == {0}
    assert set(draw(log(3, 1), 1.0, 0.89, u)[0].tolist()) == {0, 1}
    ids, logps = draw(log(3, 1), 0.5, 1.0, [0.89, 0.91])
    assert ids.tolist() == [0, 1]
    torch.testing.assert_close(logps, torch.tensor([0.9, 0.1]).log())


def test_without_a_nucleus_the_frequencies_are_the_softmax():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, dtype=torch.float64, generator=generator)
    n, tau = 50_000, 0.7
    u = torch.rand(n, dtype=torch.float64, generator=generator)
    ids, logps = draw(logits, tau, 1.0, u)
    expected = (logits / tau).softmax(-1)
    counts = ids.bincount(minlength=8)
    chi_square = ((counts - n * expected).square() / (n * expected)).sum().item()
    assert chi_square < 24.3  # 7 degrees, p = .001
    torch.testing.assert_close(logps.double(), expected.log()[ids], rtol=1e-5, atol=1e-6)


def test_temperature_zero_takes_the_likeliest_token_whatever_the_number():
    ids, logps = draw(log(1, 3, 2), 0.0, 0.95, [0.0, 0.5, 0.999])
    assert ids.tolist() == [1, 1, 1]
    assert logps.tolist() == [0, 0, 0]  # drawn with certainty


def test_rows_have_temperatures_of_their_own():
    logits_B_V = log(1, 1, 2).expand(3, -1)
    u_B = torch.full((3,), 0.1, dtype=torch.float64)
    ids, logps = sample_token(logits_B_V, torch.tensor([0.0, 1.0, 0.5]), 1.0, u_B)
    assert ids.tolist() == [2, 0, 0]  # greedy; below 1/4; below 1/6
    torch.testing.assert_close(logps.exp(), torch.tensor([1, 1 / 4, 1 / 6]))


def test_a_token_without_mass_is_never_drawn():
    minus = -math.inf
    logits = torch.tensor([minus, 0.0, minus, 0.0, minus])
    ids, logps = draw(logits, 1.0, 1.0, [0.0, 0.4999, 0.5, 1 - 2**-53])
    assert ids.tolist() == [1, 1, 3, 3]
    assert logps.isfinite().all()


def test_rounding_at_the_upper_end_stays_within_the_nucleus():
    generator = torch.Generator().manual_seed(0)
    logits_B_V = 3 * torch.randn(500, 40, generator=generator)
    u_B = torch.full((500,), 1 - 2**-53, dtype=torch.float64)
    ids, logps = sample_token(logits_B_V, torch.ones(500), 0.6, u_B)
    assert logps.isfinite().all()
    assert (logits_B_V.softmax(-1).gather(1, ids[:, None]) > 0).all()


# -- completions

PROBLEMS = [Problem("toy", str(i), prompt, "") for i, prompt in enumerate(["AB", "CDEFGH", "J", "KLM", "NO"])]


@pytest.fixture(scope="module")
def make_engine(config):
    """An engine on a small random model: make_engine(top_p=1.0)."""

    def make(family="qwen2", **params):
        c = config(family=family, **params)
        model, tokenizer = load_policy(c)
        return TransformersEngine(model, tokenizer, c)

    return make


def sample(engine, problems=PROBLEMS, slots=None, group=3, tau=1.0, phase="train", update=0, **key):
    prompts = engine.encode(problems, slots or list(range(len(problems))))
    tau_P = torch.full((len(problems),), tau)
    return engine.sample(prompts, engine.open(prompts), group, tau_P, phase, update, **key)


def ids_of(rollouts):
    """Sampled tokens as lists, without padding."""
    rows = zip(rollouts.completion_ids_B_T, rollouts.mask_B_T, strict=True)
    return [ids[mask].tolist() for ids, mask in rows]


@families
def test_sampling_equals_a_loop_over_single_rows_without_a_cache(make_engine, family):
    engine = make_engine(family, top_p=0.9)
    found = sample(engine, tau=1.2, update=3)
    lengths = found.mask_B_T.sum(dim=1)
    assert 1 < len(lengths.unique())  # rows end at different times
    for p, problem in enumerate(PROBLEMS):
        for g in range(3):
            ids, logps = engine.tokenizer(problem.prompt)["input_ids"], []
            prompt = len(ids)
            for t in range(6):
                with torch.no_grad():
                    logits = engine.model(torch.tensor([ids]), use_cache=False).logits[:, -1]
                u = uniforms(42, "train", 3, torch.tensor([p]), torch.tensor([g]), t)
                token, logp = sample_token(logits, torch.tensor([1.2]), 0.9, u)
                ids.append(token.item())
                logps.append(logp)
                if token == engine.tokenizer.eos_token_id:
                    break
            row = 3 * p + g
            assert ids_of(found)[row] == ids[prompt:]
            torch.testing.assert_close(
                found.sampler_logps_B_T[row, : len(logps)], torch.cat(logps), rtol=1e-5, atol=2e-5
            )


@pytest.mark.parametrize("rollout_batch", [1, 4, 7, 1000])
def test_samples_do_not_change_with_the_decoding_batch(make_engine, rollout_batch):
    expected = sample(make_engine())
    found = sample(make_engine(rollout_batch=rollout_batch))
    assert ids_of(found) == ids_of(expected)
    torch.testing.assert_close(found.sampler_logps_B_T, expected.sampler_logps_B_T)


@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("rollout_batch", [1, 6, 7])
def test_no_forward_of_the_sampler_is_larger_than_the_rollout_batch(make_engine, monkeypatch, group, rollout_batch):
    engine, seen = make_engine(rollout_batch=rollout_batch), []
    engine.model.register_forward_pre_hook(lambda m, args, kw: seen.append(len(kw["input_ids"])), with_kwargs=True)
    prompts = engine.encode(PROBLEMS, list(range(5)))
    decoded, decode = [], engine._decode
    monkeypatch.setattr(engine, "_decode", lambda *a: decoded.append(len(a[3])) or decode(*a))
    found = engine.sample(prompts, engine.open(prompts), group, torch.ones(5), "probe", 0)
    assert max(seen) <= rollout_batch and sum(decoded) == len(found.texts) == 5 * group
    assert len(decoded) <= -(-5 * group // rollout_batch)  # no more parts than needed


def test_samples_do_not_change_with_the_prompts_beside_them(make_engine):
    engine = make_engine()
    together = ids_of(sample(engine))
    for slot, problem in enumerate(PROBLEMS):
        assert ids_of(sample(engine, [problem], [slot])) == together[3 * slot : 3 * slot + 3]
    backwards = ids_of(sample(engine, PROBLEMS[::-1], [4, 3, 2, 1, 0]))
    assert sum((backwards[3 * p : 3 * p + 3] for p in (4, 3, 2, 1, 0)), []) == together


def test_samples_do_not_change_with_a_probe_before_them(make_engine):
    engine = make_engine()
    expected = ids_of(sample(engine))
    prompts = engine.encode(PROBLEMS, list(range(5)))
    prefixes, tau_P = engine.open(prompts), torch.ones(5)
    probe = engine.sample(prompts, prefixes, 2, tau_P, "probe", 0)
    train = engine.sample(prompts, prefixes, 3, tau_P, "train", 0)
    assert ids_of(train) == expected
    assert ids_of(probe) != [row for i, row in enumerate(expected) if i % 3 < 2]


def test_a_larger_group_begins_with_the_smaller_one_and_can_be_continued(make_engine):
    engine = make_engine()
    six, three = (ids_of(sample(engine, group=group)) for group in (6, 3))
    rest = ids_of(sample(engine, group=3, first_sample=3))
    for p in range(5):
        assert six[6 * p : 6 * p + 6] == three[3 * p : 3 * p + 3] + rest[3 * p : 3 * p + 3]


def test_samples_change_with_seed_update_and_temperature(make_engine):
    base = ids_of(sample(make_engine()))
    assert ids_of(sample(make_engine(seed=43))) != base
    assert ids_of(sample(make_engine(), update=1)) != base
    assert ids_of(sample(make_engine(), tau=1.5)) != base


def test_samples_do_not_change_under_activation_checkpointing(make_engine):
    plain = sample(make_engine())
    checkpointed = sample(make_engine(activation_checkpointing=True, shared_prompt=False))
    assert ids_of(checkpointed) == ids_of(plain)
    torch.testing.assert_close(checkpointed.sampler_logps_B_T, plain.sampler_logps_B_T)


def test_greedy_completions_take_the_likeliest_token_at_each_place(make_engine):
    engine = make_engine()
    found = sample(engine, group=1, tau=0.0, phase="evaluation")
    with torch.no_grad():
        likeliest = completion_logits(engine.model, found).argmax(dim=-1)
    assert found.completion_ids_B_T[found.mask_B_T].equal(likeliest[found.mask_B_T])
    assert ids_of(sample(engine, group=1, tau=0.0, phase="train", update=5)) == ids_of(found)


@families
@pytest.mark.parametrize("tau", [1.0, 0.6])
def test_without_a_nucleus_the_sampler_reports_the_policys_log_probabilities(make_engine, family, tau):
    engine = make_engine(family, top_p=1.0)
    found = sample(engine, tau=tau)
    with torch.no_grad():
        logits = completion_logits(engine.model, found)
    expected = token_logps(logits, found.completion_ids_B_T, tau)
    mask = found.mask_B_T
    torch.testing.assert_close(found.sampler_logps_B_T[mask], expected[mask], rtol=1e-5, atol=5e-5)
    assert (found.sampler_logps_B_T[~mask] == 0).all()


# -- where a completion ends


def always(monkeypatch, *tokens):
    """Let the sampler draw these tokens, the same for every row, one after another."""
    left = list(tokens)

    def scripted(logits_B_V, tau_B, top_p, u_B):
        token = left.pop(0)
        return torch.full((len(u_B),), token), torch.full((len(u_B),), -1.0)

    monkeypatch.setattr(rollout, "sample_token", scripted)


def test_end_of_sequence_is_a_sampled_token_and_no_part_of_the_text(make_engine, monkeypatch):
    engine = make_engine()
    a, b = engine.tokenizer("ab")["input_ids"]
    always(monkeypatch, a, b, engine.tokenizer.eos_token_id)
    found = sample(engine, PROBLEMS[:1], group=2)
    assert found.texts == ["ab", "ab"]
    assert found.mask_B_T.tolist() == [[True] * 3] * 2
    assert found.tokens == 6
    assert not found.truncated_B.any()


def test_a_completion_without_end_of_sequence_is_truncated(make_engine, monkeypatch):
    engine = make_engine(max_completion_tokens=2)
    a, b = engine.tokenizer("ab")["input_ids"]
    always(monkeypatch, a, b)
    found = sample(engine, PROBLEMS[:1], group=2)
    assert found.texts == ["ab", "ab"]
    assert found.truncated_B.all()


def test_an_end_at_the_last_token_is_no_truncation(make_engine, monkeypatch):
    engine = make_engine(max_completion_tokens=2)
    always(monkeypatch, 20, engine.tokenizer.eos_token_id)
    assert not sample(engine, PROBLEMS[:1], group=2).truncated_B.any()


def test_truncation_and_masks_agree_row_by_row(make_engine):
    found = sample(make_engine(), group=8)
    rows, eos = ids_of(found), 1
    assert 2 <= len({len(row) for row in rows})
    assert 0 < found.truncated_B.float().mean() < 1
    for row, truncated in zip(rows, found.truncated_B.tolist(), strict=True):
        assert eos not in row[:-1]
        assert truncated is (row[-1] != eos)
    prefixes = found.mask_B_T.long().cumprod(dim=1).bool()
    assert found.mask_B_T.equal(prefixes)  # no gaps


def test_an_empty_completion_is_an_empty_text_with_one_token(make_engine, monkeypatch, toy):
    engine = make_engine()
    always(monkeypatch, engine.tokenizer.eos_token_id)
    found = sample(engine, PROBLEMS[:2], group=2)
    score(found, {"toy": toy})
    assert found.texts == [""] * 4
    assert found.mask_B_T.tolist() == [[True]] * 4
    assert found.rewards_B.tolist() == [0.0] * 4
    assert found.answers == [None] * 4


def test_end_of_sequence_counts_where_it_pads_too(make_engine, monkeypatch):
    engine = make_engine()
    engine.tokenizer.pad_token = engine.tokenizer.eos_token
    found = sample(engine, group=8)
    other = sample(make_engine(), group=8)
    assert ids_of(found) == ids_of(other)
    assert found.tokens == other.tokens


def test_any_end_that_the_model_names_ends_a_completion(make_engine):
    engine = make_engine()
    ends = [engine.tokenizer.eos_token_id, 20, 21]
    engine.model.generation_config.eos_token_id = ends
    engine = TransformersEngine(engine.model, engine.tokenizer, engine.config)
    assert engine.stop_ids.tolist() == sorted(ends)
    assert all(token not in ends for row in ids_of(sample(engine, group=8)) for token in row[:-1])


def test_a_model_without_end_of_sequence_is_refused(make_engine):
    engine = make_engine()
    engine.model.generation_config.eos_token_id = None
    engine.tokenizer.eos_token = None
    with pytest.raises(ConfigError, match="has no end-of-sequence token"):
        TransformersEngine(engine.model, engine.tokenizer, engine.config)


# -- prompts


def test_prompts_are_padded_on_the_left(make_engine):
    prompts = make_engine().encode(PROBLEMS[:2], [4, 7])
    assert prompts.prompt_mask_P_S.tolist() == [[0, 0, 0, 0, 1, 1], [1] * 6]
    assert prompts.slots_P.tolist() == [4, 7]


def test_a_selection_of_prompts_drops_columns_of_padding(make_engine):
    part = make_engine().encode(PROBLEMS, [5, 6, 7, 8, 9]).select(torch.tensor([3, 0]))
    assert [problem.prompt for problem in part.problems] == ["KLM", "AB"]
    assert part.slots_P.tolist() == [8, 5]
    assert part.prompt_mask_P_S.tolist() == [[1, 1, 1], [0, 1, 1]]


def test_a_chat_model_sees_a_user_message(make_engine):
    engine = make_engine()
    engine.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'][0] + m['content'] }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    prompts = engine.encode(PROBLEMS[:1], [0])
    assert engine.tokenizer.decode(prompts.prompt_ids_P_S[0]) == "uAB>"


def test_a_prompt_that_is_too_long_raises_and_names_the_remedy(make_engine):
    engine = make_engine(max_sequence_tokens=12, max_completion_tokens=6)
    engine.encode([Problem("toy", "0", "A" * 6, "")], [0])  # 6 + 6 = 12
    with pytest.raises(ConfigError, match="7 tokens, more than .* = 6: raise max_sequence_tokens"):
        engine.encode([Problem("toy", "0", "A" * 7, "")], [0])


# -- grading


class Judge:
    """Gives every completion the same reward."""

    def __init__(self, reward):
        self.reward = reward

    def grade(self, problem, completion):
        return Graded(self.reward, completion)


@pytest.mark.parametrize("setting", ["zero", "raise"])
def test_a_reward_that_is_no_number_counts_as_zero_or_raises(make_engine, setting, monkeypatch):
    engine = make_engine()
    always(monkeypatch, *engine.tokenizer("xy")["input_ids"], engine.tokenizer.eos_token_id)
    found = sample(engine, PROBLEMS[:1], group=2)
    if setting == "raise":
        with pytest.raises(ValueError, match=r"task 'toy' gave the reward nan.*problem '0', completion 'xy'"):
            score(found, {"toy": Judge(math.nan)}, setting)
    else:
        score(found, {"toy": Judge(math.nan)})
        assert found.rewards_B.tolist() == [0.0, 0.0] and found.answers == [None, None] and len(found.failures) == 2


def test_each_completion_is_graded_by_the_task_of_its_problem(make_engine):
    mixed = [Problem("one", "0", "AB", ""), Problem("half", "1", "C", "")]
    found = sample(make_engine(), mixed, group=2)
    score(found, {"one": Judge(1.0), "half": Judge(0.5)})
    assert found.rewards_B.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert found.grouped(found.answers) == [found.texts[:2], found.texts[2:]]


# -- replacing groups


def test_a_replaced_group_is_graded_as_drawn_and_its_old_tokens_stay_counted(make_engine, toy):
    engine = make_engine()
    whole, tasks = sample(engine), {"toy": toy}
    score(whole, tasks)
    before, texts, tokens = ids_of(whole), list(whole.texts), whole.tokens
    again = torch.tensor([3, 1])
    problems = [PROBLEMS[i] for i in (3, 1)]
    fresh = sample(engine, problems, [3, 1], first_sample=3)
    score(fresh, tasks)
    whole.replace(again, fresh)

    drawn = ids_of(fresh)
    expected = [*before[:3], *drawn[3:], *before[6:9], *drawn[:3], *before[12:]]
    assert ids_of(whole) == expected
    assert whole.texts == [*texts[:3], *fresh.texts[3:], *texts[6:9], *fresh.texts[:3], *texts[12:]]
    assert whole.tokens == tokens + fresh.tokens
    kept = sum(map(len, expected))
    assert whole.discarded_tokens == tokens + fresh.tokens - kept
    score_again = Rollouts(**{**vars(whole), "rewards_B": None, "answers": None})
    score(score_again, tasks)
    assert whole.rewards_B.equal(score_again.rewards_B)
    assert whole.answers == score_again.answers


def test_a_longer_group_widens_the_batch(make_engine, toy):
    short, long = make_engine(max_completion_tokens=2), make_engine()
    whole, fresh = sample(short), sample(long, PROBLEMS[2:3], [2])
    for part in (whole, fresh):
        score(part, {"toy": toy})
    before = ids_of(whole)
    whole.replace(torch.tensor([2]), fresh)
    assert ids_of(whole) == [*before[:6], *ids_of(fresh), *before[9:]]
    assert whole.mask_B_T.shape == whole.sampler_logps_B_T.shape == fresh.mask_B_T.shape[:0] + (15, 6)
