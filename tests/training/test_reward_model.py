"""Reward models: their training against our loss, their scores, and a run whose estimators see those scores."""

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from agpo_core import losses, model_files, provenance
from agpo_core.advantages import group_advantages
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.experiments import grid, profiles
from agpo_core.models import reward_start
from agpo_core.models.reward_start import judged_pairs, reward_model_on
from agpo_core.recipes import resolve
from agpo_core.rollouts import policy
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import Prompts, Rollouts
from agpo_core.tasks.preferences import gold_reward
from agpo_core.training import baselines, reward_model
from agpo_core.training import run as run_module
from agpo_core.training.offline import train_dpo
from agpo_core.training.reward_model import RewardModel, load_reward_model
from agpo_core.training.run import Run
from agpo_core.training.train import train
from agpo_core.training.update import Sampler
from tests.conftest import Toy, random_model

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")

TIMES = {"seconds", "seconds_left"}


@pytest.fixture(scope="module")
def learned():
    """An untrained reward model on a random policy's body, and the tokenizer."""
    model, tokenizer = random_model("qwen2")
    scorer = reward_model_on(model, seed=0)
    scorer.config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad():
        scorer.score.weight *= 10.0  # scores of about ±1
    return scorer.eval(), tokenizer


@pytest.fixture(scope="module")
def folder(learned, tmp_path_factory):
    """The same, saved."""
    path = tmp_path_factory.mktemp("models") / "reward"
    policy.save_policy(*learned, path)
    return str(path)


def rollouts_of(tokenizer, prompts, texts, ends=None):
    """Rollouts of given texts; where `ends` is true, a text ends with the end-of-sequence token."""
    problems = [Toy().problems("train")[i] for i in range(len(prompts))]
    encoded = tokenizer(prompts, return_tensors="pt", padding=True)
    ends = [True] * len(texts) if ends is None else ends
    rows = [tokenizer(t)["input_ids"] + [tokenizer.eos_token_id] * end for t, end in zip(texts, ends, strict=True)]
    T = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (T - len(row)) for row in rows])
    mask = torch.tensor([[t < len(row) for t in range(T)] for row in rows])
    slots = torch.arange(len(prompts))
    return Rollouts(
        Prompts(problems, slots, encoded["input_ids"], encoded["attention_mask"]),
        ids,
        mask,
        torch.zeros(ids.shape),
        torch.ones(len(rows)),
        torch.tensor([not end for end in ends]),
        list(texts),
    )


def alone(model, tokenizer, prompt, text, end=True):
    """The score of one sequence, without padding, mask or batch: the slow way."""
    ids = tokenizer(prompt + text)["input_ids"] + [tokenizer.eos_token_id] * end
    with torch.no_grad():
        hidden = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        return (model.score.weight[0] @ hidden).item()


# -- training it


def test_the_trainer_s_loss_is_ours_on_the_same_batch(learned):
    model, tokenizer = learned
    pairs = [("ab:", "c", "dddd"), ("efgh:", "hgf", "e"), ("i:", "ij", "ji"), ("cab:", "abc", "")]
    chosen = torch.tensor([alone(model, tokenizer, p, c) for p, c, _ in pairs])
    rejected = torch.tensor([alone(model, tokenizer, p, r) for p, _, r in pairs])
    expected = losses.bradley_terry_loss(chosen, rejected).mean().item()
    copy = reward_model_on(random_model("qwen2")[0], seed=0)
    copy.load_state_dict(model.state_dict())
    (step,) = baselines.reward_model(copy, tokenizer, pairs, batch_size=4, learning_rate=1.0e-3)
    assert step["loss"] == pytest.approx(expected, abs=1e-5)
    assert abs(expected - math.log(2)) > 0.05  # of no use if all scores were equal
    assert step["accuracy"] == pytest.approx((chosen > rejected).double().mean().item())
    assert step["margin"] == pytest.approx((chosen - rejected).mean().item(), abs=1e-5)
    assert any(not weight.equal(model.state_dict()[name]) for name, weight in copy.state_dict().items())


