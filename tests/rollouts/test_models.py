"""The matrix of models and tokenisers: each trains as it is, or is refused when it is loaded, with the reason."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agpo_core import model_files, provenance
from agpo_core.config import ConfigError
from agpo_core.rollouts import model_parts, policy
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import Reference, completion_logits, save_policy, token_logps
from agpo_core.training.train import train
from tests.rollouts import random_models as models
from tests.rollouts.test_policy import COMPLETIONS, PROMPTS, make_batch

MARGIN = {"rtol": 1.0e-4, "atol": 1.0e-4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Save a random model: folder("gpt2", tokenizer, settings of the model) gives its path."""

    def build(family, tokenizer=None, **settings) -> Path:
        tokenizer = tokenizer or models.tokenizer()
        place = tmp_path_factory.mktemp(family)
        return models.save(place, models.random_model(family, tokenizer, **settings), tokenizer)

    return build


@pytest.fixture(scope="module")
def llama(folder):
    return folder("llama")


@pytest.fixture
def copied(llama, tmp_path):
    """A model's folder, to be damaged."""
    return shutil.copytree(llama, tmp_path / "model")


@pytest.fixture
def one_update(config, toy_tasks, tmp_path, monkeypatch):
    """Train one update from a model; returns its line of metrics, the model's log-probabilities, and its folder."""
    seen = []

    def saving(model, tokenizer, place):
        seen.append(logps(model))
        save_policy(model, tokenizer, place)

    def run(model, **params):
        few = {"horizon": 1.0, "prompts_per_update": 2, "minibatches": 1, "epochs": 1, "max_completion_tokens": 4,
               "dev_problems": 2, "test_problems": 0, "max_sequence_tokens": 64, "top_p": 1.0}  # fmt: skip
        monkeypatch.setattr(policy, "save_policy", saving)
        c = config(**few | params).replace(model=str(model))
        (tmp_path / "run").mkdir()
        train(c, tmp_path / "run")
        (row,) = provenance.read_jsonl(tmp_path / "run" / "metrics.jsonl")
        return row, seen[-1], c.replace(model=str(tmp_path / "run" / "policy"))

    return run


def logps(model, shared=True):
    batch = make_batch()
    with torch.no_grad():
        found = token_logps(completion_logits(model, batch, shared), batch.completion_ids_B_T)
    return found * batch.mask_B_T


def logps_alone(model):
    """A slow loop: each row by itself, without padding and without a cache."""
    found = torch.zeros(make_batch().mask_B_T.shape)
    for i, completion in enumerate(COMPLETIONS):
        prompt = PROMPTS[i * len(PROMPTS) // len(COMPLETIONS)]
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *completion]]), use_cache=False).logits[0].log_softmax(-1)
        for t, token in enumerate(completion):
            found[i, t] = logits[len(prompt) + t - 1, token]
    return found


