"""DPO: pairs of sampled tokens from the start policy, trained on and evaluated as in every other method."""

import copy
import signal
import sys
from types import SimpleNamespace

import pytest
import torch

from agpo_core import provenance
from agpo_core.config import ConfigError
from agpo_core.jobs.interrupts import Interrupted, Interrupts
from agpo_core.recipes import resolve
from agpo_core.tasks import MICRO_TASKS, Graded
from agpo_core.training import offline
from agpo_core.training import run as run_module
from agpo_core.training.offline import dpo, preference_pairs
from agpo_core.training.run import Run
from agpo_core.training.train import main, train
from agpo_core.training.update import Learner, Sampler
from tests.rollouts.chats import CHATS, folder_of

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")

# -- pairs


def graded(rewards, cut=()):
    """Rollouts of one prompt, as `preference_pairs` reads them: completion i is the tokens 10 + i, i times and once."""
    G = len(rewards)
    lengths = torch.arange(G) + 1
    return SimpleNamespace(
        group=G,
        rewards_B=torch.tensor(rewards),
        truncated_B=torch.tensor([i in cut for i in range(G)]),
        prompt_ids_P_S=torch.tensor([[0, 7, 8]]),
        prompt_mask_P_S=torch.tensor([[0, 1, 1]]),
        completion_ids_B_T=(torch.arange(G) + 10).unsqueeze(1).expand(G, G),
        mask_B_T=torch.arange(G) < lengths.unsqueeze(1),
    )


@pytest.mark.parametrize(
    ("rewards", "cut", "expected"),
    [
        ([0.0, 1.0, 1.0, 0.0], (), [(1, 3), (2, 0)]),
        ([0.0, 1.0, 0.0, 0.0], (), [(1, 3)]),  # the second best is no better than the second worst
        ([0.2, 0.9, 0.5, 0.4, 0.1], (), [(1, 4), (2, 0)]),  # an odd group leaves its middle out
        ([1.0, 1.0, 1.0, 1.0], (), []),
        ([1.0], (), []),
        ([0.0, 1.0, 1.0, 0.0], (1,), [(2, 0)]),  # a completion without an end is not chosen
        ([0.0, 1.0, 1.0, 0.0], (3,), [(1, 3), (2, 0)]),  # and may be rejected
    ],
)
def test_pairs_by_hand(rewards, cut, expected):
    tokens = [tuple([10 + i] * (i + 1) for i in pair) for pair in expected]
    assert preference_pairs(graded(rewards, cut)) == [[([7, 8], *pair) for pair in tokens]]


@pytest.fixture
def watched(monkeypatch):
    """A run's rollouts, and the sequences whose gradients it computed: {"rollouts": [...], "rows": [...]}."""
    seen = {"rollouts": [], "rows": []}
    rollouts, logps = Sampler.rollouts, offline._pair_logps

    def keep_rollout(self, *arguments):
        seen["rollouts"].append(rollouts(self, *arguments))
        return seen["rollouts"][-1]

    def keep_rows(model, pairs, run):
        if torch.is_grad_enabled():
            seen["rows"] += [((*prompt, *one), len(one)) for prompt, *both in pairs for one in both]
        return logps(model, pairs, run)

    monkeypatch.setattr(Sampler, "rollouts", keep_rollout)
    monkeypatch.setattr(offline, "_pair_logps", keep_rows)
    return seen


@pytest.mark.parametrize(("name", "lora_rank"), [("chatml", 0), ("llama3", 0), ("closes", 0), ("gemma", 2)])
def test_it_trains_on_the_very_tokens_that_were_sampled(config, tmp_path, watched, name, lora_rank):
    folder = folder_of(name, tmp_path / "model")
    c = config("dpo", model=folder, lora_rank=lora_rank, dev_problems=0, test_problems=0, group_size=8, epochs=1)
    train(c, tmp_path)
    sampled, again = {}, 0
    tokenizer = Run(c.replace(horizon=0.0), tmp_path / "other").tokenizer
    for rollouts in watched["rollouts"]:
        for i, (ids, mask) in enumerate(zip(rollouts.completion_ids_B_T, rollouts.mask_B_T, strict=True)):
            p = i // rollouts.group
            prompt = rollouts.prompt_ids_P_S[p][rollouts.prompt_mask_P_S[p].bool()].tolist()
            answer = ids[mask].tolist()
            sampled[(*prompt, *answer)] = len(answer)
            again += tokenizer(tokenizer.decode(answer), add_special_tokens=False)["input_ids"] != answer
    assert again  # their texts would have given other tokens
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert len(watched["rows"]) == 2 * row["pairs"] > 8
    assert all(sampled[ids] == length for ids, length in watched["rows"])
    chosen = [line[1] for line in provenance.read_jsonl(tmp_path / "pairs.jsonl")[0]["pairs"]]
    ends = {tokenizer.convert_tokens_to_ids(mark) for mark in (CHATS[name].end, CHATS[name].eos) if mark}
    assert {ids[-1] for ids in chosen} <= ends


