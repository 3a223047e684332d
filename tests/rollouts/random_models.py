"""Small random models of many families, and tokenisers of many habits, for the matrix of models."""

import torch

from agpo_core.tasks.micro import ALPHABET

# The names of each family's sizes; each model has 2 layers, width 32 and 4 heads.
LLAMA = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 48, "max_position_embeddings": 128}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
DROPOUTS = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_experts": 4}
FAMILIES = {
    "qwen2": LLAMA,
    "qwen3": LLAMA | {"head_dim": 8},
    "llama": LLAMA | {"attention_dropout": 0.1},
    "gemma2": LLAMA | {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0},
    "gemma3_text": LLAMA | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4},
    "mistral": LLAMA | {"sliding_window": 3},  # shorter than the prompts
    "phi3": LLAMA | {"resid_pdrop": 0.1, "embd_pdrop": 0.1},
    "gpt2": GPT2 | DROPOUTS,
    "opt": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48,
            "word_embed_proj_dim": 32, "max_position_embeddings": 128, "dropout": 0.1},
    "gpt_neox": {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"} | {"hidden_dropout": 0.1},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "hidden_dropout": 0.1, "attention_dropout": 0.1},
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_dropout": 0.1,
               "attention_dropout": 0.1},
    "gpt_bigcode": GPT2 | DROPOUTS,
    "starcoder2": LLAMA | {"residual_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.1},
    "olmo2": LLAMA,
    "granite": LLAMA,
    "mixtral": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "router_jitter_noise": 0.1},
    "qwen2_moe": LLAMA | EXPERTS | {"shared_expert_intermediate_size": 24},
    "olmoe": LLAMA | EXPERTS,
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "dropout": 0.1,
             "max_position_embeddings": 128},
    "biogpt": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
               "hidden_dropout_prob": 0.1, "max_position_embeddings": 128},
}  # fmt: skip

PAD, EOS, UNKNOWN, BOS, TURN = "<pad>", "<eos>", "<unk>", "<bos>", "<turn>"
CHAT = "{% for m in messages %}<bos>{{ m.content }}<turn>{% endfor %}"  # a turn ends with a token that is not EOS


def tokenizer(bos: bool = False, pad: str | None = PAD, eos: str | None = EOS, chat_template: str | None = None):
    """A tokenizer with one token per character.

    Args:
        bos: whether a text opens with a token of its own.
        pad: the padding token; that of the end, or none.
        eos: the token of the end, or none.
        chat_template: as text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate((PAD, EOS, UNKNOWN, BOS, TURN, *ALPHABET))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    if bos:
        opened = {"single": [BOS, "$A"], "pair": [BOS, "$A", "$B"], "special_tokens": [(BOS, vocabulary[BOS])]}
        backend.post_processor = processors.TemplateProcessing(**opened)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        eos_token=eos,
        unk_token=UNKNOWN,
        bos_token=BOS if bos else None,
        additional_special_tokens=[TURN],
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def model_config(family: str, tokenizer, **settings):
    """The configuration of a small model on a tokeniser's vocabulary."""
    from transformers import AutoConfig

    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return AutoConfig.for_model(family, **{"vocab_size": len(tokenizer), **FAMILIES[family], **ids, **settings})


def random_model(family: str, tokenizer, seed: int = 0, **settings):
    """An untrained model whose next token depends on the context.

    Fresh weights are too small for that, so they are scaled up.
    """
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(model_config(family, tokenizer, **settings), dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight *= 4.0
    return model


def save(folder, model, tokenizer) -> str:
    """Save model and tokenizer in one folder; returns its path."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