def edit(path: Path, **values) -> None:
    """Change entries of a JSON file; None takes one out."""
    content = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def refusal(config, model, **params) -> str:
    """Why a model is refused: one line."""
    with pytest.raises(ConfigError) as caught:
        load_policy(config(**params).replace(model=str(model)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- each family, each tokeniser


@pytest.mark.parametrize("family", models.FAMILIES)
def test_a_model_of_each_family_trains(config, folder, one_update, family):
    place = folder(family)
    model, tokenizer = load_policy(config(max_sequence_tokens=64).replace(model=str(place)))
    assert logps(model).equal(logps(model))  # in training mode
    for found in (logps(model), logps(model, shared=False)):
        torch.testing.assert_close(found, logps_alone(model), **MARGIN)
    row, trained, after = one_update(place)
    assert abs(row["sampler_gap"]) < 1.0e-4  # the sampler's own log-probabilities are those of training
    assert row["clip_fraction"] == 0  # of one step, whose ratio is 1
    assert not trained.equal(logps(model)), "the update moved nothing"
    again, again_tokenizer = load_policy(after)
    torch.testing.assert_close(logps(again), trained, rtol=0, atol=1.0e-6)
    assert again_tokenizer.get_vocab() == tokenizer.get_vocab()


def test_a_model_that_reads_text_and_images_trains_on_text(folder, one_update, monkeypatch):
    image = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
             "image_size": 28, "patch_size": 14}  # fmt: skip
    text = models.FAMILIES["gemma3_text"] | {"vocab_size": len(models.tokenizer()), "pad_token_id": 0}
    parts = {"text_config": text, "vision_config": image, "mm_tokens_per_image": 4, "image_token_index": 5}
    monkeypatch.setitem(models.FAMILIES, "gemma3", parts)
    place = Path(folder("gemma3"))
    edit(place / "config.json", vocab_size=None)  # only the configuration of the text part has it
    row, trained, after = one_update(place, clip="adaptive")
    assert abs(row["sampler_gap"]) < 1.0e-4
    torch.testing.assert_close(logps(load_policy(after)[0]), trained, rtol=0, atol=1.0e-6)


TOKENISERS = {
    "with bos": ({"bos": True}, {}),
    "pad is eos": ({"pad": models.EOS}, {}),
    "no pad": ({"pad": None}, {}),
    "several ends": ({}, {"eos_token_id": [1, 4]}),
    "a turn's end that is not eos": ({"bos": True, "chat_template": models.CHAT}, {"eos_token_id": [4]}),
    "eos by the model alone": ({"eos": None, "pad": None}, {"eos_token_id": 1}),
}


@pytest.mark.parametrize("family", ["llama", "opt"])
@pytest.mark.parametrize("habit", TOKENISERS)
def test_a_tokeniser_of_each_habit_trains(folder, one_update, family, habit):
    settings, generation = TOKENISERS[habit]
    place = folder(family, models.tokenizer(**settings))
    edit(Path(place) / "generation_config.json", **generation)
    row, trained, after = one_update(place)
    assert abs(row["sampler_gap"]) < 1.0e-4
    again, tokenizer = load_policy(after)
    torch.testing.assert_close(logps(again), trained, rtol=0, atol=1.0e-6)
    assert tokenizer.padding_side == "left" and tokenizer.pad_token_id is not None
    if "eos_token_id" in generation:
        assert again.generation_config.eos_token_id == generation["eos_token_id"]


def test_a_tokeniser_of_the_general_class_is_read_as_it_was_saved(config, folder):
    saved, place = models.tokenizer(), folder("qwen2")  # AutoTokenizer would take Qwen2's own class
    _, tokenizer = load_policy(config().replace(model=str(place)))
    assert tokenizer.get_vocab() == saved.get_vocab()
    assert tokenizer("a  b!")["input_ids"] == saved("a  b!")["input_ids"]


# -- what a forward pass shows


def test_noise_that_no_setting_switches_off_is_refused_by_name(config, folder, monkeypatch):
    place = folder("gpt2")
    monkeypatch.setattr(model_parts, "nested_configs", lambda model_config: [])
    said = refusal(config, place, max_sequence_tokens=64)
    assert re.search(r"two forward passes with the same weights differ by .* Switch off .*drop.*\.p", said)


def test_weights_that_are_no_numbers_are_refused(config, copied):
    path, name = copied / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    whole = load_file(path)
    save_file(whole | {name: whole[name] * float("nan")}, path, {"format": "pt"})
    assert "NaN" in refusal(config, copied)


RECURRENT = {"num_hidden_layers": 2, "hidden_size": 32, "layer_types": ["linear_attention", "full_attention"]}
REFUSED = {
    "mamba": ({"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}, "cache"),
    "lfm2": (models.LLAMA | {"layer_types": ["conv", "full_attention"]}, "cache"),
    "qwen3_next": (models.LLAMA | models.EXPERTS | RECURRENT, "cache"),
    "openai-gpt": (models.GPT2, "cache"),
    "bert": (models.LLAMA, "depends on the tokens after it"),
    "rwkv": ({"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}, "padding"),
}


@pytest.mark.parametrize("family", REFUSED)
def test_what_the_loop_cannot_train_is_refused_when_it_is_loaded(config, folder, monkeypatch, family):
    settings, reason = REFUSED[family]
    monkeypatch.setitem(models.FAMILIES, family, settings)
    assert reason in refusal(config, folder(family), max_sequence_tokens=64)


@pytest.mark.parametrize("kind", ["t5", "bart", "vit", "whisper", "clip"])
def test_what_is_no_causal_language_model_is_refused(config, copied, kind):
    edit(copied / "config.json", model_type=kind)
    assert re.search("config.json.*take a causal language model", refusal(config, copied))


@pytest.mark.parametrize(("family", "positions"), [("gpt2", 128), ("opt", 128), ("gpt_bigcode", 128), ("biogpt", 128)])
def test_the_longest_sequence_is_held_against_a_table_of_positions(config, folder, family, positions):
    place = folder(family)
    said = refusal(config, place, max_sequence_tokens=positions + 1)
    assert f"max_sequence_tokens to {positions} or less" in said
    model, _ = load_policy(config(max_sequence_tokens=positions).replace(model=str(place)))
    with torch.no_grad():
        model(torch.zeros((1, positions), dtype=torch.long))


@pytest.mark.parametrize("family", ["llama", "bloom", "mistral", "xglm"])
def test_positions_without_a_table_have_no_end(config, folder, family):
    load_policy(config(max_sequence_tokens=4096).replace(model=str(folder(family))))


def test_trying_a_model_moves_no_random_stream(config, llama):
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        states += [torch.get_rng_state()] * (not states)
        load_policy(config().replace(model=llama))
        states.append(torch.get_rng_state())
    assert all(state.equal(states[0]) for state in states)


# -- attention


def test_a_model_that_caps_attention_logits_gets_attention_that_does(config, folder):
    place = folder("gemma2", attn_logit_softcapping=0.2)
    found = {}
    for wanted in ("auto", "eager", "sdpa"):
        model, _ = load_policy(config(attn_implementation=wanted).replace(model=str(place)))
        found[wanted] = logps(model)
    assert found["auto"].equal(found["eager"])
    assert (found["sdpa"] - found["eager"]).abs().max() > 0.01  # SDPA silently ignores the cap


def test_a_model_without_a_cap_keeps_the_library_s_choice(config, llama):
    assert load_policy(config().replace(model=llama))[0].config._attn_implementation == "sdpa"
    eager, _ = load_policy(config(attn_implementation="eager").replace(model=llama))
    assert eager.config._attn_implementation == "eager"


def test_flash_attention_says_what_it_needs(config, llama):
    assert "bfloat16" in refusal(config, llama, attn_implementation="flash_attention_2")
    said = refusal(config, llama, attn_implementation="flash_attention_2", dtype="bfloat16")
    assert "GPU" in said


# -- folders that do not fit together


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [b"no json", b"[]", b"\xff\xfe\x00", b""])
def test_a_broken_configuration_file_is_named(config, copied, name, content):
    (copied / name).write_bytes(content)
    assert name in refusal(config, copied)


@pytest.mark.parametrize("content", [None, b"no json", b"[]", b"\xff\xfe\x00", b"{}"])
def test_a_broken_or_missing_tokeniser_is_refused(config, copied, content):
    path = copied / "tokenizer.json"
    path.unlink() if content is None else path.write_bytes(content)
    assert "tokenizer" in refusal(config, copied)


@pytest.mark.parametrize("settings", [{"model_max_length": "many"}, {"added_tokens_decoder": [1]}], ids=str)
def test_a_tokeniser_with_a_setting_of_the_wrong_type_is_refused(config, copied, settings):
    edit(copied / "tokenizer_config.json", **settings)
    assert "tokenizer could not be loaded" in refusal(config, copied)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_folder_without_any_tokeniser_is_refused(config, folder, family):
    place = Path(folder(family))
    for path in place.glob("tokenizer*"):
        path.unlink()
    assert "tokenizer" in refusal(config, place)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_size": 64},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 1},
        {"num_attention_heads": 3},
        {"vocab_size": 100},
        {"intermediate_size": 32},
        {"model_type": "gpt2"},
        {"model_type": "nonesuch"},
        {"model_type": None},
        {"hidden_size": "many"},
        {"attention_bias": True},
    ],
    ids=str,
)
def test_a_configuration_of_another_size_or_type_is_refused(config, copied, settings):
    edit(copied / "config.json", **settings)
    said = refusal(config, copied)
    assert "config" in said and str(copied) in said


@pytest.mark.parametrize("content", [None, b"123", "half"])
def test_a_broken_or_missing_checkpoint_is_refused(config, copied, content):
    path = copied / "model.safetensors"
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    assert "could not be loaded" in refusal(config, copied)


def test_a_checkpoint_that_lacks_a_tensor_or_has_one_too_many_is_refused(config, copied):
    path = copied / "model.safetensors"
    whole = load_file(path)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({k: v for k, v in whole.items() if k != name}, path, {"format": "pt"})
    assert re.search(f"lacks tensors.*{name}", refusal(config, copied))
    save_file(whole | {"model.layers.0.extra.weight": torch.zeros(2)}, path, {"format": "pt"})
    assert "model.layers.0.extra.weight" in refusal(config, copied)


def test_tied_weights_and_rotary_buffers_of_older_checkpoints_do_not_matter(config, folder):
    place = Path(folder("llama", tie_word_embeddings=True))
    path = place / "model.safetensors"
    whole = load_file(path)
    assert "lm_head.weight" not in whole
    expected = logps(load_policy(config().replace(model=str(place)))[0])
    for extra in ("lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"):
        tensor = whole["model.embed_tokens.weight"] if "head" in extra else torch.ones(4)
        save_file(whole | {extra: tensor.clone()}, path, {"format": "pt"})
        assert logps(load_policy(config().replace(model=str(place)))[0]).equal(expected)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_that_comes_with_a_model_is_refused_and_not_run(config, copied, name):
    (copied / "evil.py").write_text(f"open({str(copied / 'ran')!r}, 'w')\nEvil = None\n")
    classes = {c: "evil.Evil" for c in ("AutoConfig", "AutoModelForCausalLM")} | {"AutoTokenizer": ["evil.Evil", None]}
    edit(copied / name, auto_map=classes)
    assert re.search(f"{name}.*evil.Evil.*never run", refusal(config, copied))
    edit(copied / name, auto_map={"AutoTokenizer": [None, None]})  # names nothing
    load_policy(config().replace(model=str(copied)))
    assert not (copied / "ran").exists()


def other_tokeniser(place: Path, change) -> None:
    path = place / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_tokeniser_of_another_model_is_refused(config, copied):
    def one_more(content):
        content["model"]["vocab"]["丑"] = len(content["model"]["vocab"])

    def few(content):
        content["model"]["vocab"] = dict(list(content["model"]["vocab"].items())[:20])

    whole = (copied / "tokenizer.json").read_bytes()
    for change, reason in ((one_more, "ids up to 139"), (few, "20 tokens for the 139 rows")):
        (copied / "tokenizer.json").write_bytes(whole)
        other_tokeniser(copied, change)
        assert reason in refusal(config, copied)


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_an_end_that_is_an_ordinary_token_is_refused(config, copied, where):
    if where == "config.json":
        (copied / "generation_config.json").unlink()
    edit(copied / where, eos_token_id=30)
    assert re.search("ends a text at token 30.*ordinary", refusal(config, copied))
    edit(copied / "generation_config.json", eos_token_id=[1, 30])  # one end more than the tokeniser's own
    load_policy(config().replace(model=str(copied)))


def test_no_end_at_all_is_refused(config, folder):
    place = Path(folder("llama", models.tokenizer(eos=None)))
    assert "no end-of-sequence token" in refusal(config, place)


def test_an_end_that_the_tokeniser_does_not_know_is_no_end(config, folder):
    place = Path(folder("llama", models.tokenizer(eos=None, pad=None), vocab_size=160))
    edit(place / "generation_config.json", eos_token_id=[150, 9999])
    assert "no end-of-sequence token" in refusal(config, place)


@pytest.mark.parametrize("value", ["hot", [1, "hot"], -1, True])
def test_an_end_that_is_no_id_is_refused(config, copied, value):
    edit(copied / "generation_config.json", eos_token_id=value)
    assert "eos_token_id" in refusal(config, copied)


# -- what is saved


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7},
        {"top_p": 0.9, "top_k": 20},
        {"temperature": "hot"},
        {"length_penalty": 2.0},
        {"pad_token_id": -1},
        {"cache_implementation": "static", "use_cache": False},
    ],
    ids=str,
)
def test_a_generation_config_that_could_not_be_saved_is_cleaned_at_the_start(config, copied, tmp_path, settings):
    edit(copied / "generation_config.json", eos_token_id=[1, 4], **settings)
    with pytest.warns(UserWarning, match="generation_config.json"):
        model, tokenizer = load_policy(config().replace(model=str(copied)))
    save_policy(model, tokenizer, tmp_path / "policy")
    again, _ = load_policy(config().replace(model=str(tmp_path / "policy")))
    assert again.generation_config.eos_token_id == [1, 4]


