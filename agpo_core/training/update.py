"""The parts of an update: sampling, advantages, and gradient steps.

`training.train` puts these parts in order, and `training.control` sets temperature, clip radius and KL weight between
them.
"""

import math

import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn

from agpo_core import advantages as estimators
from agpo_core import kl, losses, probe
from agpo_core.config import TrainConfig
from agpo_core.horizon import permutation
from agpo_core.jobs.together import together
from agpo_core.rollouts import policy
from agpo_core.rollouts.rollout import Prompts, RolloutEngine, Rollouts, score
from agpo_core.tasks import Problem, Task
from agpo_core.training.batch import Batch, Measured, Tokens, forward_prompts, minibatch_loss
from agpo_core.training.optimisation import learning_rate
from agpo_core.training.ranks import Ranks
from agpo_core.training.reward_model import RewardModel


class Sampler:
    """Draws the prompts and the graded completions of an update.

    Args:
        config: how many of them, and the seed of their streams.
        ranks: share the prompts out.
        engine: samples from the policy.
        tasks: by name; they grade.
        pools: the training problems of each task.
        reward_model: its scores take the place of the grades; None: there is none.
    """

    def __init__(
        self, config: TrainConfig, ranks: Ranks, engine: RolloutEngine, tasks: dict[str, Task],
        pools: dict[str, list[Problem]], reward_model: RewardModel | None,
    ):  # fmt: skip
        self.config, self.ranks, self.engine = config, ranks, engine
        self.tasks, self.pools, self.reward_model = tasks, pools, reward_model

    def prompts(self, update: int) -> Prompts:
        """The update's prompts on this rank: every R-th of a global list that walks each task's shuffled pool."""
        P, pools = self.config.prompts_per_update, list(self.pools.values())
        slots = self.ranks.mine(range(P))
        problems = []
        for slot in slots:
            draw, task = divmod(update * P + slot, len(pools))
            pool = pools[task]
            epoch, index = divmod(draw, len(pool))
            order = permutation(self.config.seed, len(pool), key=epoch * len(pools) + task)
            problems.append(pool[int(order[index])])
        return self.engine.encode(problems, list(slots))

    def probe(self, prompts: Prompts, prefixes: list, update: int) -> Rollouts | None:
        """The probe, which the controllers read and which is never trained on; None where they need none."""
        c = self.config
        if not c.needs_probe:
            return None
        if c.probed_prompts < c.prompts_per_update:  # the first slots: tasks take turns, so all are among them
            prompts = prompts.select((prompts.slots_P < c.probed_prompts).nonzero().squeeze(1))
            prefixes = self.engine.open(prompts)
        tau_P = torch.full((len(prompts.problems),), c.tau_base, device=prompts.slots_P.device)
        return self.score(self.engine.sample(prompts, prefixes, c.probe_size, tau_P, "probe", update))

    def greedy(self, prompts: Prompts, prefixes: list, update: int) -> Rollouts | None:
        """One greedy completion per prompt for ReMax's baseline, never trained on; None for other methods."""
        if self.config.advantage != "greedy_baseline":
            return None
        return self.score(self.engine.sample(prompts, prefixes, 1, self.ranks.per_prompt([0.0]), "probe", update))

    def rollouts(self, prompts: Prompts, prefixes: list, tau_P: Tensor, update: int) -> Rollouts:
        """The training rollouts; groups without signal may be drawn once more."""
        G = self.config.group_size
        rollouts = self.score(self.engine.sample(prompts, prefixes, G, tau_P, "train", update))
        if self.config.equal_groups == "resample":
            self._resample(rollouts, tau_P, update)
        return rollouts

    def _resample(self, rollouts: Rollouts, tau_P: Tensor, update: int) -> None:
        """Draw groups with equal rewards again, from samples G .. 2G-1 of their streams."""
        G = self.config.group_size
        again = probe.equal_rewards(rollouts.rewards_B.view(-1, G)).nonzero().squeeze(1)
        if len(again) == 0:
            return
        prompts = rollouts.prompts.select(again)
        fresh = self.engine.sample(prompts, self.engine.open(prompts), G, tau_P[again], "train", update, first_sample=G)
        rollouts.replace(again, self.score(fresh))

    def score(self, rollouts: Rollouts) -> Rollouts:
        """Grade every completion; where there is a reward model its score takes the place of the grade."""
        with together(self.ranks.accelerator):
            score(rollouts, self.tasks, self.config.failed_grading)
            if self.reward_model is not None:
                rollouts.gold_B = rollouts.rewards_B
                rollouts.rewards_B = self.reward_model.score(rollouts)
        return rollouts


