"""Estimates of memory and tokens, compared with what real models and runs hold and generate."""

import re

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTBigCodeConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    Phi3Config,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from agpo_core.config import ConfigError
from agpo_core.experiments import estimate, grid, profiles
from agpo_core.recipes import RECIPES, resolve
from agpo_core.rollouts.rollout import TransformersEngine
from agpo_core.training import offline, train
from agpo_core.training.run import Run
from tests.conftest import Toy

QWEN = "Qwen/Qwen2.5-14B"
PAPER = {"dtype": "bfloat16", "activation_checkpointing": True, "shared_prompt": False,
         "micro_batch_prompts": 1, "max_sequence_tokens": 1024, "prompts_per_update": 128,
         "rollout_batch": 64}  # fmt: skip


def test_the_papers_14_b_needs_what_zero_2_leaves_on_each_of_two_gpus():
    parts = estimate.memory(estimate.SHAPES[QWEN], resolve("agpo", **PAPER), "deepspeed", 2, 80.0)
    # 14.77 B parameters: 2 bytes each of weights, the same of reference, 2 / 2 of gradients, 12 / 2 of states
    expected = {"weights": 29.54, "reference": 29.54, "gradients": 14.77, "AdamW states": 88.62}
    assert {name: parts[name] for name in expected} == pytest.approx(expected, abs=0.01)
    assert sum(parts.values()) > 80


def test_sharding_helps_gradients_and_states_alone():
    shape, config = estimate.SHAPES[QWEN], resolve("grpo", **PAPER)
    two, four = (estimate.memory(shape, config, "deepspeed", ranks, 80.0) for ranks in (2, 4))
    assert four["weights"] == two["weights"] and four["reference"] == two["reference"]
    assert four["gradients"] == pytest.approx(two["gradients"] / 2)
    assert four["AdamW states"] == pytest.approx(two["AdamW states"] / 2)
    needed = estimate.ranks_needed(shape, config, "deepspeed", 80.0)
    assert sum(estimate.memory(shape, config, "deepspeed", needed, 80.0).values()) <= 80
    assert sum(estimate.memory(shape, config, "deepspeed", needed // 2, 80.0).values()) > 80


def test_vllm_takes_its_share_of_the_gpu_beside_what_stays_there():
    shape, config = estimate.SHAPES[QWEN], resolve("grpo", **PAPER)
    vllm = config.replace(engine="vllm", engine_memory=0.5)
    parts = estimate.memory(shape, vllm, "deepspeed", 128, 80.0)
    assert parts["batch"] == pytest.approx(40.0)
    assert estimate.ranks_needed(shape, vllm, "deepspeed", 80.0) is None  # 29.5 + 29.5 + 40
    assert estimate.ranks_needed(shape, vllm, "deepspeed", 140.0) is not None


def test_no_number_of_ranks_mends_weights_that_do_not_fit():
    shape, config = estimate.SHAPES[QWEN], resolve("grpo", **PAPER)
    assert estimate.ranks_needed(shape, config, "deepspeed", 40.0) is None


def test_one_process_in_float32_keeps_sixteen_bytes_a_parameter_and_a_reference():
    shape = estimate.Shape(1_000_000_000, 1, 1, 1, 1, 1)
    parts = estimate.memory(shape, resolve("grpo"), "python", 1, 80.0)
    assert parts["weights"] + parts["gradients"] + parts["AdamW states"] == pytest.approx(16.0)
    assert parts["reference"] == pytest.approx(4.0)
    assert estimate.memory(shape, resolve("grpo", beta=0.0), "python", 1, 80.0)["reference"] == 0


# -- the sizes of models


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 77,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 77, "bos_token_id": 1, "eos_token_id": 2}
ARCHITECTURES = {
    "llama": LlamaConfig(**SMALL, num_key_value_heads=1),
    "llama, tied": LlamaConfig(**SMALL, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SMALL, num_key_value_heads=2),
    "gemma3, wide heads": Gemma3TextConfig(**SMALL, num_key_value_heads=2, head_dim=32),
    "mixtral": MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=3),
    "phi3": Phi3Config(**SMALL, num_key_value_heads=2),
    "opt": OPTConfig(**SMALL, ffn_dim=96, word_embed_proj_dim=64),
    "gpt_neox": GPTNeoXConfig(**SMALL),
    "gpt2": GPT2Config(**GPT),
    "gpt_bigcode, one key": GPTBigCodeConfig(**GPT),
    "gpt_bigcode": GPTBigCodeConfig(**GPT, multi_query=False),
    "falcon, one key": FalconConfig(**SMALL),
    "falcon": FalconConfig(**SMALL, multi_query=False),
    "falcon, grouped": FalconConfig(**SMALL, new_decoder_architecture=True, num_kv_heads=2),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_folder_is_measured_as_its_model_is(architecture, tmp_path):
    config = ARCHITECTURES[architecture]
    config.save_pretrained(tmp_path)
    shape = estimate.shape_of(str(tmp_path))
    model = AutoModelForCausalLM.from_config(config)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert (shape.layers, shape.hidden, shape.vocabulary) == (2, 64, 77)
    with torch.no_grad():
        layers = model(torch.arange(3, 8).unsqueeze(0), use_cache=True).past_key_values.layers
    held = sum(numbers.numel() for layer in layers for numbers in (layer.keys, layer.values))
    assert held == 5 * shape.layers * 2 * shape.key_values
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear"))
    assert 3 * shape.linear == sum(p.numel() for p in adapted.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("model", "config"),
    {
        "Qwen/Qwen2.5-14B": Qwen2Config(
            vocab_size=152_064, hidden_size=5120, intermediate_size=13_824, num_hidden_layers=48,
            num_attention_heads=40, num_key_value_heads=8,
        ),
        "Qwen/Qwen2.5-7B": Qwen2Config(
            vocab_size=152_064, hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28,
            num_attention_heads=28, num_key_value_heads=4,
        ),
        "meta-llama/Meta-Llama-3-8B": LlamaConfig(
            vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8,
        ),
        "google/gemma-2-9b": Gemma2Config(
            vocab_size=256_000, hidden_size=3584, intermediate_size=14_336, num_hidden_layers=42,
            num_attention_heads=16, num_key_value_heads=8, head_dim=256, tie_word_embeddings=True,
        ),
        "HuggingFaceTB/SmolLM2-135M-Instruct": LlamaConfig(
            vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
        ),
    }.items(),
)  # fmt: skip
def test_a_named_model_has_the_shape_of_its_published_configuration(model, config, tmp_path):
    config.save_pretrained(tmp_path)
    assert estimate.shape_of(model) == estimate.shape_of(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "its config.json cannot be used"),
        ('{"hidden_size": 64}', "its config.json cannot be used"),
        ('{"model_type": "mamba"}', "has no attention heads"),
    ],
)
def test_a_folder_that_holds_no_such_model_is_refused_by_name(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=f"{tmp_path.name}.*{message}"):
        estimate.shape_of(str(tmp_path))


