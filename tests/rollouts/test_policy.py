"""Policy and reference: computing a prompt once gives the same as the plain path, for every family."""

import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from agpo_core import model_files, paths
from agpo_core.config import ConfigError
from agpo_core.model_files import model_fingerprint, model_source
from agpo_core.rollouts import policy, rollout
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import (
    Reference,
    completion_logits,
    save_policy,
    token_entropy,
    token_logps,
    token_logps_and_T1,
)
from agpo_core.training.batch import Batch, minibatch_loss

families = pytest.mark.parametrize("family", ["qwen2", "llama", "gemma2"])

PROMPTS = ([5, 6], [7, 8, 9, 10, 11], [12, 13, 14])  # token ids, of unequal length
COMPLETIONS = ([20, 21, 22, 23], [24, 1], [25], [26, 27, 28, 29], [30, 31, 1], [1])  # 1: EOS


def left_padded(rows):
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def right_padded(rows):
    width = max(map(len, rows))
    ids = torch.tensor([list(row) + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return ids, mask


def make_batch(prompts=PROMPTS, completions=COMPLETIONS, seed=0):
    """An off-policy batch, whose old and reference log-probabilities differ from the policy's."""
    prompt_ids, prompt_mask = left_padded(prompts)
    ids_B_T, mask_B_T = right_padded(completions)
    B, generator = len(completions), torch.Generator().manual_seed(seed)
    old_B_T, reference_B_T = -2 - 4 * torch.rand(2, *ids_B_T.shape, generator=generator)
    return Batch(
        prompt_ids_P_S=prompt_ids,
        prompt_mask_P_S=prompt_mask,
        completion_ids_B_T=ids_B_T,
        mask_B_T=mask_B_T,
        temperature_B=1 + 0.2 * torch.rand(B, generator=generator),
        keep_B=torch.ones(B, dtype=torch.bool),
        old_logps_B_T=old_B_T,
        old_logps_T1_B_T=old_B_T,
        reference_logps_B_T=reference_B_T,
        entropy=0.0,
        beta=0.03,
        advantages_B_T=torch.randn(B, 1, generator=generator),
        epsilon_B_1=torch.full((B, 1), 0.2),
    )


def gradient(model, batch, config):
    """The loss and its gradient as one vector."""
    model.zero_grad()
    loss, *_ = minibatch_loss(model, batch, config, denominator=len(batch.mask_B_T))
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


def assert_same_gradient(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert (found[1] - expected[1]).norm() <= 1e-5 * expected[1].norm()


# -- a prompt computed once


@families
def test_both_paths_give_the_log_probabilities_of_each_row_alone(config, family):
    model, _ = load_policy(config(family=family))
    batch = make_batch()
    with torch.no_grad():
        shared = token_logps(completion_logits(model, batch), batch.completion_ids_B_T)
        plain = token_logps(completion_logits(model, batch, False), batch.completion_ids_B_T)
        for row, completion in enumerate(COMPLETIONS):  # without padding, without a cache
            prompt = PROMPTS[row // 2]
            logits = model(torch.tensor([[*prompt, *completion]]), use_cache=False).logits
            logps = logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            expected = logps[range(len(completion)), completion]
            for found_B_T in (shared, plain):
                torch.testing.assert_close(found_B_T[row, : len(completion)], expected, rtol=1e-5, atol=2e-5)


@families
def test_both_paths_give_one_loss_and_one_gradient(config, family):
    model, _ = load_policy(config(family=family))
    batch = make_batch()
    shared, plain = (gradient(model, batch, config(family=family, shared_prompt=shared)) for shared in (True, False))
    assert plain[1].norm() > 0.1
    assert_same_gradient(shared, plain)


@families
def test_both_paths_agree_where_no_completion_is_longer_than_one_token(config, family):
    model, _ = load_policy(config(family=family))
    batch = make_batch(completions=([1], [20], [21], [22], [1], [23]))
    shared, plain = (completion_logits(model, batch, shared) for shared in (True, False))
    assert shared.shape == plain.shape == (6, 1, model.config.vocab_size)
    torch.testing.assert_close(shared, plain, rtol=1e-5, atol=2e-5)


def test_what_stands_in_the_padding_does_not_matter(config):
    model, _ = load_policy(config())
    batch, other = make_batch(), make_batch()
    other.prompt_ids_P_S[other.prompt_mask_P_S == 0] = 99
    other.completion_ids_B_T[~other.mask_B_T] = 98
    other.old_logps_B_T[~other.mask_B_T] = float("nan")
    assert_same_gradient(gradient(model, other, config()), gradient(model, batch, config()))


def test_activation_checkpointing_gives_the_loss_and_gradient_of_the_plain_path(config):
    plain = config(shared_prompt=False)
    model, _ = load_policy(plain)
    expected = gradient(model, make_batch(), plain)
    checkpointed = config(shared_prompt=False, activation_checkpointing=True)
    model, _ = load_policy(checkpointed)
    assert model.is_gradient_checkpointing
    assert_same_gradient(gradient(model, make_batch(), checkpointed), expected)


# -- log-probabilities and entropy


def test_log_probability_by_hand():
    # Weights 1, 2, 5 at T = 1; their squares 1, 4, 25 at T = 1/2.
    logits = torch.tensor([1.0, 2.0, 5.0]).log().expand(2, 1, 3)
    ids = torch.tensor([[2], [1]])
    expected = torch.tensor([[5 / 8], [2 / 8]])
    torch.testing.assert_close(token_logps(logits, ids).exp(), expected)
    each = torch.tensor([1.0, 0.5]).view(2, 1, 1)
    expected = torch.tensor([[5 / 8], [4 / 30]])
    torch.testing.assert_close(token_logps(logits, ids, each).exp(), expected)


def test_log_probabilities_are_taken_in_float32():
    logits = torch.tensor([[[8.0, 0.0]]], dtype=torch.bfloat16)
    found = token_logps(logits, torch.tensor([[0]]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(-3.3541e-4, rel=1e-3)  # -log(1 + exp(-8)); 0 in bfloat16


def test_entropy_is_log_v_when_flat_and_zero_when_sure():
    logits = torch.stack([torch.zeros(7), torch.tensor([200.0] + [0.0] * 6)]).unsqueeze(0)
    found = token_entropy(logits)
    torch.testing.assert_close(found, torch.tensor([[7.0, 1.0]]).log())  # log 7, log 1


@pytest.mark.parametrize("logits_at_once", [1, 40, 2**22])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_and_entropy_in_chunks_are_those_of_the_obvious_formula(monkeypatch, logits_at_once, dtype):
    monkeypatch.setattr(policy, "LOGITS_AT_ONCE", logits_at_once)
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(3, 5, 17, generator=generator)).to(dtype)
    ids = torch.randint(17, (3, 5), generator=generator)
    temperature, weight = torch.tensor([0.5, 1.0, 1.7]).view(3, 1, 1), torch.randn(3, 5, generator=generator)

    def obvious(logits, temperature=1.0):
        return (logits.float() / temperature).log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)

    def entropy(logits):
        logps = logits.float().log_softmax(-1)
        return -(logps.exp() * logps).sum(-1)

    cases = [
        (lambda x: token_logps(x, ids), obvious),
        (lambda x: token_logps(x, ids, temperature), lambda x: obvious(x, temperature)),
        (
            lambda x: sum(token_logps_and_T1(x, ids, temperature)),
            lambda x: obvious(x, temperature) + obvious(x),
        ),
        (token_entropy, entropy),
    ]

    def with_gradient(of):
        x = logits.clone().requires_grad_()
        found = of(x)
        return found.detach(), torch.autograd.grad((found * weight).sum(), x)[0]

    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    for found_of, expected_of in cases:
        (found, found_gradient), (expected, gradient) = map(with_gradient, (found_of, expected_of))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found_gradient, gradient, rtol=tolerance, atol=tolerance)
        assert found_gradient.dtype == dtype


@pytest.mark.parametrize("critic", ["head", "model"])
def test_a_critic_reads_hidden_states_of_whatever_width_they_have(critic):
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 32, "num_attention_heads": 2}
    model = OPTForCausalLM(OPTConfig(vocab_size=64, num_hidden_layers=2, do_layer_norm_before=False, **shape)).eval()
    held, batch = policy.ActorCritic(model, critic), make_batch()
    logits, values = held(batch, shared=False)
    assert values.shape == batch.completion_ids_B_T.shape and logits.shape[-1] == 64
    values.sum().backward()
    assert held.value_head.weight.grad.abs().sum() > 0


GROWTH = """
import re, sys, torch
from agpo_core.rollouts import policy, rollout
torch.set_num_threads(1)
N, V = 48, 152_000
logits_1_N_V = torch.randn(1, N, V, requires_grad=True)
ids = torch.randint(V, (1, N))
tau = torch.full((N,), 1.2)

def growth(call):
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
    before = peak()
    call()
    logits_1_N_V.grad = None
    return (peak() - before) / 2**20

def backward(of):
    return lambda: sum(part.sum() for part in of(logits_1_N_V, ids, tau.view(1, N, 1))).backward()

rows, tau_B, u_B = logits_1_N_V.detach()[0, :24], tau[:24], torch.rand(24, dtype=torch.float64)
print(growth(lambda: rollout.sample_token(rows, tau_B, 0.95, u_B)))
print(growth(backward(policy.token_logps)))
print(growth(backward(policy.token_logps_and_T1)))
print(growth(backward(lambda x, *_: policy.token_entropy(x))))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's count of peak memory")
def test_sampling_and_log_probabilities_of_a_large_vocabulary_add_one_chunk_to_memory():
    # Large blocks are returned to the system at once; otherwise freed memory that is kept would count
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", GROWTH], env=env, capture_output=True, text=True, check=True)
    sampler, one, two, entropy = map(float, done.stdout.split())
    logits = 48 * 152_000 * 4 / 2**20  # MiB: 28; at once the sampler takes 15 times its rows, a backward 4 times
    chunk, rows = policy.LOGITS_AT_ONCE * 4 / 2**20, rollout.LOGITS_AT_ONCE * 8 / 2**20
    assert sampler < 6 * rows
    assert one < logits + 2 * chunk  # the gradient of the logits, and a chunk's intermediate values
    assert two < logits + 3 * chunk
    assert entropy < logits + 4 * chunk


# -- loading


def test_dropout_is_off_in_training_mode(config, model_folders, tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    noisy = AutoConfig.from_pretrained(model_folders["qwen2"], attention_dropout=0.5)
    AutoModelForCausalLM.from_config(noisy).save_pretrained(tmp_path)
    load_policy(config())[1].save_pretrained(tmp_path)
    model, _ = load_policy(config().replace(model=str(tmp_path)))
    assert model.training
    with torch.no_grad():
        first, second = (completion_logits(model, make_batch()) for _ in range(2))
    assert first.equal(second)


def test_a_missing_model_raises_and_names_the_embedded_ones(config, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # do not wait for it
    (tmp_path / "tiny-one").mkdir()
    (tmp_path / "tiny-one" / "config.json").write_text("{}")
    monkeypatch.setattr(paths, "models", lambda: tmp_path)
    for missing in ("no-such-model", str(tmp_path / "nowhere")):
        with pytest.raises(ConfigError, match=r"could not be loaded: give an embedded .*tiny-one"):
            load_policy(config().replace(model=missing))


def test_a_folder_that_holds_no_model_raises(config, tmp_path):
    with pytest.raises(ConfigError, match="could not be loaded"):
        load_policy(config().replace(model=str(tmp_path)))


def test_a_model_lies_in_the_package_in_a_folder_or_on_the_hub(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "models", lambda: tmp_path / "models")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for folder in ("models/tiny", "outputs/policy"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    assert model_source("tiny") == str(tmp_path / "models/tiny")
    assert model_source("outputs/policy") == str(tmp_path / "outputs/policy")
    assert model_source(str(tmp_path / "outputs")) == str(tmp_path / "outputs")
    assert model_source("owner/name") == "owner/name"


def test_a_tokenizer_without_padding_pads_with_end_of_sequence(config, model_folders, tmp_path):
    model, tokenizer = load_policy(config())
    tokenizer.pad_token = None
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = {k: v for k, v in json.loads(path.read_text()).items() if k != "pad_token"}
    path.write_text(json.dumps(settings))
    _, tokenizer = load_policy(config().replace(model=str(tmp_path)))
    assert tokenizer.pad_token == tokenizer.eos_token
    assert tokenizer.padding_side == "left"


# -- what a model is


def test_the_fingerprint_is_of_the_content_and_not_of_the_place(config, model_folders, tmp_path):
    first = shutil.copytree(model_folders["qwen2"], tmp_path / "first")
    found = model_fingerprint(str(first))
    assert re.fullmatch("[0-9a-f]{20}", found)
    assert model_fingerprint(str(shutil.move(first, tmp_path / "second"))) == found
    (tmp_path / "second" / "notes.txt").write_text("no part of the model")
    os.utime(tmp_path / "second" / "config.json", (1, 1))
    assert model_fingerprint(str(tmp_path / "second")) == found
    assert model_fingerprint(model_folders["llama"]) != found
    shipped = model_files.embedded_models()
    assert len({model_fingerprint(name) for name in shipped}) == len(shipped)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json", "tokenizer.json"])
def test_another_byte_gives_another_fingerprint(model_folders, tmp_path, name):
    folder = shutil.copytree(model_folders["qwen2"], tmp_path / "model")
    found, path = model_fingerprint(str(folder)), folder / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert model_fingerprint(str(folder)) != found
    path.unlink()
    assert model_fingerprint(str(folder)) != found


def test_the_fingerprint_of_an_adapter_knows_its_base(model_folders, tmp_path):
    base, adapter = shutil.copytree(model_folders["qwen2"], tmp_path / "base"), tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    found = model_fingerprint(str(adapter))
    (base / "config.json").write_text("{}")
    assert model_fingerprint(str(adapter)) != found
    for base in (str(adapter), 5, None):  # of no use; loading it is refused
        (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        assert model_fingerprint(str(adapter))
    (tmp_path / "other").mkdir()
    for one, base in (("adapter", "other"), ("other", "adapter")):  # each names the other
        text = json.dumps({"base_model_name_or_path": str(tmp_path / base)})
        (tmp_path / one / "adapter_config.json").write_text(text)
    assert model_fingerprint(str(adapter)) != model_fingerprint(str(tmp_path / "other"))


def test_a_hub_model_has_the_fingerprint_of_its_snapshot_in_the_cache(model_folders, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert model_fingerprint("owner/name") is None
    assert model_fingerprint("no hub id") is None
    commit, repo = "0" * 40, tmp_path / "models--owner--name"
    shutil.copytree(model_folders["qwen2"], repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    assert model_fingerprint("owner/name") == model_fingerprint(model_folders["qwen2"])


# -- reference


def one_step(model, config):
    """Move every trainable weight."""
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    minibatch_loss(model, make_batch(), config, denominator=6)[0].backward()
    optimiser.step()


def policy_logps(model, batch):
    with torch.no_grad():
        return token_logps(completion_logits(model, batch), batch.completion_ids_B_T)


def test_a_frozen_copy_stays_where_the_policy_started(config):
    model, _ = load_policy(config())
    reference, batch = Reference(model, config()), make_batch()
    start = policy_logps(model, batch)
    assert reference.kind == "frozen_copy"
    assert not any(p.requires_grad for p in reference.copy.parameters())
    one_step(model, config())
    torch.testing.assert_close(reference.logps(batch, shared=True), start)
    assert not policy_logps(model, batch).allclose(start, atol=1e-3)


@pytest.mark.parametrize("kind", ["auto", "frozen_copy"])
def test_under_lora_the_reference_is_the_policy_at_its_start(config, kind):
    pytest.importorskip("peft", reason="LoRA needs the package peft")
    c, batch = config(lora_rank=2, reference=kind), make_batch()
    model, _ = load_policy(c)
    reference = Reference(model, c)
    assert reference.kind == ("adapter_disabled" if kind == "auto" else kind)
    whole, _ = load_policy(config())
    start = policy_logps(whole, batch)
    torch.testing.assert_close(policy_logps(model, batch), start)  # new adapters change nothing
    for _ in range(2):  # the first step moves one factor of each adapter alone
        one_step(model, c)
    torch.testing.assert_close(reference.logps(batch, shared=True), start)
    assert not policy_logps(model, batch).allclose(start, atol=1e-3)


def test_lora_trains_adapters_alone(config):
    pytest.importorskip("peft", reason="LoRA needs the package peft")
    model, _ = load_policy(config(lora_rank=2))
    assert {name.split(".")[-3] for name, p in model.named_parameters() if p.requires_grad} == {
        "lora_A",
        "lora_B",
    }


@pytest.mark.parametrize("kind", ["none", "auto"])
def test_without_a_penalty_there_is_no_reference(config, kind):
    c = config(reference=kind, beta=0.0)
    reference = Reference(load_policy(c)[0], c)
    assert reference.copy is None
    assert reference.logps(make_batch(), shared=True) is None


# -- saving


def test_a_saved_policy_loads_as_it_was_and_replaces_an_earlier_one(config, tmp_path):
    model, tokenizer = load_policy(config())
    batch, folder = make_batch(), tmp_path / "policy"
    save_policy(model, tokenizer, folder)
    one_step(model, config())
    save_policy(model, tokenizer, folder)
    again, again_tokenizer = load_policy(config().replace(model=str(folder)))
    assert policy_logps(again, batch).equal(policy_logps(model, batch))
    assert again_tokenizer.get_vocab() == tokenizer.get_vocab()
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_saving_that_fails_leaves_the_earlier_policy(config, tmp_path):
    model, tokenizer = load_policy(config())
    save_policy(model, tokenizer, tmp_path / "policy")
    broken = SimpleNamespace(save_pretrained=lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_policy(model, broken, tmp_path / "policy")
    load_policy(config().replace(model=str(tmp_path / "policy")))