def advantages(
    config: TrainConfig, ranks: Ranks, rollouts: Rollouts, measured: Measured, beta: float, greedy: Rollouts | None
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Advantages of this rank's rollouts, and the targets of a critic.

    Every group is on one rank. Global statistics are taken over all ranks' rollouts, whatever the micro-batches.

    Args:
        config: which estimator, and its options.
        ranks: give the other ranks' rollouts.
        rollouts: graded.
        measured: the same rollouts, with their log-probabilities and a critic's values.
        beta: weight of the KL to the reference, used if the KL is part of the reward.
        greedy: ReMax's greedy completions.
    Returns:
        advantages_B_T, (B, T), or (B, 1), one for all tokens of a rollout; returns_B_T, None without a critic.
    """
    c, mask_B_T, kl_B_T = config, measured.mask_B_T, None
    rewards_B = _processed(rollouts.rewards_B, c)
    if beta > 0 and c.kl_placement == "reward":
        penalty_B_T = losses.kl_penalty(
            measured.old_logps_T1_B_T, measured.reference_logps_B_T, c.kl_estimator, "reward"
        )
        kl_B_T = penalty_B_T * mask_B_T
    options = {"population": c.population, "convention": c.convention}
    if c.advantage == "reinforce_pp":
        parts = [rewards_B.unsqueeze(1), mask_B_T, *([] if kl_B_T is None else [kl_B_T])]
        rewards_W_1, mask_W_T, *kl_W_T = map(ranks.every_rank, parts)
        kl_W_T = kl_W_T[0] if kl_W_T else None
        whole_W_T = estimators.reinforce_pp_advantages(
            rewards_W_1.squeeze(1), mask_W_T, kl_W_T, beta if kl_B_T is not None else 0.0, c.credit, **options
        )
        return ranks.own(whole_W_T, width=mask_B_T.shape[1]), None
    if c.advantage == "gae":
        rewards_B_T = estimators.token_returns(rewards_B, mask_B_T, credit="last_token")
        if kl_B_T is not None:
            rewards_B_T = rewards_B_T - beta * kl_B_T
        raw_B_T, returns_B_T = estimators.gae(rewards_B_T, measured.old_values_B_T, mask_B_T, c.gae_gamma, c.gae_lambda)
        whole_W_T = estimators.global_advantages(
            ranks.every_rank(raw_B_T), ranks.every_rank(mask_B_T), convention=c.convention
        )
        return ranks.own(whole_W_T, width=mask_B_T.shape[1]), returns_B_T
    if kl_B_T is not None:
        rewards_B = rewards_B - beta * kl_B_T.sum(dim=1)
    rewards_P_G = rewards_B.view(-1, c.group_size)
    if c.advantage == "reinforce_pp_baseline":
        rewards_W_1, mask_W_T = map(ranks.every_rank, (rewards_B.unsqueeze(1), mask_B_T))
        whole_P_G = estimators.reinforce_pp_baseline_advantages(rewards_W_1.view(-1, c.group_size), mask_W_T, **options)
        return ranks.own(whole_P_G.view(-1, 1), width=1), None
    if c.advantage == "mixed":
        rewards_W_1 = ranks.every_rank(rewards_B.unsqueeze(1))
        whole_P_G = estimators.mixed_advantages(rewards_W_1.view(-1, c.group_size))
        return ranks.own(whole_P_G.view(-1, 1), width=1), None
    if c.advantage == "greedy_baseline":
        advantages_P_G = estimators.greedy_baseline_advantages(rewards_P_G, _processed(greedy.rewards_B, c))
    elif c.advantage == "group":
        advantages_P_G = estimators.group_advantages(rewards_P_G, c.dispersion, fallback=c.dispersion_fallback)
    elif c.advantage == "dr_grpo":
        advantages_P_G = estimators.dr_grpo_advantages(rewards_P_G)
    elif c.advantage == "leave_one_out":
        advantages_P_G = estimators.leave_one_out_advantages(rewards_P_G)
    else:
        raise NotImplementedError(f"advantage {c.advantage!r} has no branch here: add one.")
    return advantages_P_G.view(-1, 1), None


def _processed(rewards_B: Tensor, config: TrainConfig) -> Tensor:
    """Rewards as the estimators see them: bounded, then scaled (R++ App. B.2)."""
    if config.reward_clip is not None:
        rewards_B = rewards_B.clamp(-config.reward_clip, config.reward_clip)
    return rewards_B * config.reward_scale


class Learner:
    """Measures rollouts under the policy, and moves the policy by gradient steps.

    Args:
        config: the loss, and how it is split into forwards.
        ranks: share the rollouts; losses and norms are taken over all ranks.
        model: what is trained, prepared by accelerate: the policy, or policy and critic.
        optimiser: of the model, prepared too.
        rates: learning rate of each of its parameter groups, relative to the policy's.
        reference: the policy before training.
    """

    def __init__(
        self, config: TrainConfig, ranks: Ranks, model: nn.Module, optimiser: AcceleratedOptimizer,
        rates: list[float], reference: policy.Reference,
    ):  # fmt: skip
        self.config, self.ranks, self.accelerator = config, ranks, ranks.accelerator
        self.model, self.optimiser, self.rates, self.reference = model, optimiser, rates, reference
        self.whole = self.accelerator.unwrap_model(model)  # policy, and critic where there is one
        self.policy = self.whole if config.critic == "none" else self.whole.policy

    @property
    def learning_rate(self) -> float:
        """The policy's learning rate."""
        return self.optimiser.param_groups[0]["lr"]

    def set_learning_rate(self, progress: float) -> None:
        """Set the rate that the schedule gives at a progress in [0, 1]; a critic's rate is relative to it."""
        for group, relative in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = learning_rate(self.config, progress) * relative

    @torch.no_grad()
    def measure(self, rollouts: Rollouts) -> Measured:
        """Old and reference log-probabilities, values and the entropy of the policy that sampled."""
        c = self.config
        temperature_B = rollouts.temperature_B
        if c.ratio_temperature == "model":
            temperature_B = torch.ones_like(temperature_B)
        tokens = Tokens(
            prompt_ids_P_S=rollouts.prompt_ids_P_S,
            prompt_mask_P_S=rollouts.prompt_mask_P_S,
            completion_ids_B_T=rollouts.completion_ids_B_T,
            mask_B_T=rollouts.mask_B_T,
            present_B_T=rollouts.present_B_T,
            temperature_B=temperature_B,
        )
        old, old_T1, reference, entropy, values = [], [], [], [], []
        for part in self._micro(tokens):
            logits, values_B_T = policy.logits_and_values(self.whole, part, c)
            logps = policy.token_logps_and_T1(logits, part.completion_ids_B_T, part.temperature_B.view(-1, 1, 1))
            for found, values_of in zip((old, old_T1, entropy), (*logps, policy.token_entropy(logits)), strict=True):
                found.append(values_of)
            del logits  # freed before the reference computes its own
            if c.beta > 0:
                reference.append(self.reference.logps(part, c.shared_prompt))
            if values_B_T is not None:
                values.append(values_B_T)
        equal_P = probe.equal_rewards(rollouts.rewards_B.view(-1, c.group_size))
        keep_P = ~equal_P if c.equal_groups == "drop" else torch.ones_like(equal_P)
        mask_B_T, T = tokens.mask_B_T, tokens.mask_B_T.shape[1]
        entropy_B_T = _stack(entropy, T)
        return Measured(
            **vars(tokens),
            keep_B=keep_P.repeat_interleave(c.group_size),
            old_logps_B_T=_stack(old, T),
            old_logps_T1_B_T=_stack(old_T1, T),
            reference_logps_B_T=_stack(reference, T) if reference else None,
            old_values_B_T=_stack(values, T) if values else None,
            entropy=self.ranks.mean(entropy_B_T, mask_B_T),
            entropies=self._of_each_prompt(entropy_B_T, mask_B_T) if c.controller_scope == "prompt" else None,
        )

    def _of_each_prompt(self, values_B_T: Tensor, mask_B_T: Tensor) -> list[float]:
        """The mean over the tokens of each prompt's group, for all ranks' prompts."""
        sums_P, tokens_P = (
            v_B_T.double().sum(dim=1).view(-1, self.config.group_size).sum(dim=1)
            for v_B_T in (values_B_T * mask_B_T, mask_B_T)
        )
        return self.ranks.gather(sums_P / tokens_P.clamp(min=1)).tolist()

    def step(self, minibatch: Batch, update: int) -> dict:
        """One gradient step on one minibatch, over all its micro-batches and ranks.

        Args:
            minibatch: this rank's part of it.
            update: index of the update, for the error.
        Returns:
            loss, and value_loss with a critic; norm of the gradient before clipping; numbers of tokens, of those with
            an advantage ("active"), and of those whose gradient the clip stops ("binding").
        Raises:
            FloatingPointError: the gradient is not finite.
        """
        c = self.config
        kept_B_T = minibatch.mask_B_T & minibatch.keep_B.unsqueeze(1)
        size = kept_B_T.sum() if c.aggregation == "token_mean" else kept_B_T.any(dim=1).sum()
        denominator = max(1, self.ranks.total(size))
        loss_sum, value_loss_sum = 0.0, 0.0
        binds = torch.zeros(3, dtype=torch.float64, device=self.accelerator.device)
        for part in self._micro(minibatch):
            loss, value_loss, binding_B_T = minibatch_loss(self.model, part, c, denominator)
            norm = self.descend(loss)
            loss_sum, value_loss_sum = loss_sum + loss.item(), value_loss_sum + value_loss
            active_B_T = part.mask_B_T & (part.advantages_B_T != 0)
            counts = (binding_B_T & part.mask_B_T, active_B_T, part.mask_B_T)
            binds += torch.stack([count_B_T.sum() for count_B_T in counts])
        check_gradient(norm, c.beta, update)
        binding, active, tokens = self.accelerator.reduce(binds, "sum").tolist()
        step = {
            "loss": self.ranks.total(loss_sum), "norm": norm, "binding": binding, "active": active, "tokens": tokens
        }  # fmt: skip
        return step if c.critic == "none" else step | {"value_loss": self.ranks.total(value_loss_sum)}

    def descend(self, loss: Tensor) -> float | None:
        """Add the gradient of one part of a step's loss; the last of gradient_accumulation_steps parts makes the step.

        Every rank gives the same number of parts; the step's loss is the sum over parts and ranks.

        Returns:
            At the last part, the norm of the whole gradient before clipping; else None.
        """
        accelerator, norm = self.accelerator, None
        with accelerator.accumulate(self.model):
            # Backward averages over ranks and over micro-batches: undo both.
            accelerator.backward(loss * (accelerator.num_processes * accelerator.gradient_accumulation_steps))
            if accelerator.sync_gradients:
                norm = float(accelerator.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm))
            self.optimiser.step()
            self.optimiser.zero_grad()
        return norm

    @torch.no_grad()
    def drift(self, batch: Batch) -> float:
        """Step KL at temperature 1 between the policies before and after the update (Eq. 6)."""
        tokens = self.ranks.total(batch.mask_B_T.sum())
        parts = []
        for part in self._micro(batch):
            logits = policy.completion_logits(self.policy, part, self.config.shared_prompt)
            new_B_T = policy.token_logps(logits, part.completion_ids_B_T)
            parts.append(
                kl.step_drift(
                    part.old_logps_T1_B_T, new_B_T, part.mask_B_T,
                    self.config.step_kl_estimator, denominator=tokens,
                )
            )  # fmt: skip
        return self.ranks.total(torch.stack(parts).sum())

    def _micro(self, rollouts: Tokens) -> list[Tokens]:
        """Rollouts in parts of the size of one forward pass."""
        return rollouts.parts(forward_prompts(self.config, self.ranks.count))


def check_gradient(norm: float, beta: float, update: int) -> None:
    """Refuse to go on with a gradient that is not finite.

    Args:
        norm: of the gradient.
        beta: weight of the KL to the reference, as configured.
        update: index of the update.
    Raises:
        FloatingPointError: the norm is not finite; the message says what to try.
    """
    if math.isfinite(norm):
        return
    remedy = "raise beta" if beta < 1 else f"lower beta, which is {beta:g}"
    raise FloatingPointError(
        f"gradient norm is {norm} at update {update + 1}: the run stops; its last checkpoint is whole. Lower "
        f"learning_rate, or {remedy}."
    )


def _stack(parts: list[Tensor], width: int) -> Tensor:
    """Concatenate (B_i, T_i) tensors along B, padding T with zeros to `width`."""
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, width - part.shape[1])) for part in parts])
