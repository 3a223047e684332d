"""GRPO here and GRPO in TRL 1.16 are one loss with one gradient, on the same batch."""

import pytest
import torch

from agpo_core.advantages import group_advantages
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.training.batch import Batch, Tokens, minibatch_loss

trl = pytest.importorskip("trl", reason="compares with TRL: needs the package trl")

pytestmark = pytest.mark.usefixtures("fresh_accelerator")

P, G, S, T = 3, 4, 5, 6


@pytest.fixture(scope="module")
def make_trainer(config, tmp_path_factory):
    """TRL's trainer on the small random model: make_trainer(temperature, beta)."""
    from datasets import Dataset

    def make(temperature, beta):
        model, tokenizer = load_policy(config())
        arguments = trl.GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            loss_type="grpo",
            beta=beta,
            epsilon=0.2,
            temperature=temperature,
            use_bias_correction_kl=False,
            num_generations=G,
            per_device_train_batch_size=P * G,
            max_completion_length=T,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
        )
        trainer = trl.GRPOTrainer(
            model=model,
            args=arguments,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            train_dataset=Dataset.from_dict({"prompt": ["A"] * P * G}),
            processing_class=tokenizer,
        )
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.double().train()  # so that what differs is the method, not the rounding
        return trainer

    return make


def make_batch(model, temperature):
    """Random prompts, completions of unequal length, old and reference policies near the policy.

    The prompts have one length: TRL counts positions through the padding, which costs the rotary
    embedding, in float32, more than the tolerance.
    """
    generator = torch.Generator().manual_seed(0)
    lengths_B = torch.randint(1, T + 1, (P * G,), generator=generator)
    lengths_B[0] = T
    tokens = Tokens(
        prompt_ids_P_S=torch.randint(3, 130, (P, S), generator=generator),
        prompt_mask_P_S=torch.ones(P, S, dtype=torch.long),
        completion_ids_B_T=torch.randint(3, 130, (P * G, T), generator=generator),
        mask_B_T=torch.arange(T) < lengths_B[:, None],
        temperature_B=torch.full((P * G,), temperature),
    )
    advantages_P_G = group_advantages(torch.rand(P, G, generator=generator))
    with torch.no_grad():
        logits = completion_logits(model, tokens)
    now_B_T = token_logps(logits, tokens.completion_ids_B_T, temperature)
    noise = torch.randn(2, P * G, T, generator=generator)
    return Batch(
        **vars(tokens),
        keep_B=torch.ones(P * G, dtype=torch.bool),
        old_logps_B_T=now_B_T + 0.3 * noise[0],
        old_logps_T1_B_T=now_B_T + 0.3 * noise[0],
        reference_logps_B_T=now_B_T + 0.5 * noise[1],
        entropy=0.0,
        beta=0.0,
        advantages_B_T=advantages_P_G.view(-1, 1),
        epsilon_B_1=torch.full((P * G, 1), 0.2),
    )


@pytest.mark.parametrize(("temperature", "beta"), [(1.0, 0.03), (1.0, 0.0), (0.7, 0.0)])
def test_loss_gradient_and_clipped_share_equal_those_of_trl(config, make_trainer, temperature, beta):
    trainer = make_trainer(temperature, beta)
    model = trainer.accelerator.unwrap_model(trainer.model)
    batch = make_batch(model, temperature)

    model.zero_grad()
    theirs = trainer._compute_loss(
        model,
        {
            "prompt_ids": batch.prompt_ids_P_S.repeat_interleave(G, dim=0),
            "prompt_mask": batch.prompt_mask_P_S.repeat_interleave(G, dim=0),
            "completion_ids": batch.completion_ids_B_T,
            "completion_mask": batch.mask_B_T.long(),
            "advantages": batch.advantages_B_T.squeeze(1),
            "old_per_token_logps": batch.old_logps_B_T,
            "ref_per_token_logps": batch.reference_logps_B_T,
        },
    )
    theirs.backward()
    their_gradient = torch.cat([p.grad.flatten() for p in model.parameters()])

    model.zero_grad()
    batch.beta = beta
    ours, _, binds_B_T = minibatch_loss(model, batch, config(beta=beta), denominator=P * G)
    ours.backward()
    our_gradient = torch.cat([p.grad.flatten() for p in model.parameters()])

    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert their_gradient.norm() > 0.1
    assert (our_gradient - their_gradient).norm() <= 1e-6 * their_gradient.norm()
    share = binds_B_T[batch.mask_B_T].double().mean().item()
    assert share > 0.1
    (their_share,) = trainer._metrics["train"]["clip_ratio/region_mean"]
    assert share == pytest.approx(their_share, abs=1e-6)


def test_the_comparison_sees_a_difference_in_the_radius(config, make_trainer):
    model = make_trainer(1.0, 0.0).model
    batch, found = make_batch(model, 1.0), []
    for epsilon in (0.2, 0.21):
        batch.epsilon_B_1 = torch.full((P * G, 1), epsilon)
        with torch.no_grad():
            found.append(minibatch_loss(model, batch, config(beta=0.0), denominator=P * G)[0])
    assert abs(found[0] - found[1]) > 1e-4