# -- the memory of runs


PARTS = {
    "all weights": {},
    "no reference": {"beta": 0.0},
    "a copy that nothing reads": {"beta": 0.0, "reference": "frozen_copy"},
    "a critic's head": {"method": "ppo"},
    "a critic's model": {"method": "ppo_critic"},
    "adapters": {"lora_rank": 2},
    "adapters beside a copy": {"lora_rank": 2, "reference": "frozen_copy"},
    "adapters of both models": {"method": "ppo_critic", "lora_rank": 2},
    "no copy for DPO": {"method": "dpo", "horizon": 3.0},
}


@pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")
@pytest.mark.parametrize("name", PARTS)
def test_weights_copies_gradients_and_states_are_those_of_a_run(config, tmp_path, monkeypatch, name):
    c = config(**{"dev_problems": 0, "test_problems": 0, "horizon": 1.0, **PARTS[name]})
    runs, gradients = [], []

    def watched(*given):
        run = Run(*given)
        step = run.optimiser.step

        def seen():
            gradients.append(_bytes(p.grad for p in run.whole.parameters() if p.grad is not None))
            step()

        monkeypatch.setattr(run.optimiser, "step", seen)
        runs.append(run)
        return run

    for module in (train, offline):
        monkeypatch.setattr(module, "Run", watched)
    train.train(c, tmp_path)
    (run,) = runs
    parts = estimate.memory(estimate.shape_of(c.model), c, "python", 1, 80.0)
    of_run = {
        "weights": _bytes(run.policy.parameters()),
        "critic": _bytes(run.whole.parameters()) - _bytes(run.policy.parameters()),
        "reference": _bytes(run.reference.copy.parameters()) if run.reference.copy else 0,
        "gradients": gradients[0],
        "AdamW states": _bytes(v for state in run.optimiser.state.values() for k, v in state.items() if k != "step"),
    }
    assert {part: round(parts.get(part, 0) * estimate.GB) for part in of_run} == of_run


