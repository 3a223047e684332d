"""Supervised fine-tuning: a thin call into TRL."""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory


def sft(
    model,
    tokenizer,
    examples: Sequence[tuple[str, str]],
    *,
    batch_size: int,
    learning_rate: float,
    final_rate: float = 0.1,
    warmup_steps: int = 0,
    epochs: int = 1,
    seed: int = 0,
):
    """Train `model` in place on (prompt, completion) pairs with TRL's SFTTrainer; only the completion is a target.

    Every completion is closed by the end-of-sequence token. The learning rate falls along a cosine.

    Args:
        model: a causal language model; trained in its own dtype, without activation checkpointing.
        tokenizer: its tokenizer, with distinct end-of-sequence and padding tokens.
        examples: (prompt, completion) pairs.
        batch_size: pairs per optimizer step.
        learning_rate: AdamW's peak rate, betas (.9, .95), no weight decay.
        final_rate: last learning rate, as a fraction of the peak in [0, 1].
        warmup_steps: optimizer steps of linear warm-up.
        epochs: passes over `examples`.
        seed: order of the examples.
    Returns:
        TRL's log: a list of dicts with step, loss, learning_rate …
    Raises:
        ValueError: the tokenizer cannot mark an end apart from padding.
    """
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    if tokenizer.eos_token_id is None or tokenizer.eos_token_id == tokenizer.pad_token_id:
        raise ValueError("tokenizer: give it an eos token that is not its pad token, or ends are never learned")
    prompts, completions = zip(*examples, strict=True)
    prompt_ids = tokenizer(list(prompts))["input_ids"]
    completion_ids = [ids + [tokenizer.eos_token_id] for ids in tokenizer(list(completions))["input_ids"]]
    data = Dataset.from_dict(
        {
            "input_ids": [p + c for p, c in zip(prompt_ids, completion_ids, strict=True)],
            "labels": [[-100] * len(p) + c for p, c in zip(prompt_ids, completion_ids, strict=True)],
        }
    )
    with TemporaryDirectory() as folder:  # nothing is saved there; the trainer wants one
        arguments = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=epochs,
            learning_rate=learning_rate,
            lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": final_rate},
            warmup_steps=warmup_steps,
            adam_beta2=0.95,
            weight_decay=0.0,
            bf16=False,
            gradient_checkpointing=False,
            dataset_kwargs={"skip_prepare_dataset": True},  # tokenised above
            logging_steps=100,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=seed,
        )
        trainer = SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)
        trainer.train()
    return trainer.state.log_history
