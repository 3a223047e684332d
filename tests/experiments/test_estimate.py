"""Memory and tokens by arithmetic."""

import json
import re
import struct

import pytest

from agpo_core.config import ConfigError
from agpo_core.experiments import estimate
from agpo_core.recipes import resolve

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
    shape = estimate.Shape(1_000_000_000, 1, 1, 1, 1)
    parts = estimate.memory(shape, resolve("grpo"), "python", 1, 80.0)
    assert parts["weights"] + parts["gradients"] + parts["AdamW states"] == pytest.approx(16.0)
    assert parts["reference"] == pytest.approx(4.0)
    assert estimate.memory(shape, resolve("grpo", beta=0.0), "python", 1, 80.0)["reference"] == 0


def test_a_folder_is_measured_by_its_config_and_the_headers_of_its_weights(tmp_path):
    config = {"num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 3,
              "num_key_value_heads": 2, "vocab_size": 77}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    for i, header in enumerate(({"a": {"shape": [77, 64]}, "__metadata__": {"format": "pt"}}, {"b": {"shape": [64]}})):
        text = json.dumps(header).encode()
        (tmp_path / f"model-{i}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    shape = estimate.shape_of(str(tmp_path))
    assert shape == estimate.Shape(77 * 64 + 64, 3, 64, 2 * 16, 77)


def test_a_reward_model_adds_its_weights_alone(tmp_path):
    config = {"num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 77}
    for folder, size in ((tmp_path, 1000), (tmp_path / "reward", 700)):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        text = json.dumps({"a": {"shape": [size]}}).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    plain = resolve("grpo", model=str(tmp_path))
    judged = plain.replace(reward="model", reward_model="reward")  # in the start's folder
    shape = estimate.shape_of(str(tmp_path))
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        with_it = estimate.memory(shape, judged.replace(dtype=dtype), "python", 1, 80.0)
        assert with_it.pop("reward model") == pytest.approx(size * 700 / 1.0e9)
        assert with_it == estimate.memory(shape, plain.replace(dtype=dtype), "python", 1, 80.0)


def test_an_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="'nobody/nothing' is not known.*Qwen/Qwen2.5-14B"):
        estimate.shape_of("nobody/nothing")


def test_tokens_are_the_horizon_or_at_most_what_its_updates_can_generate():
    assert estimate.tokens(resolve("agpo", horizon=5000)) == 5000
    updates = {"horizon_unit": "updates", "horizon": 2, "prompts_per_update": 4, "group_size": 8,
               "max_completion_tokens": 10}  # fmt: skip
    assert estimate.tokens(resolve("grpo", **updates)) == 2 * 4 * 8 * 10
    assert estimate.tokens(resolve("agpo", **updates)) == 2 * 4 * (8 + 8) * 10  # and the probe
    assert estimate.tokens(resolve("agpo", horizon_unit="seconds", horizon=60)) is None


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        (200.0, "It fits."),
        (170.0, "Without the batch it fits. Lower rollout_batch"),  # 162.5 GB without, 180.3 GB with
        (80.0, "It does not fit without offload.*it fits from 128 ranks on"),
        (40.0, "It does not fit without offload.*More ranks do not mend that"),
    ],
)
def test_the_verdict_on_memory_names_what_would_mend_it(limit, verdict):
    params = {"launcher": "deepspeed", "ranks": 2, "memory_gb": limit}
    text = estimate._memory(QWEN, resolve("agpo", **PAPER), params)
    assert re.search(verdict, text, re.DOTALL)