def test_a_sound_generation_config_is_saved_as_it_was(config, copied, tmp_path):
    edit(copied / "generation_config.json", do_sample=True, temperature=0.7, top_p=0.9)
    save_policy(*load_policy(config().replace(model=str(copied))), tmp_path / "policy")
    saved = json.loads((tmp_path / "policy" / "generation_config.json").read_text())
    assert (saved["do_sample"], saved["temperature"], saved["top_p"]) == (True, 0.7, 0.9)


@pytest.mark.parametrize("settings", [{"max_new_tokens": -1}, {"num_return_sequences": 3}], ids=str)
def test_a_generation_config_that_cannot_be_read_is_refused(config, copied, settings):
    edit(copied / "generation_config.json", **settings)
    assert next(iter(settings)) in refusal(config, copied)


def test_what_cannot_be_saved_is_refused_at_the_start(config, llama, monkeypatch):
    from transformers import PreTrainedTokenizerFast

    def refuse(*arguments, **named):
        raise ValueError("no room\nfor this")

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", refuse)
    assert re.search("could not be saved.*no room for this", refusal(config, llama))


def test_a_model_in_bfloat16_is_saved_as_it_is(config, folder, tmp_path):
    c = config(dtype="bfloat16").replace(model=str(folder("llama", tie_word_embeddings=True)))
    model, tokenizer = load_policy(c)
    assert model.dtype == torch.bfloat16
    save_policy(model, tokenizer, tmp_path / "policy")
    assert logps(load_policy(c.replace(model=str(tmp_path / "policy")))[0]).equal(logps(model))


