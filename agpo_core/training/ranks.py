"""The ranks of a run, and reductions over them: each rank gives its part, and every rank gets the same result.

Rank r of R holds every R-th prompt of an update, r, r + R, …, each with its whole group. Results are in the order of
all prompts, whatever the number of ranks.
"""

import math
import os
from collections.abc import Sequence

import torch
from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs
from torch import Tensor

from agpo_core.config import ConfigError, TrainConfig


class Ranks:
    """The ranks of a run, as one of them sees them.

    Args:
        accelerator: knows this rank and the others.
        prompts: of an update, over all ranks; a multiple of the number of ranks.
    """

    def __init__(self, accelerator: Accelerator, prompts: int):
        self.accelerator, self.prompts = accelerator, prompts

    @property
    def count(self) -> int:
        """The number of ranks."""
        return self.accelerator.num_processes

    @property
    def is_main(self) -> bool:
        """Whether this rank is the one that writes files."""
        return self.accelerator.is_main_process

    def mine(self, items: Sequence) -> Sequence:
        """This rank's share of a list that all ranks hold: every R-th item."""
        return items[self.accelerator.process_index :: self.count]

    def per_prompt(self, values: Sequence[float]) -> Tensor:
        """A value for each prompt of this rank, (P / R,), from one value for all prompts or one for each of them."""
        whole = list(values) * self.prompts if len(values) == 1 else values
        return torch.tensor(self.mine(whole), dtype=torch.float32, device=self.accelerator.device)

    def gather(self, values_P: Tensor) -> Tensor:
        """The values of all ranks' prompts, in the order of their slots, from each rank's own values."""
        return self.accelerator.gather(values_P).view(self.count, -1).T.reshape(-1)

    def every_rank(self, values_B_X: Tensor) -> Tensor:
        """The rows of all ranks' rollouts in the order of their slots, padded with zeros, from each rank's rows."""
        # accelerate turns a bool tensor that it pads into int64, and leaves one that needs no padding as it is. Ranks
        # with completions of unequal length would then exchange tensors of different types.
        numbers = values_B_X.to(torch.uint8) if values_B_X.dtype == torch.bool else values_B_X
        widened = self.accelerator.pad_across_processes(numbers.contiguous(), dim=1)
        rows = self.accelerator.gather(widened).to(values_B_X.dtype)
        G = len(rows) // self.prompts
        by_prompt = rows.view(self.count, self.prompts // self.count, G, -1).transpose(0, 1)
        return by_prompt.reshape(self.prompts * G, -1)

    def own(self, values_W_X: Tensor, width: int) -> Tensor:
        """This rank's rows of a result of `every_rank`, without the other ranks' padding."""
        by_prompt = values_W_X.view(self.prompts, len(values_W_X) // self.prompts, -1)
        return self.mine(by_prompt).reshape(-1, values_W_X.shape[1])[:, :width]

    def total(self, value):
        """Sum of a number over ranks; the sum of ints is an int."""
        exact = torch.as_tensor(value, dtype=torch.float64, device=self.accelerator.device)
        whole = self.accelerator.reduce(exact, "sum").item()
        return whole if torch.as_tensor(value).is_floating_point() else int(whole)

    def mean(self, values_B_T: Tensor, mask_B_T: Tensor) -> float:
        """Mean over all tokens of all ranks; 0 where there is no token."""
        sums = torch.stack([values_B_T[mask_B_T].double().sum(), mask_B_T.sum().double()])
        numerator, tokens = self.accelerator.reduce(sums, "sum").tolist()
        return numerator / max(tokens, 1)

    def slowest(self, seconds: float) -> float:
        """The longest time over ranks, so that all stop at the same update."""
        times = torch.tensor([seconds], dtype=torch.float64, device=self.accelerator.device)
        return self.accelerator.gather(times).max().item()


def make_accelerator(config: TrainConfig):
    """The accelerator of a run: one process, or under a launcher DeepSpeed ZeRO-2, on GPUs or (with gloo) CPUs."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    parts = config.minibatches * ranks
    if config.prompts_per_update % parts:
        raise ConfigError(
            f"prompts_per_update {config.prompts_per_update} must be a multiple of minibatches x ranks "
            f"= {config.minibatches} x {ranks}."
        )
    if config.probed_prompts % ranks:
        raise ConfigError(
            f"probe_share {config.probe_share} of {config.prompts_per_update} prompts is {config.probed_prompts} "
            f"prompts, which {ranks} ranks cannot share equally: choose another share."
        )
    share = config.prompts_per_update // parts
    if config.dtype == "bfloat16" and "LOCAL_RANK" not in os.environ:
        raise ConfigError(
            "dtype bfloat16 needs DeepSpeed, which keeps float32 weights to add small updates to: "
            "set launcher to deepspeed (one rank will do), or dtype to float32."
        )
    common = {
        "mixed_precision": "bf16" if config.dtype == "bfloat16" else "no",
        "gradient_accumulation_steps": math.ceil(share / (config.micro_batch_prompts or share)),
    }
    if "LOCAL_RANK" not in os.environ:
        return Accelerator(**common)
    cuda = torch.cuda.is_available()
    if not cuda:
        os.environ["DS_ACCELERATOR"] = os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        _leave_out_extensions()
    plugin = DeepSpeedPlugin(
        hf_ds_config={
            "train_micro_batch_size_per_gpu": 1,  # unused: the loop makes its own batches
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": config.max_grad_norm,
            "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": config.dtype == "bfloat16"},
        }
    )
    backend = InitProcessGroupKwargs(backend="nccl" if cuda else "gloo")
    return Accelerator(**common, deepspeed_plugin=plugin, kwargs_handlers=[backend])


def _leave_out_extensions() -> None:
    """Keep DeepSpeed from compiling an extension for CPUs, which takes a minute and a compiler, and is not used here.

    It holds kernels for all-reduces of inference; training reduces with gloo.
    """
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