# -- the steps, and what is trained


def trl_dpo(model, tokenizer, pairs, folder, c, batch_size):
    """The same training by TRL's DPOTrainer, which keeps a copy of the start; returns its log, one entry per step."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class OnTokens(DPOTrainer):
        def _prepare_dataset(self, dataset, *_):
            return dataset

    arguments = DPOConfig(
        output_dir=str(folder),
        beta=c.dpo_beta,
        per_device_train_batch_size=batch_size,
        num_train_epochs=c.epochs,
        learning_rate=c.learning_rate,
        lr_scheduler_type="cosine",
        adam_beta1=c.adam_betas[0],
        adam_beta2=c.adam_betas[1],
        weight_decay=c.weight_decay,
        max_grad_norm=c.max_grad_norm,
        max_length=None,
        logging_steps=1,
        seed=c.seed,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    data = Dataset.from_dict(
        dict(zip(("prompt_ids", "chosen_ids", "rejected_ids"), zip(*pairs, strict=True), strict=True))
    )
    # With adapters, TRL makes its own copy of them.
    reference = None if c.lora_rank else copy.deepcopy(model).requires_grad_(False)
    trainer = OnTokens(model, reference, arguments, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    if c.lora_rank:
        model.delete_adapter("ref")
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def random_pairs(count):
    """Prompts and completions of unequal length."""
    generator = torch.Generator().manual_seed(0)

    def tokens(most):
        length = int(torch.randint(1, most + 1, (1,), generator=generator))
        return torch.randint(3, 100, (length,), generator=generator).tolist()

    return [(tokens(5), tokens(8), tokens(8)) for _ in range(count)]


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("qwen2", {}),
        ("gemma2", {"weight_decay": 0.1}),
        ("qwen2", {"lora_rank": 4}),
        ("qwen2", {"micro_batch_prompts": 1}),
        ("qwen2", {"micro_batch_prompts": 1, "lora_rank": 4}),
    ],
)
def test_its_steps_are_those_of_trl(config, tmp_path, family, params):
    """Eleven pairs in steps of four: the last of three, and with micro-batches of one prompt of two and one."""
    c = config("dpo", family, dev_problems=0, warmup=0.0, dpo_beta=0.5, epochs=2, **params)
    pairs = random_pairs(11)
    start, ours, theirs = (Run(c, tmp_path) for _ in range(3))
    log = dpo(ours, pairs)
    expected = trl_dpo(theirs.policy, theirs.tokenizer, pairs, tmp_path / "trl", c, batch_size=4)
    assert len(log) == len(expected) == 6
    assert log[0]["loss"] == pytest.approx(0.6931, abs=1e-4)  # log 2: policy and reference agree
    for step, reference in zip(log, expected, strict=True):
        assert step["loss"] == pytest.approx(reference["loss"], rel=1e-3, abs=1e-4)
        assert step["grad_norm"] == pytest.approx(reference["grad_norm"], rel=1e-3)
    before, after, found = (dict(run.policy.named_parameters()) for run in (start, ours, theirs))
    moved = {name for name, weight in after.items() if not weight.equal(before[name])}
    assert moved and all(".lora_" in name for name in moved) == (c.lora_rank > 0)
    movement, distance = (
        sum((after[name] - others[name]).double().square().sum() for name in moved).sqrt() for others in (before, found)
    )
    assert 0 < distance <= 1e-3 * movement


def test_a_step_with_fewer_pairs_than_micro_batches_is_the_same_step(config, tmp_path):
    """One pair for two micro-batches: the micro-batch without a pair is made too, with weight 0."""
    logs = [
        dpo(Run(config("dpo", dev_problems=0, **params), tmp_path), random_pairs(5))
        for params in ({}, {"micro_batch_prompts": 1})
    ]
    for plain, parted in zip(*logs, strict=True):
        assert parted == pytest.approx(plain, rel=1e-3)


def test_the_chosen_completions_become_likelier_than_the_rejected(config, tmp_path):
    run = Run(config("dpo", dev_problems=0, dpo_beta=0.5, epochs=4), tmp_path)
    pairs = [([5], [6, 1], [7, 1]), ([8], [6, 1], [9, 1])] * 20
    before, log = offline._start_logps(run, pairs, at_once=7), dpo(run, pairs)
    margins = (offline._start_logps(run, pairs, at_once=40) - before) @ torch.tensor([1.0, -1.0])
    assert margins.min() > 1.0 and log[-1]["loss"] < log[0]["loss"]


@pytest.mark.parametrize(
    ("lora_rank", "params"),
    [
        (0, {"micro_batch_prompts": 1}),
        (0, {"activation_checkpointing": True, "shared_prompt": False}),
        (2, {"activation_checkpointing": True, "shared_prompt": False}),
    ],
)
def test_what_saves_memory_changes_rounding_alone(config, tmp_path, lora_rank, params):
    logs = []
    for name, changed in (("plain", {"lora_rank": lora_rank}), ("saving", {"lora_rank": lora_rank} | params)):
        (tmp_path / name).mkdir()
        c = config("dpo", horizon=6.0, dev_problems=0, test_problems=0, group_size=8, learning_rate=1.0e-4, **changed)
        train(c, tmp_path / name)
        logs.append(provenance.read_jsonl(tmp_path / name / "metrics.jsonl")[0])
    assert logs[0]["grad_norms"] == pytest.approx(logs[1]["grad_norms"], rel=1e-3)
    assert logs[0]["pairs"] == logs[1]["pairs"] > 8


# -- a run


def test_a_run_trains_evaluates_and_saves_and_counts_its_tokens(config, tmp_path):
    c = config("dpo", horizon=3.0)
    train(c, tmp_path)
    (row,) = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert (row["update"], row["progress"], row["tokens_probe"]) == (3, 1.0, 0)
    assert 3 * 16 <= row["tokens_train"] <= 3 * 16 * 6
    steps = -(-row["pairs"] // 4) * 2  # 4 prompts x 4 completions in 2 minibatches are 4 pairs a step; 2 epochs
    assert len(row["grad_norms"]) == steps
    evaluations = provenance.read_json(tmp_path / "eval.json")
    assert [point["progress"] for point in evaluations["dev"]] == [0.0, 1.0]
    assert evaluations["test"]["problems"] == 4
    assert (tmp_path / "policy" / "model.safetensors").is_file()


def test_at_horizon_0_the_start_is_evaluated_and_saved(config, tmp_path):
    train(config("dpo", horizon=0.0), tmp_path)
    assert [point["update"] for point in provenance.read_json(tmp_path / "eval.json")["dev"]] == [0]
    assert (tmp_path / "policy").is_dir() and not (tmp_path / "metrics.jsonl").exists()


def test_the_same_command_trains_it(config, tmp_path, monkeypatch):
    config("dpo", horizon=3.0, dev_problems=0, test_problems=0).save(tmp_path / "config.yaml")
    monkeypatch.setattr(sys, "argv", ["train", "--run-dir", str(tmp_path)])
    main()
    assert provenance.read_json(tmp_path / "run.json")["status"] == "finished"
    assert "pairs" in provenance.read_jsonl(tmp_path / "metrics.jsonl")[0]


# -- broken off


def results(folder):
    """The files of a finished run: weights, metrics without times, evaluations, pairs without times."""
    rows = [
        {k: v for k, v in row.items() if "seconds" not in k} for row in provenance.read_jsonl(folder / "metrics.jsonl")
    ]
    pairs = [line["pairs"] for line in provenance.read_jsonl(folder / "pairs.jsonl")]
    weights = next((folder / "policy").glob("*.safetensors")).read_bytes()
    return weights, rows, provenance.read_json(folder / "eval.json"), pairs


BREAKS = {
    "while it samples": (Sampler, "rollouts", 2),
    "after sampling": (offline, "dpo", 1),
    "after training": (Run, "evaluate_dev", 2),
    "at its end": (Run, "finish", 1),
}


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The files of runs that were not interrupted: whole(lora_rank)."""
    found = {}

    def build(lora_rank):
        if lora_rank not in found:
            folder = tmp_path_factory.mktemp("whole")
            train(config("dpo", lora_rank=lora_rank), folder)
            found[lora_rank] = results(folder)
        return found[lora_rank]

    return build


