"""Reductions over ranks: what each rank gives comes back in the order of all prompts, whatever the number of ranks."""

from types import SimpleNamespace

import pytest
import torch

from agpo_core.training.ranks import Ranks


def ranks_of(parts: list[torch.Tensor], prompts: int) -> list[Ranks]:
    """Ranks that hold these parts: whatever one of them gathers contains the parts of all."""
    width = max(part.shape[-1] for part in parts)

    def padded(part, dim=-1):
        return torch.nn.functional.pad(part, (0, width - part.shape[-1])) if part.ndim > 1 else part

    def rank(index):
        return SimpleNamespace(
            process_index=index,
            num_processes=len(parts),
            is_main_process=index == 0,
            device="cpu",
            pad_across_processes=padded,
            gather=lambda mine: torch.cat([padded(part).to(mine.dtype) for part in parts]),
        )

    return [Ranks(rank(index), prompts) for index in range(len(parts))]


@pytest.mark.parametrize("R", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_rows_of_all_ranks_stand_in_the_order_of_prompts_and_each_finds_its_own_again(R, dtype):
    P, G, T = 6, 2, 4
    whole_P_G_T = (torch.arange(P * G * T).view(P, G, T) % 3 + 1).to(dtype)
    widths = [T - (index > 0) for index in range(R)]  # other ranks have shorter completions
    parts = [whole_P_G_T[index::R, :, :width].reshape(-1, width) for index, width in enumerate(widths)]
    expected = whole_P_G_T.clone()
    for index, width in enumerate(widths):
        expected[index::R, :, width:] = 0
    for rank, part, width in zip(ranks_of(parts, P), parts, widths, strict=True):
        every = rank.every_rank(part)
        assert every.dtype == dtype and every.equal(expected.view(P * G, T))
        assert rank.own(every, width).equal(part)


@pytest.mark.parametrize("R", [1, 2, 3])
def test_a_value_for_each_prompt_is_shared_out_and_gathered_again(R):
    values = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    parts = [torch.tensor(values[index::R]) for index in range(R)]
    for rank, part in zip(ranks_of(parts, prompts=6), parts, strict=True):
        assert rank.per_prompt(values).equal(part)
        assert rank.gather(part).tolist() == values
        assert rank.per_prompt([0.25]).tolist() == [0.25] * (6 // R)  # one for all
        assert list(rank.mine(range(6))) == list(range(6))[rank.accelerator.process_index :: R]