def _bytes(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("params", [{}, {"lora_rank": 2}, {"micro_batch_prompts": 1}])
def test_dpo_takes_the_memory_of_a_method_without_a_reference(config, params):
    plain, dpo = config(beta=0.0, **params), config("dpo", **params)
    shape = estimate.shape_of(plain.model)
    for launcher, ranks in (("python", 1), ("deepspeed", 2)):
        found, expected = (estimate.memory(shape, c, launcher, ranks, 80.0) for c in (dpo, plain))
        assert found == expected and found["reference"] == 0


def test_a_reward_model_adds_its_weights_alone(tmp_path):
    policy = Qwen2Config(**SMALL, num_key_value_heads=2)
    policy.save_pretrained(tmp_path)
    judge = Qwen2ForSequenceClassification(Qwen2Config(**SMALL, num_key_value_heads=2, num_labels=1))
    judge.save_pretrained(tmp_path / "reward")
    plain = resolve("grpo", model=str(tmp_path))
    judged = plain.replace(reward="model", reward_model="reward")  # in the start's folder
    shape = estimate.shape_of(str(tmp_path))
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        with_it = estimate.memory(shape, judged.replace(dtype=dtype), "python", 1, 80.0)
        numbers = sum(p.numel() for p in judge.parameters())
        assert with_it.pop("reward model") == pytest.approx(size * numbers / 1.0e9)
        assert with_it == estimate.memory(shape, plain.replace(dtype=dtype), "python", 1, 80.0)


@pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")
@pytest.mark.parametrize(
    "params",
    [
        {"rollout_batch": 2},
        {"rollout_batch": 5, "test_samples": 3},
        {"method": "agpo", "probe_group_size": 7},
        {"prompts_per_update": 2, "rollout_batch": 64, "test_problems": 8},
    ],
)
def test_the_sampler_holds_no_more_than_the_plan_says_it_may(config, tmp_path, monkeypatch, params):
    """Prompts and completions of full length; the memory held is measured at each decoding step."""
    c = config(**{"max_sequence_tokens": 12, "rollout_batch": 16, **params})
    held = []

    def decode(engine, cache, *given):
        held.append(_bytes(numbers for layer in cache.layers for numbers in (layer.keys, layer.values)))
        turns = engine_decode(engine, cache, *given)
        held[-1] = max(held[-1], _bytes(numbers for layer in cache.layers for numbers in (layer.keys, layer.values)))
        return turns

    engine_decode = TransformersEngine._decode
    monkeypatch.setattr(TransformersEngine, "_decode", decode)
    train.train(c, tmp_path, stop_after=1)
    shape = estimate.shape_of(c.model)
    assert 0 < max(held) <= estimate._cache(shape, c, 1, 4)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="'nobody/nothing' is not known.*Qwen/Qwen2.5-14B"):
        estimate.shape_of("nobody/nothing")


# -- the tokens of runs


def test_tokens_are_the_horizon_or_at_most_what_its_updates_can_generate():
    assert estimate.tokens(resolve("agpo", horizon=5000)) == 5000
    updates = {"horizon_unit": "updates", "horizon": 2, "prompts_per_update": 4, "group_size": 8,
               "max_completion_tokens": 10}  # fmt: skip
    assert estimate.tokens(resolve("grpo", **updates)) == 2 * 4 * 8 * 10
    assert estimate.tokens(resolve("agpo", **updates)) == 2 * 4 * (8 + 8) * 10  # and the probe
    assert estimate.tokens(resolve("agpo", horizon_unit="seconds", horizon=60)) is None


@pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")
@pytest.mark.parametrize(
    "params",
    [
        *({"method": method} for method in ("agpo_part_probe", "agpo_free_probe", "remax", "dpo")),
        {"horizon": 5.0, "eval_every": 0.4},  # at 0, .4, .8 and 1
        {"horizon": 2.0, "eval_every": 0.1},  # no more than there are updates
        {"horizon": 0.0},
        {"dev_problems": None, "tasks": ["toy", "other"], "test_problems": None, "test_tasks": ["a", "b", "c"]},
        {"test_problems": 0, "train_problems": 5},
        {"dev_problems": 0, "train_problems": 5, "test_samples": 3},
    ],
    ids=str,
)
def test_where_a_completion_is_a_token_a_run_generates_what_was_planned(config, tmp_path, monkeypatch, params):
    c = config(**{"max_completion_tokens": 1, "group_size": 4, **params})
    monkeypatch.setattr(estimate, "get_task", lambda name, *rest: Toy(name))
    estimate._problems.cache_clear()
    runs = []
    for module in (train, offline):
        monkeypatch.setattr(module, "Run", lambda *given: runs.append(Run(*given)) or runs[0])
    monkeypatch.setattr(offline, "preference_pairs", lambda drawn: [[("p", "c", "r")] for _ in drawn.prompts.problems])
    monkeypatch.setattr(offline, "dpo", lambda *given, **options: [{"loss": 0.0, "grad_norm": 0.0}])
    (offline.train_dpo if c.method == "dpo" else train.train)(c, tmp_path)
    booked = runs[0].horizon.tokens
    assert booked["evaluation"] == estimate.evaluation_tokens(c)
    assert booked["train"] + booked["probe"] == estimate.tokens(c)
    estimate._problems.cache_clear()


def test_a_reward_model_s_runs_answer_every_problem_twice(config):
    plain = config(test_samples=2, horizon=1.0)
    judged = plain.replace(reward="model", reward_model="any")
    assert estimate.evaluation_tokens(plain) == (2 * 4 + 4 * 3) * 6  # 4 problems at 2 points; at the end 4, three times
    assert estimate.evaluation_tokens(judged) == (2 * 4 * 2 + 4 * 4) * 6


def test_all_problems_are_counted_where_their_number_is_known_and_else_named():
    trained_on, tested_on = ("math", "gsm8k_python", "mmlu_stem"), ("gsm8k", "orz", "knights_and_knaves_3")
    c = resolve("grpo", tasks=trained_on, test_tasks=tested_on, dev_problems=None, test_problems=None)
    counts, unknown = estimate.evaluated(c)
    assert counts == {"dev": 321, "test": 1319, "train": 0}
    assert unknown == ["the dev problems of math", "the dev problems of gsm8k_python", "the test problems of orz",
                       "the test problems of knights_and_knaves_3"]  # fmt: skip


# -- a grid's plan


@pytest.mark.parametrize("backwards", [False, True])
def test_of_each_model_the_arm_is_shown_that_needs_the_most(backwards):
    """Whatever the order of the arms."""
    params = profiles.settings("methods_overview", "tiny")
    params |= {"methods": ["start", "grpo", "ppo_critic", "ppo", "agpo"][:: -1 if backwards else 1]}
    params |= {"models": params["models"][:3]}  # three seeds, each with its own start
    text = estimate.describe(grid.plan("methods_overview", params), params)
    assert re.findall("memory of a rank: (.+?),", text) == params["models"]
    assert re.findall("needs the most: (.+)", text) == [RECIPES["ppo_critic"].title] * len(params["models"])


def test_a_plan_names_what_it_counts_of_evaluation_and_of_adapters(params):
    changed = {"methods": ["start", "grpo"], "dev_problems": 10, "test_problems": 20, "eval_every": 0.5, "seeds": [1],
               "tasks": ["steps"], "max_completion_tokens": 8, "models": ["tiny-qwen2-a"], "lora_rank": 4}  # fmt: skip
    text = estimate.describe(grid.plan("any", params | changed), params | changed)
    assert re.search(r"supervised start +1 .* 240 ", text)  # 10 + 20 answers of 8 tokens
    assert re.search(r"GRPO +1 .* 400 ", text)  # 3 * 10 + 20
    linear = estimate.shape_of("tiny-qwen2-a").linear
    assert f"plus {4 * linear / 1e6:.2f} M in adapters; only these are trained" in text
    assert re.search(r"reference +0.00 MB", text)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        (200.0, "It fits."),
        (170.0, "Without the batch it fits. Lower rollout_batch"),  # 162.5 GB without, 180.3 GB with
        (80.0, "It does not fit without offload.*it fits from 128 ranks on"),
        (40.0, "It does not fit without offload.*More ranks do not help"),
    ],
)
def test_the_verdict_on_memory_names_what_would_mend_it(limit, verdict):
    params = {"launcher": "deepspeed", "ranks": 2, "memory_gb": limit}
    text = estimate._memory(resolve("agpo", **PAPER, model=QWEN), "AGPO", params)
    assert re.search(verdict, text, re.DOTALL)