@pytest.mark.parametrize(("where", "lora_rank"), [*((where, 0) for where in BREAKS), ("after sampling", 2)])
def test_a_broken_run_goes_on_from_its_pairs_to_the_same_bits(config, tmp_path, monkeypatch, whole, where, lora_rank):
    owner, name, calls = BREAKS[where]
    left, real = iter(range(calls - 1)), getattr(owner, name)

    def until_killed(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, until_killed)
        train(config("dpo", lora_rank=lora_rank), tmp_path)
    with open(tmp_path / "pairs.jsonl", "ab") as file:
        file.write(b'{"update": 3, "pai')  # cut off by a power failure
    drawn = []
    rollouts = Sampler.rollouts
    monkeypatch.setattr(Sampler, "rollouts", lambda self, *rest: drawn.append(rest[-1]) or rollouts(self, *rest))
    train(config("dpo", lora_rank=lora_rank), tmp_path)
    assert drawn == ([1, 2] if where == "while it samples" else [])
    assert results(tmp_path) == whole(lora_rank)


def test_a_signal_leaves_a_checkpoint_of_the_pairs(config, tmp_path, monkeypatch, whole):
    interrupts, rollouts, drawn = Interrupts(), Sampler.rollouts, []

    def interrupted(self, *rest):
        drawn.append(rest[-1])
        interrupts.asked = signal.SIGTERM * (len(drawn) == 2)
        return rollouts(self, *rest)

    monkeypatch.setattr(Sampler, "rollouts", interrupted)
    with pytest.raises(Interrupted):
        train(config("dpo", checkpoint_every=1.0), tmp_path, interrupts=interrupts)
    train(config("dpo", checkpoint_every=1.0), tmp_path)
    assert drawn == [0, 1, 2]
    assert results(tmp_path) == whole(0)