def test_it_learns_what_is_preferred():
    model, tokenizer = random_model("qwen2")
    scorer = reward_model_on(model, seed=1)
    rng = Random(0)
    strings = ["".join(rng.choices("ab", k=rng.randint(1, 4))) for _ in range(400)]
    pairs = [("c:", *sorted(two, key=lambda s: -s.count("a"))) for two in zip(strings[::2], strings[1::2], strict=True)]
    pairs = [pair for pair in pairs if pair[1].count("a") > pair[2].count("a")]
    log = baselines.reward_model(scorer, tokenizer, pairs, batch_size=16, learning_rate=3.0e-3, epochs=3, seed=1)
    assert len(log) == 3 * math.ceil(len(pairs) / 16)
    many, few = RewardModel(scorer).score(rollouts_of(tokenizer, ["c:"], ["aaa", "bbb"])).tolist()
    assert many > few + 1


@pytest.mark.parametrize("what", ["pairs", "labels", "end"])
def test_what_it_cannot_be_trained_on_is_refused(what):
    model, tokenizer = random_model("qwen2")
    scorer, pairs = reward_model_on(model, seed=0), [("a:", "b", "c")]
    if what == "pairs":
        pairs = []
    elif what == "labels":
        scorer.config.num_labels = 2
    else:
        tokenizer.pad_token = tokenizer.eos_token
    message = {"pairs": "pairs is empty", "labels": "2 labels", "end": "eos token that is not its pad"}[what]
    with pytest.raises(ValueError, match=message):
        baselines.reward_model(scorer, tokenizer, pairs, batch_size=1, learning_rate=1.0e-3)


def test_a_reward_model_starts_from_the_policy_s_body():
    model, _ = random_model("qwen2")
    first, again, other = (reward_model_on(model, seed) for seed in (0, 0, 1))
    for name, weight in model.base_model.state_dict().items():
        assert first.base_model.state_dict()[name].equal(weight)
    assert first.score.weight.shape == (1, 64)
    assert first.score.weight.equal(again.score.weight)
    assert not first.score.weight.equal(other.score.weight)


# -- its scores

PROMPTS = ["cab:", "hgfedcba:"]
TEXTS = ["abc", "", "cccccccc", "ab", "hg", "a", "hgfe", "hg"]
ENDS = [True, True, False, True, True, True, True, False]