# -- LoRA


@pytest.fixture
def adapter(config, tmp_path):
    """Save a policy whose adapters have moved: adapter(base) gives the policy, its tokenizer and its folder."""

    def build(base, **params):
        torch.manual_seed(0)
        model, tokenizer = load_policy(config(lora_rank=2, max_sequence_tokens=64, **params).replace(model=str(base)))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.05)
        save_policy(model, tokenizer, tmp_path / "adapter")
        return model, tokenizer, tmp_path / "adapter"

    return build


@pytest.mark.parametrize("base", ["tiny-qwen2-a", "tiny-gemma2", "llama", "gpt2", "mixtral"])
def test_a_saved_adapter_loads_everywhere_with_the_same_log_probabilities(config, folder, adapter, base):
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer, place = adapter(base if base in model_files.embedded_models() else folder(base))
    c, expected = config(max_sequence_tokens=64).replace(model=str(place)), logps(model)
    on, _ = load_policy(c.replace(lora_rank=2))
    merged, again = load_policy(c)
    assert logps(on).equal(expected)
    torch.testing.assert_close(logps(merged), expected, **MARGIN)
    assert {name for name, p in on.named_parameters() if p.requires_grad} == {
        name for name, p in model.named_parameters() if p.requires_grad
    }
    assert all(p.requires_grad for p in merged.parameters()) and not hasattr(merged, "peft_config")
    if base != "tiny-gemma2":  # by default the library picks attention that ignores the cap
        for library in (AutoPeftModelForCausalLM, AutoModelForCausalLM):
            torch.testing.assert_close(logps(library.from_pretrained(place)), expected, **MARGIN)
    text = "Is 12 + 3 = 15?"
    for found in (again, AutoTokenizer.from_pretrained(place)):
        assert found(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_an_adapter_of_another_rank_is_refused_and_both_ways_out_are_named(config, llama, adapter):
    place = adapter(llama)[2]
    said = refusal(config, place, lora_rank=4)
    assert re.search("set lora_rank to 2 .*, or to 0 to merge", said)


@pytest.mark.parametrize("rank", [0, 2])
def test_training_goes_on_from_an_adapter(llama, adapter, one_update, rank):
    start, _, place = adapter(llama)
    row, trained, after = one_update(place, lora_rank=rank, beta=0.1)
    assert abs(row["reference_kl"]) < 1.0e-5  # the reference is the start, and not the base model
    assert not trained.equal(logps(start))
    assert (trained - logps(start)).abs().max() < 1.0  # and not far from it
    torch.testing.assert_close(logps(load_policy(after)[0]), trained, **MARGIN)


def test_an_adapter_that_is_trained_on_has_its_start_as_reference(config, llama, adapter):
    model, _, place = adapter(llama)
    c = config(lora_rank=2).replace(model=str(place))
    reference = Reference(load_policy(c)[0], c)
    assert reference.kind == "frozen_copy"
    torch.testing.assert_close(reference.logps(make_batch(), True) * make_batch().mask_B_T, logps(model))


def test_a_damaged_adapter_is_refused(config, llama, adapter):
    place = adapter(llama)[2]
    settings, weights = (place / name for name in ("adapter_config.json", "adapter_model.safetensors"))
    whole, tensors = settings.read_bytes(), load_file(weights)
    some = dict(list(tensors.items())[2:])
    save_file(some, weights, {"format": "pt"})
    assert "does not fit its base model" in refusal(config, place, lora_rank=2)
    save_file(tensors, weights, {"format": "pt"})
    for content, reason in (
        ({"base_model_name_or_path": str(place / "gone")}, "gone"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"base_model_name_or_path": 5}, "base_model_name_or_path"),
        ({"base_model_name_or_path": [str(llama)]}, "base_model_name_or_path"),
        ({"base_model_name_or_path": str(place)}, "holds an adapter itself"),
        ({"modules_to_save": ["lm_head"]}, "lm_head"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"peft_type": "NONESUCH"}, "adapter_config.json"),
    ):
        settings.write_bytes(whole)
        edit(settings, **content)
        assert reason in refusal(config, place, lora_rank=2)
    settings.write_bytes(whole)
    edit(settings, layer_replication=[[0, 2], [0, 2]])
    assert "set lora_rank to 2" in refusal(config, place)
    settings.write_bytes(b"no json")
    assert "adapter_config.json" in refusal(config, place, lora_rank=2)


def test_an_adapter_without_the_biases_that_it_trained_is_refused(config, folder, adapter):
    place = adapter(folder("gpt2"))[2]
    edit(place / "adapter_config.json", bias="all")
    assert "does not fit its base model" in refusal(config, place, lora_rank=2, max_sequence_tokens=64)


def test_an_adapter_s_dropout_is_off(config, llama, adapter):
    place = adapter(llama)[2]
    edit(place / "adapter_config.json", lora_dropout=0.5)
    model, _ = load_policy(config(lora_rank=2).replace(model=str(place)))
    assert logps(model).equal(logps(model))
