"""Tokenizers with chat templates of every common kind, and a random model that speaks them."""

import string
from typing import NamedTuple

import torch

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace(
    "assistant\n{% endif %}",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}",
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
MISTRAL = (  # no generation prompt, and the system message within the user's
    "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{% set ns.system = m['content'] + '\n\n' %}"
    "{% elif m['role'] == 'user' %}[INST] {{ ns.system + m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
CHANNELS = (  # an answer may have several parts: the token that ends a part does not end the turn
    "{% for m in messages %}<|start|>{{ m['role'] }}{% if m['role'] == 'assistant' %}<|channel|>final{% endif %}"
    "<|message|>{{ m['content'] }}{{ '<|return|>' if loop.last and m['role'] == 'assistant' else '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
HEADERS = (  # a turn ends where the next one's header stands
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BARE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
ALWAYS_ASKS = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
USER_ALONE = "{% for m in messages if m['role'] == 'user' %}Q: {{ m['content'] }}\nA:{% endfor %}"
AS_TEXT = CHATML.replace("<|im_", "<~im_")  # ChatML whose marks are no tokens


class Chat(NamedTuple):
    """A tokenizer's properties: its template, BOS, EOS, other marks, the tokens around a text, and the end of a
    turn."""

    template: str | None
    bos: str | None
    eos: str
    marks: tuple[str, ...] = ()
    around: str = "$A"
    end: str | None = None  # None: EOS alone
    system: bool = True  # whether the template has a place for it


CHATS = {
    "chatml": Chat(CHATML, None, "<|endoftext|>", ("<|im_start|>", "<|im_end|>"), end="<|im_end|>"),
    "thinking": Chat(THINKING, None, "<|endoftext|>", ("<|im_start|>", "<|im_end|>"), end="<|im_end|>"),
    "llama3": Chat(
        LLAMA3, "<|begin_of_text|>", "<|end_of_text|>", ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|begin_of_text|> $A", end="<|eot_id|>",
    ),
    "gemma": Chat(GEMMA, "<bos>", "<eos>", ("<start_of_turn>", "<end_of_turn>"), "<bos> $A", "<end_of_turn>", False),
    "phi": Chat(PHI, None, "<|endoftext|>", ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"), end="<|end|>"),
    "mistral": Chat(MISTRAL, "<s>", "</s>", ("[INST]", "[/INST]"), "<s> $A", end="</s>"),
    "channels": Chat(
        CHANNELS, None, "<|endoftext|>", ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"),
        end="<|return|>",
    ),
    "headers": Chat(HEADERS, None, "<eos>", ("<|user|>", "<|assistant|>", "<|system|>"), end="<|user|>"),
    "bare": Chat(BARE, "<s>", "</s>", around="<s> $A </s>"),
    "always_asks": Chat(ALWAYS_ASKS, "<s>", "</s>", around="<s> $A"),
    "user_alone": Chat(USER_ALONE, None, "</s>", system=False),
    "as_text": Chat(AS_TEXT, None, "</s>", ()),
    "no_template": Chat(None, "<s>", "</s>", around="<s> $A"),
    "closes": Chat(None, "<s>", "</s>", around="<s> $A </s>"),
    "no_bos": Chat(None, None, "</s>"),
}  # fmt: skip

PIECES = ("ab", "th", "e ", "12")  # tokens that the tokenizer never gives for a text, but that can be sampled


def tokenizer_of(chat: str | Chat):
    """One token for each character, mark or piece."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    chat = CHATS[chat] if isinstance(chat, str) else chat
    special = [mark for mark in ("<pad>", "<unk>", chat.bos, chat.eos, *chat.marks) if mark]
    vocabulary = {token: i for i, token in enumerate((*special, *string.printable, *PIECES))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single=chat.around, special_tokens=[(mark, vocabulary[mark]) for mark in special]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=chat.bos,
        eos_token=chat.eos,
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=list(chat.marks),
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat.template
    return tokenizer


def model_of(tokenizer, end: str):
    """A random model, as in `conftest.random_model`, that ends about a third of its completions with the mark `end`."""
    from agpo_core.models.tiny_models import new_model

    model = new_model("llama", tokenizer, seed=0)
    model.config.max_position_embeddings = 512
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight *= 3.0 if "embed" in name else 4.0
        model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(end)] *= 3.0
    return model


def folder_of(name: str, folder) -> str:
    """A model and its tokenizer, saved."""
    tokenizer = tokenizer_of(name)
    model_of(tokenizer, CHATS[name].end or CHATS[name].eos).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
