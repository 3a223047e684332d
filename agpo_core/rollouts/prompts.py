"""Prompts as tokens: the tokens that a model reads for a prompt, and the tokens that end its completion.

Training, evaluation, reward models and supervised fine-tuning all read their prompts through `PromptFormat`.

* With a chat template a prompt is one user message, after the system prompt if there is one. Its tokens are those of
  the tokenizer's `apply_chat_template(tokenize=True)`: the template writes the special tokens itself, and the tokenizer
  adds none.
* Without a template a prompt is plain text. The tokenizer may put special tokens before it, such as BOS. Special tokens
  that it would put after the prompt, such as EOS, are left out, because the text goes on. A prompt that begins with BOS
  gets no second BOS.
* A completion ends with the tokenizer's or the model's end-of-sequence token, with the token by which the chat template
  closes an assistant's turn, or with one of `stop_tokens`. The turn's closing token is needed for models that close
  turns without the end-of-sequence token: they would otherwise write the user's next turn too.
"""

from __future__ import annotations

import inspect
import re

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.rollouts.model_parts import refused

MARK = "MARKED"  # a message's text, where only the template's own text is of interest


class PromptFormat:
    """How prompts are written for the model of one tokenizer.

    Args:
        tokenizer: its tokenizer.
        config: uses chat_template, system_prompt, template_arguments, stop_tokens, and model for messages; None: the
            defaults.
    Attributes:
        allowed: whether a chat template is used where the tokenizer has one.
    Raises:
        ConfigError: the settings ask for a chat template and the tokenizer has none, or for messages that the template
            cannot render (the message contains its reason); or a stop token is not one token.
    """

    def __init__(self, tokenizer, config: TrainConfig | None = None):
        config = config or TrainConfig()
        self.tokenizer, self.config = tokenizer, config
        self.allowed = config.chat_template != "never"
        self.arguments = config.template_values
        self.name = f"the chat template of model {config.model!r}"
        if self.chat:
            self._check_template()
        elif config.chat_template == "always" or config.system_prompt is not None or self.arguments:
            raise ConfigError(
                f"model {config.model!r} has no chat template, which chat_template always, system_prompt and "
                "template_arguments need: leave them out, or take another model."
            )
        self.turn_ends = self._ends_of_turn() if self.chat else []
        self.extra_ends = self._extra_ends()

    @property
    def chat(self) -> bool:
        """Whether prompts are messages of a chat template; else they are text."""
        return self.allowed and self.tokenizer.chat_template is not None

    def texts(self, prompts: list[str]) -> list[str]:
        """The prompts as the model sees them."""
        if not self.chat:
            return list(prompts)
        rendered, remedy = [], "correct the template, or set chat_template to never."
        for prompt in prompts:  # a template may refuse a single message
            with refused(f"{self.name} cannot render the prompt {prompt[:80]!r}: {remedy}"):
                rendered.append(self._render([_message("user", prompt)], add_generation_prompt=True))
        return rendered

    def ids(self, texts: list[str]) -> list[list[int]]:
        """The tokens of the results of `texts`."""
        return token_ids(self.tokenizer, texts, self.chat)

    def stop_ids(self, model=None) -> list[int]:
        """The tokens that end a completion, in ascending order.

        Args:
            model: its generation config may name further end-of-sequence tokens.
        """
        own = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        own = own if isinstance(own, list) else [own]
        return sorted({*own, self.tokenizer.eos_token_id, *self.turn_ends, *self.extra_ends} - {None})

    def examples(self, texts: list[str], completions: list[str]) -> list[tuple[list[int], list[int]]]:
        """Tokens of prompts and of completions; each completion ends with the token that ends the model's turns.

        Args:
            texts: the prompts as the model sees them.
            completions: texts that a model wrote or shall write, without their ends.
        Raises:
            ValueError: the tokenizer has no end token that differs from its padding token.
        """
        end = self.turn_ends[0] if self.turn_ends else self.tokenizer.eos_token_id
        if end is None or end == self.tokenizer.pad_token_id:
            raise ValueError("tokenizer: give it an eos token that is not its pad token, or ends cannot be learned")
        written = self.tokenizer(list(completions), add_special_tokens=False)["input_ids"]
        return [(prompt, [*ids, end]) for prompt, ids in zip(self.ids(texts), written, strict=True)]

    def _render(self, messages: list[dict], **wanted) -> str:
        system = self.config.system_prompt
        if system is not None:
            messages = [_message("system", system), *messages]
        return self.tokenizer.apply_chat_template(messages, tokenize=False, **{**self.arguments, **wanted})

    def _check_template(self) -> None:
        """Refuse messages that the template cannot render, with its reason, and arguments that it does not read."""
        source = str(self.tokenizer.chat_template)  # one template, or several by name
        own = inspect.signature(self.tokenizer.apply_chat_template).parameters.keys() - {"tools", "documents"}
        for name in self.arguments:
            if name in own or not re.search(rf"\b{name}\b", source):
                raise ConfigError(f"template_arguments: {self.name} does not read {name!r}; leave it out.")
        system = self.config.system_prompt
        what = "a user's message" if system is None else "a system message, and system_prompt is set"
        remedy = "correct the template, or set chat_template to never."
        if system is not None:
            remedy = f"leave system_prompt out, {remedy}"
        with refused(f"{self.name} cannot render {what}: {remedy}"):  # a template is a program: it may raise anything
            rendered = self._render([_message("user", MARK)], add_generation_prompt=True)
        if MARK not in rendered or (system is not None and system.strip() not in rendered):
            raise ConfigError(f"{self.name} leaves out {what}: {remedy}")

    def _ends_of_turn(self) -> list[int]:
        """The token with which the template closes an assistant's turn; empty if it uses text, or nothing.

        It is the first marker token after the assistant's last message. Where there is none, the marker that begins the
        next turn ends a completion.

        Raises:
            ConfigError: the template closes the turn with a text that is not one token, so nothing would end a
                completion.
        """
        talk = [_message("user", MARK[::-1]), _message("assistant", MARK)]
        closing = self._after_the_mark(talk)
        if closing == self._after_the_mark(talk, add_generation_prompt=True):
            closing = ""  # it may be the beginning of the next turn, if the template always writes that
        goes_on = self._after_the_mark([*talk, talk[0]])
        ends = self._markers(closing)[:1] or self._markers(goes_on)[:1]
        if closing.strip() and not ends and not self.config.stop_tokens:
            raise ConfigError(
                f"{self.name} closes a turn with {closing.strip()!r}, which is not one token of its tokenizer: nothing "
                "would end a completion. Add it to the tokenizer, name another token in stop_tokens, or set "
                "chat_template to never."
            )
        return ends

    def _after_the_mark(self, messages: list[dict], **wanted) -> str:
        """The template's text after the assistant's message; empty where it does not render that message."""
        try:
            rendered = self._render(messages, **wanted)
        except Exception:  # a template may accept only user messages
            return ""
        return rendered.rpartition(MARK)[2] if MARK in rendered else ""

    def _markers(self, text: str) -> list[int]:
        """The marker tokens in a template's text: tokens that were added to the vocabulary and are not white space."""
        added = self.tokenizer.added_tokens_decoder
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        blank = {i for i, token in added.items() if not str(token).strip()}  # runs of white space are added too
        return [i for i in ids if i in added and i not in blank and i != self.tokenizer.unk_token_id]

    def _extra_ends(self) -> list[int]:
        if not self.config.stop_tokens:
            return []
        every = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
        found = {text: [i for i, own in enumerate(every) if own == text] for text in self.config.stop_tokens}
        for text, ids in found.items():
            if not ids:
                raise ConfigError(
                    f"stop_tokens: {text!r} is not one token of the tokenizer of model {self.config.model!r}: name "
                    "texts that are one token."
                )
        return [i for ids in found.values() for i in ids]


def token_ids(tokenizer, texts: list[str], rendered: bool) -> list[list[int]]:
    """The tokens of prompts; see the top of this file for the special ones among them.

    Args:
        tokenizer: the model's.
        texts: the prompts as the model sees them.
        rendered: whether a chat template has rendered them, which writes the special tokens itself.
    """
    encoded = tokenizer(list(texts), add_special_tokens=not rendered, return_special_tokens_mask=True)
    rows = [list(ids) for ids in encoded["input_ids"]]
    if rendered:
        return rows
    for ids, added in zip(rows, encoded["special_tokens_mask"], strict=True):
        own = [i for i, special in enumerate(added) if not special]
        del ids[own[-1] + 1 if own else len(ids) :]
        if ids[:2] == [tokenizer.bos_token_id] * 2 and added[0]:
            del ids[0]
    return rows


def _message(role: str, text: str) -> dict:
    return {"role": role, "content": text}