def test_it_can_be_left_unfinished_and_a_longer_horizon_goes_on(config, tmp_path):
    train(config("dpo", horizon=2.0), tmp_path, stop_after=1)
    assert not (tmp_path / "policy").exists() and len(provenance.read_jsonl(tmp_path / "pairs.jsonl")) == 1
    train(config("dpo", horizon=4.0), tmp_path)
    (tmp_path / "other").mkdir()
    train(config("dpo", horizon=4.0), tmp_path / "other")
    assert results(tmp_path) == results(tmp_path / "other")


def test_pairs_of_other_settings_are_refused_by_name(config, tmp_path):
    train(config("dpo", horizon=2.0), tmp_path, stop_after=1)
    with pytest.raises(ConfigError, match="other settings: seed 42 → 7; tau_base 1.0 → 0.9"):
        train(config("dpo", horizon=2.0, seed=7, tau_base=0.9), tmp_path)


# -- what is refused


def test_equal_rewards_give_no_pair_and_say_so(config, tmp_path, monkeypatch):
    class Constant(type(run_module.get_task("toy"))):
        def grade(self, problem, completion):
            return Graded(1.0, completion)

    monkeypatch.setattr(run_module, "get_task", lambda name, *rest: Constant(name))
    with pytest.raises(ConfigError, match="dpo found no pair"):
        train(config("dpo", horizon=1.0, dev_problems=0), tmp_path)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"group_size": 1}, "group_size"),
        ({"group_size": 1, "advantage": "reinforce_pp"}, "group_size is 1"),
        ({"critic": "head", "advantage": "gae"}, "critic"),
        ({"clip": "adaptive"}, "clip"),
        ({"temperature": "adaptive"}, "temperature"),
        ({"beta": 0.1}, "dpo_beta"),
    ],
)
def test_settings_that_it_would_not_follow_are_refused_when_loaded(params, message):
    with pytest.raises(ConfigError, match=message):
        resolve("dpo", **params)


def test_a_gradient_that_is_not_finite_ends_the_run(config, tmp_path, monkeypatch):
    monkeypatch.setattr(Learner, "descend", lambda *_: float("nan"))
    with pytest.raises(FloatingPointError, match="Lower learning_rate or dpo_beta"):
        train(config("dpo", dev_problems=0), tmp_path)


@pytest.mark.slow
def test_it_learns_the_micro_tasks(tmp_path, monkeypatch):
    """With one seed; the records hold three or more (tests/experiments/test_records.py)."""
    from agpo_core.tasks import get_task

    monkeypatch.setattr(run_module, "get_task", get_task)
    c = resolve("dpo", seed=1, tasks=MICRO_TASKS, horizon=40_000.0, learning_rate=1.0e-4, dpo_beta=1.0, test_problems=0)
    train(c, tmp_path)
    before, after = (point["macro"] for point in provenance.read_json(tmp_path / "eval.json")["dev"])
    assert after > before
