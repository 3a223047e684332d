"""Supervised fine-tuning and reward models: thin calls into TRL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from agpo_core.rollouts.prompts import PromptFormat

# Settings of every trainer: the model's own dtype, no activation checkpointing by the trainer, and nothing saved or
# sent anywhere.
SHARED = {
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


def sft(
    model,
    tokenizer,
    examples: Sequence[tuple[str, str]],
    *,
    batch_size: int,
    learning_rate: float,
    warmup_steps: int = 0,
    seed: int = 0,
) -> list[dict]:
    """Train `model` in place on (prompt, completion) pairs, one pass, with TRL's SFTTrainer.

    Only the completion is a target. Prompts and the ends of completions are written as in training (see
    `PromptFormat`): as plain text and with the end-of-sequence token, or by the tokenizer's chat template. The
    optimiser is AdamW with betas (.9, .95), without weight decay, with gradients clipped at norm 1. The learning rate
    falls along a cosine to a tenth of its peak.

    Args:
        model: a causal language model; trained in its own dtype, without activation checkpointing.
        tokenizer: its tokenizer, with distinct end-of-sequence and padding tokens.
        examples: (prompt, completion) pairs.
        batch_size: pairs per optimizer step.
        learning_rate: peak rate.
        warmup_steps: optimizer steps of linear warm-up.
        seed: order of the examples.
    Returns:
        TRL's log: a list of dicts with step, loss, learning_rate and more.
    Raises:
        ValueError: the tokenizer has no end-of-sequence token that differs from its padding token.
    """
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    form = PromptFormat(tokenizer)
    prompts, completions = zip(*examples, strict=True)
    rows = [
        {"input_ids": p + c, "labels": [-100] * len(p) + c} for p, c in form.examples(form.texts(prompts), completions)
    ]
    with TemporaryDirectory() as folder:  # nothing is saved there; the trainer wants one
        arguments = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=1,
            learning_rate=learning_rate,
            lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": 0.1},
            warmup_steps=warmup_steps,
            adam_beta2=0.95,
            weight_decay=0.0,
            dataset_kwargs={"skip_prepare_dataset": True},  # tokenised above
            logging_steps=100,
            seed=seed,
            **SHARED,
        )
        data = Dataset.from_list(rows)
        trainer = SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer)
        trainer.train()
    return trainer.state.log_history


def reward_model(
    model,
    tokenizer,
    pairs: Sequence[tuple[str, str, str]],
    *,
    batch_size: int,
    learning_rate: float,
    epochs: int = 1,
    warmup: float = 0.05,
    seed: int = 0,
) -> list[dict]:
    """Train `model` in place to score the chosen completion above the rejected, with TRL's RewardTrainer.

    L = -log σ(r(chosen) - r(rejected)), mean over pairs: `losses.bradley_terry_loss` (Ouyang et al. 2022, Eq. 1)

    A completion is scored after the token that ends the policy's turns (see `PromptFormat`). The optimiser is AdamW
    with betas (.9, .95), without weight decay, with gradients clipped at norm 1. The learning rate falls along a cosine
    to zero.

    Args:
        model: a sequence-classification model with one label; trained in its own dtype.
        tokenizer: its tokenizer, with distinct end-of-sequence and padding tokens.
        pairs: (prompt as the policy sees it, chosen completion, rejected completion), texts.
        batch_size: pairs per optimizer step.
        learning_rate: peak; linear warm-up over the share `warmup` of the steps.
        epochs: passes over the pairs.
        seed: order of the pairs.
    Returns:
        TRL's log: a dict for every step, with loss, accuracy, margin and more.
    Raises:
        ValueError: there is no pair, the model does not have exactly one label, or the tokenizer has no end-of-sequence
            token that differs from its padding token.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import RewardConfig, RewardTrainer

    if not pairs:
        raise ValueError("pairs is empty: no prompt had a chosen and a rejected completion.")
    if model.config.num_labels != 1:
        raise ValueError(
            f"model has {model.config.num_labels} labels, but a reward model has one: load it with num_labels=1."
        )
    form = PromptFormat(tokenizer)
    prompts, *completions = zip(*pairs, strict=True)
    chosen, rejected = ([p + c for p, c in form.examples(prompts, texts)] for texts in completions)
    rows = [{"chosen_ids": c, "rejected_ids": r} for c, r in zip(chosen, rejected, strict=True)]
    steps = math.ceil(len(pairs) / batch_size) * epochs
    with TemporaryDirectory() as folder:  # nothing is saved there; the trainer wants one
        arguments = RewardConfig(
            output_dir=folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=epochs,
            learning_rate=learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=round(warmup * steps),
            adam_beta2=0.95,
            weight_decay=0.0,
            max_length=None,
            logging_steps=1,
            seed=seed,
            **SHARED,
        )
        data = Dataset.from_list(rows)
        trainer = RewardTrainer(model, arguments, train_dataset=data, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)  # it prints a line at every step
        trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]