def test_scores_are_those_of_each_sequence_alone_whatever_the_padding(learned):
    model, tokenizer = learned
    rollouts = rollouts_of(tokenizer, PROMPTS, TEXTS, ENDS)
    expected = [
        alone(model, tokenizer, PROMPTS[i // 4], text, end)
        for i, (text, end) in enumerate(zip(TEXTS, ENDS, strict=True))
    ]
    for batch in (1, 3, 512):
        found = RewardModel(model, batch=batch).score(rollouts)
        assert found.dtype == torch.float32
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert expected[4] != pytest.approx(expected[7], abs=1e-3)  # the same text, without its end: another score
    wider = rollouts_of(tokenizer, ["aaaaaaaaaaaaaaaa:", *PROMPTS], ["a" * 12, *["b"] * 3, *TEXTS], [True] * 4 + ENDS)
    assert RewardModel(model).score(wider)[4:].tolist() == pytest.approx(expected, abs=1e-5)


def test_equal_completions_have_equal_scores_to_the_bit(learned):
    model, tokenizer = learned
    texts = ["abcab", "ab", "abcab", "ab"] * 2
    for batch in (1, 2, 3, 8):
        scores = RewardModel(model, batch=batch).score(rollouts_of(tokenizer, PROMPTS, texts)).view(2, 4)
        assert scores[:, 0].equal(scores[:, 2])
        assert scores[:, 1].equal(scores[:, 3])
    same = RewardModel(model).score(rollouts_of(tokenizer, PROMPTS, ["ab"] * 8)).view(2, 4)
    assert group_advantages(same).eq(0).all()


def test_what_a_tool_answered_is_scored_with_what_was_sampled(learned):
    model, tokenizer = learned
    rollouts = rollouts_of(tokenizer, ["cab:"], ["abc", "ab"])
    hidden = rollouts.mask_B_T.clone()
    hidden[:, 1] = False  # token 1 was not sampled, but is present
    partial = replace(rollouts, mask_B_T=hidden, present_B_T=rollouts.mask_B_T)
    assert RewardModel(model).score(partial).equal(RewardModel(model).score(rollouts))


def test_a_score_that_is_not_finite_names_the_completion(learned):
    model, tokenizer = random_model("qwen2")
    scorer = reward_model_on(model, seed=0)
    scorer.config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad():
        scorer.score.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"judge scores nan for completion 'abc' of problem 'train-0'"):
        RewardModel(scorer, "judge").score(rollouts_of(tokenizer, ["cab:"], ["abc", "ab"]))


# -- loading it


def test_a_saved_model_gives_the_same_scores(learned, folder, config):
    model, tokenizer = learned
    loaded = load_reward_model(config(reward="model", reward_model=folder), tokenizer)
    rollouts = rollouts_of(tokenizer, PROMPTS, TEXTS, ENDS)
    assert loaded.score(rollouts).equal(RewardModel(model).score(rollouts))
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert load_reward_model(config(), tokenizer) is None


def test_a_start_brings_its_own_reward_model(learned, folder, config, tmp_path):
    model, tokenizer = learned
    policy.save_policy(*random_model("qwen2"), tmp_path / "start")
    policy.save_policy(model, tokenizer, tmp_path / "start" / "reward")
    start = {"reward": "model", "model": str(tmp_path / "start")}
    rollouts = rollouts_of(tokenizer, PROMPTS, TEXTS, ENDS)
    for name in ("reward", folder):  # in the start's folder; elsewhere
        loaded = load_reward_model(config(**start, reward_model=name), tokenizer)
        assert loaded.score(rollouts).equal(RewardModel(model).score(rollouts))
    assert load_policy(config(**start, reward_model="reward"))[0].config.architectures == ["Qwen2ForCausalLM"]
    with pytest.raises(ConfigError, match="'not/a/folder' could not be loaded: give a folder in that of model"):
        load_reward_model(config(**start, reward_model="not/a/folder"), tokenizer)  # nor an id: no hub is asked


def test_what_is_no_reward_model_is_refused_with_the_remedy(config, learned, folder, model_folders, tmp_path):
    _, tokenizer = learned

    def load(name):
        load_reward_model(config(reward="model", reward_model=str(name)), tokenizer)

    with pytest.raises(ConfigError, match=r"(?s)could not be loaded: give a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"is no reward model: .*score\.weight.*Train it on preferences"):
        load(model_folders["qwen2"])  # a policy
    with pytest.raises(ConfigError, match="2 label"):
        two = reward_model_on(random_model("qwen2")[0], seed=0).config.to_dict() | {"num_labels": 2}
        from transformers import AutoConfig, AutoModelForSequenceClassification

        wide = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(**two))
        policy.save_policy(wide, tokenizer, tmp_path / "two")
        load(tmp_path / "two")
    other = random_model("qwen2")[1]
    other.add_tokens(["<tool>"])
    with pytest.raises(ConfigError, match="has other token ids"):
        load_reward_model(config(reward="model", reward_model=folder), other)


def test_reward_and_reward_model_go_together():
    TrainConfig(reward="model", reward_model="folder")
    for params in ({"reward": "model"}, {"reward_model": "folder"}):
        with pytest.raises(ConfigError, match="reward model needs a reward_model"):
            TrainConfig(**params)
    settings = {"reward": "model", "reward_model": "folder"}
    assert TrainConfig(**settings).hash() != TrainConfig().hash()
    assert TrainConfig(**settings).hash() != TrainConfig(**{**settings, "reward_model": "other"}).hash()


# -- the four arms: normaliser x placement of the KL

LOSS, REWARD = {"kl_estimator": "k3", "kl_placement": "loss"}, {"kl_estimator": "k1", "kl_placement": "reward"}


@pytest.mark.parametrize("method", ["grpo", "reinforce_pp_k", "reinforce_pp_baseline"])
@pytest.mark.parametrize("placement", [LOSS, REWARD], ids=["loss", "reward"])
def test_the_placement_of_the_kl_does_not_change_the_normaliser(method, placement):
    c = resolve(method, **placement)
    assert (c.kl_estimator, c.kl_placement) == tuple(placement.values())
    assert c.advantage == resolve(method).advantage


def test_the_recorded_grid_crosses_normaliser_and_placement_and_nothing_else():
    params = profiles.settings("rpp_table1_general_rlhf", "tiny")
    jobs = [job for job in grid.plan("rpp_table1_general_rlhf", params) if job.seed == params["seeds"][0]]
    (single,) = [job.config for job in jobs if job.arm.name == "reinforce_pp"]  # k = 1 stands beside the four
    jobs = [job for job in jobs if job.arm.name not in ("reinforce_pp", "rloo", "remax")]
    cells = {job.arm.name: (job.config.advantage, job.config.kl_estimator, job.config.kl_placement) for job in jobs}
    assert cells == {
        "grpo": ("group", "k3", "loss"),
        "grpo_k1_reward": ("group", "k1", "reward"),
        "reinforce_pp_k_k3_loss": ("reinforce_pp", "k3", "loss"),
        "reinforce_pp_k": ("reinforce_pp", "k1", "reward"),
    }
    crossed = ("method", "advantage", "kl_estimator", "kl_placement")
    rest = [{k: v for k, v in job.config.to_dict().items() if k not in crossed} for job in jobs]
    assert all(settings == rest[0] for settings in rest)
    assert rest[0]["group_size"] == 4  # GRPO's of R++ Table 1, in all four
    assert (single.group_size, single.prompts_per_update) == (1, 4 * rest[0]["prompts_per_update"])
    assert (rest[0]["model"], rest[0]["reward_model"]) == ("outputs/models/preferences-2", "reward")


# -- a run


class CountsA:
    """A reward model by hand: 2 for each character of the completion, minus 10. No grade has such values."""

    def score(self, rollouts):
        return torch.tensor([2.0 * len(text) - 10.0 for text in rollouts.texts])


@pytest.fixture
def by_hand(monkeypatch):
    """Let runs find the reward model by hand; counts how often one is loaded."""
    loaded = []

    def load(config, tokenizer, device):
        loaded.append(config.reward_model)
        return CountsA() if config.reward == "model" else None

    monkeypatch.setattr(run_module, "load_reward_model", load)
    return loaded


@pytest.fixture
def seen(monkeypatch):
    """The data of a run: the rewards that its estimator got, the rollouts, and their gold rewards."""
    kept = {"rewards": [], "rollouts": []}
    estimator, rollouts = group_advantages, Sampler.rollouts

    def keep(rewards_P_G, *arguments, **options):
        kept["rewards"].append(rewards_P_G)
        return estimator(rewards_P_G, *arguments, **options)

    def keep_rollout(self, *arguments):
        kept["rollouts"].append(rollouts(self, *arguments))
        return kept["rollouts"][-1]

    monkeypatch.setattr("agpo_core.advantages.group_advantages", keep)
    monkeypatch.setattr(Sampler, "rollouts", keep_rollout)
    return kept


def gold_of(rollouts):
    toy = Toy()
    return [toy.grade(None, text).reward for text in rollouts.texts]


MODEL = {"reward": "model", "reward_model": "by hand"}


def test_estimators_see_the_model_s_score_and_the_log_shows_the_gold_apart(config, tmp_path, by_hand, seen):
    train(config(**MODEL, reward_clip=4.0, reward_scale=0.5, dev_problems=0, test_problems=0), tmp_path)
    rows = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert by_hand == ["by hand"]  # loaded once
    for row, rewards_P_G, rollouts in zip(rows, seen["rewards"], seen["rollouts"], strict=True):
        scores = [2.0 * len(text) - 10.0 for text in rollouts.texts]
        assert row["reward"] == pytest.approx(sum(scores) / 16)
        # bounded to ±4, then halved: a text of no character scores -10 -> -4 -> -2, one of six 2 -> 2 -> 1
        assert rewards_P_G.flatten().tolist() == [0.5 * min(max(s, -4.0), 4.0) for s in scores]
        assert row["reward_gold"] == pytest.approx(sum(gold_of(rollouts)) / 16)
        assert row["reward_gold"] != row["reward"]
    assert min(min(2.0 * len(text) - 10.0 for text in r.texts) for r in seen["rollouts"]) < -4  # the bound held one
    sample = provenance.read_jsonl(tmp_path / "samples.jsonl")[0]
    assert sample["reward"] == 2.0 * len(sample["completion"]) - 10.0


def test_without_a_reward_model_nothing_is_logged_apart(config, tmp_path):
    train(config(horizon=1.0), tmp_path)
    assert "reward_gold" not in provenance.read_jsonl(tmp_path / "metrics.jsonl")[0]
    points = provenance.read_json(tmp_path / "eval.json")
    assert "sampled" not in points["dev"][0]


def test_evaluation_reports_gold_and_beside_it_score_kl_and_length(config, tmp_path, by_hand):
    train(config(**MODEL, horizon=2.0, learning_rate=3.0e-3), tmp_path)
    points = provenance.read_json(tmp_path / "eval.json")
    assert 0 <= points["test"]["macro"] <= 1  # the task's grade
    start, end = points["dev"][0], points["dev"][-1]
    assert start["sampled"]["kl"] == pytest.approx(0.0, abs=1e-5)
    assert abs(end["sampled"]["kl"]) > 1e-3
    for point in (*points["dev"], points["test"]):
        sampled = point["sampled"]
        assert sampled.keys() == {"gold", "score", "kl", "length"}
        assert 0 <= sampled["gold"] <= 1
        # With EOS a text of n characters has n + 1 tokens, without it n: 2n - 10 lies between.
        assert 2 * (sampled["length"] - 1) - 10 <= sampled["score"] <= 2 * sampled["length"] - 10


def test_appraisal_draws_the_same_numbers_whatever_the_order_and_the_batch(config, tmp_path, by_hand):
    run = Run(config(**MODEL, beta=0.0, dev_problems=0), tmp_path)
    problems = Toy().problems("test")

    def appraise(problems, slots, at_once=3):
        return reward_model.appraise(
            run.reward_model, run.engine, run.reference, run.tasks, problems, slots, at_once
        )  # fmt: skip

    whole = appraise(problems, list(range(8)), at_once=8)
    assert "kl" not in whole  # no reference to be far from
    parts = [appraise(problems[r::2], list(range(8))[r::2]) for r in (0, 1)]
    for name, values in whole.items():
        assert [parts[i % 2][name][i // 2] for i in range(8)] == values
    assert appraise([], []) == {"gold": [], "score": [], "length": []}


def test_a_run_with_a_reward_model_resumes_exactly(config, tmp_path, folder):
    c = config("reinforce_pp_k", reward="model", reward_model=folder, horizon=4.0, checkpoint_every=0.5)
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    train(c, tmp_path / "whole")
    train(c, tmp_path / "broken", stop_after=3)
    train(c, tmp_path / "broken")
    whole, broken = (
        [
            {k: v for k, v in row.items() if k not in TIMES}
            for row in provenance.read_jsonl(tmp_path / name / "metrics.jsonl")
        ]
        for name in ("whole", "broken")
    )
    assert len(whole) == 4
    assert whole == broken
    evaluations = [(tmp_path / name / "eval.json").read_text() for name in ("whole", "broken")]
    assert evaluations[0] == evaluations[1]


@pytest.mark.parametrize("method", ["remax", "ppo", "agpo", "reinforce_pp"])
def test_every_kind_of_method_trains_on_scores(config, tmp_path, folder, method):
    c = config(method, reward="model", reward_model=folder, horizon=1.0, dev_problems=0, test_problems=0)
    train(c, tmp_path)
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert math.isfinite(row["loss"])
    assert 0 <= row["reward_gold"] <= 1


def test_groups_with_equal_scores_are_drawn_again_and_the_gold_is_of_those(config, tmp_path, by_hand, seen):
    train(
        config(**MODEL, equal_groups="resample", horizon=1.0, dev_problems=0, test_problems=0, tau_base=0.05), tmp_path
    )
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    (rollouts,) = seen["rollouts"]
    assert rollouts.discarded_tokens > 0
    assert row["reward_gold"] == pytest.approx(sum(gold_of(rollouts)) / 16)


def test_dpo_ranks_by_the_model_s_score(config, tmp_path, by_hand, monkeypatch):
    pairs = []
    monkeypatch.setattr(
        "agpo_core.training.offline.preference_pairs",
        lambda rollouts: pairs.append(rollouts.rewards_B) or [[([5], [6], [7])]] * len(rollouts.prompts.problems),
    )
    train_dpo(config("dpo", **MODEL, horizon=1.0, dev_problems=0, test_problems=0), tmp_path)
    assert pairs[0].min() < 0


# -- the start and the reward model of the micro task


def test_preferences_are_drawn_on_two_different_samples_of_the_policy():
    model, tokenizer = random_model("qwen2")
    pairs = judged_pairs(model, tokenizer, seed=1, count=20)
    assert 0 < len(pairs) <= 20
    assert pairs == judged_pairs(model, tokenizer, seed=1, count=20)
    assert all(prompt[-1] == ":" and chosen != rejected for prompt, chosen, rejected in pairs)
    cold = judged_pairs(model, tokenizer, seed=1, count=20, temperature=1.0e-3)
    assert all(gold_reward(p, c) >= gold_reward(p, r) for p, c, r in cold)
    assert {frozenset(pair) for pair in cold} == {frozenset(pair) for pair in pairs}  # the same strings


def test_a_model_is_measured_by_hand():
    _, tokenizer = random_model("qwen2")

    class Length:
        batch = 2

        def forward(self, rows):
            return torch.tensor([float(len(row)) for row in rows])

    # scores: tokens with prompt and end, 6 5 | 5 6; gold: ab 2.5, a 1 | b 1, ba 2
    pairs = [("abc:", "ab", "a"), ("abc:", "b", "ba")]
    found = reward_start.measure(Length(), tokenizer, pairs)
    assert found["accuracy"] == 0.5
    assert found["accuracy_gold"] == 1.0  # of both pairs, the longer string is the better
    assert found["score"] == pytest.approx([6.5, math.sqrt(1 / 3)])  # 7 6 6 7: the colon is a token too
    assert found["gold"][0] == pytest.approx((2.5 + 1 + 1 + 2) / 4)
    assert found["length"] == 1.5


def test_the_command_makes_both_models_from_a_seed(tmp_path, monkeypatch, capsys):
    for name, value in {
        "STEPS": 3,
        "BATCH": 8,
        "PAIRS": {"reward": 12, "reward_weak": 4},
        "EPOCHS": 1,
        "REWARD_BATCH": 4,
        "HELD_OUT": 8,
    }.items():
        monkeypatch.setattr(reward_start, name, value)
    reward_start.main(["--seeds", "2", "3", "--out", str(tmp_path)])
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])  # TRL speaks first
    assert printed["seed"] == 3
    assert printed == provenance.read_json(tmp_path / "preferences-3" / "start.json")
    monkeypatch.setattr(reward_start, "QUICK", 1.0)
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    assert model_files.to_make(["outputs/models/preferences-quick-3", "tiny-qwen2-a"]) == (
        "python -m agpo_core.models.reward_start --quick --seeds 3"
    )
    reward_start.provide(["outputs/models/preferences-quick-3", "tiny-qwen2-a"])
    assert not model_files.to_make(["outputs/models/preferences-quick-3"])
    with pytest.raises(ConfigError, match="reward_start --seeds 7001 7002"):
        reward_start.provide(["outputs/models/preferences-7001", "outputs/models/preferences-7002"])
    again = Path(model_files.model_source("outputs/models/preferences-quick-3"))
    for name in ("model.safetensors", "reward/model.safetensors", "reward_weak/model.safetensors"):
        weights = [(tmp_path / folder / name).read_bytes() for folder in ("preferences-3", again, "preferences-2")]
        assert weights[0] == weights[1] != weights[2]
    c = resolve("grpo", model=str(tmp_path / "preferences-3"), reward="model", reward_model="reward")
    _, tokenizer = load_policy(c)
    assert load_reward_model(c, tokenizer).score(rollouts_of(tokenizer, ["ab:"], ["ab", "b"])).isfinite().all()
