"""What a run holds and what each part of an update does; `training.train` puts them in order."""

import contextlib
import dataclasses
import hashlib
import math
import warnings
from pathlib import Path

import torch
from accelerate.utils import gather_object
from torch import Tensor

from agpo_core import advantages as estimators
from agpo_core import kl, losses, metrics, probe, provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.controllers import AdaptiveTemperature, ClipSignals, KLSignals, same_update
from agpo_core.evaluation.evaluate import complete_and_grade, counts_right, first_problems
from agpo_core.horizon import Horizon, permutation
from agpo_core.jobs.progress import Lines
from agpo_core.jobs.together import together
from agpo_core.model_files import model_fingerprint
from agpo_core.rollouts import policy
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import Prompts, Rollouts, make_engine, score
from agpo_core.tasks import Problem, Task, get_task
from agpo_core.training import checkpoint
from agpo_core.training.batch import Batch, minibatch_loss
from agpo_core.training.reward_model import appraise, load_reward_model
from agpo_core.training.setup import (
    contaminated_problems,
    forward_prompts,
    learning_rate,
    make_accelerator,
    make_controllers,
    parameter_groups,
    refuse_evaluation_sets,
    training_problems,
)
from agpo_core.training.watch import Watch

EXTENDED = (
    "the horizon was {:g}, and is {:g} {} from update {} on: progress, and with it the learning rate, falls "
    "back to the consumed share of the longer one. Earlier lines tell the progress of their time."
)


class Run:
    """What a run holds: model, optimiser, tasks, controllers, horizon, and its folder.

    Args:
        config: all settings.
        run_dir: the run's folder; a checkpoint in it is resumed.
        progress: print how far it is.
    """

    def __init__(self, config: TrainConfig, run_dir: Path, progress: bool = False):
        self.config, self.run_dir = config, Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.accelerator = accelerator = make_accelerator(config)
        trained_on: dict[str, Task] = {
            n: _task("tasks", n, config.data_dir, config.train_on_evaluation_sets) for n in config.tasks
        }
        if not trained_on:
            raise ConfigError("tasks is empty: name at least one.")
        refuse_evaluation_sets(trained_on)
        self.tasks = {n: _task("test_tasks", n, config.data_dir) for n in config.test_tasks} | trained_on
        with _told_in_one_line():
            self.dev = self._first("dev", config.tasks, config.dev_problems)
            self.test = self._first("test", config.test_tasks or config.tasks, config.test_problems)

        torch.manual_seed(config.seed)  # LoRA's initial weights; sampling has its own streams
        model, self.tokenizer = load_policy(config)
        self.reference = policy.Reference(model, config).to(accelerator.device)
        self.reward_model = load_reward_model(config, self.tokenizer, accelerator.device)
        trained = [(list(model.parameters()), 1.0)]
        if config.critic != "none":
            model = policy.ActorCritic(model, config.critic)
            relative = (config.critic_learning_rate or config.learning_rate) / config.learning_rate
            trained.append((model.critic_parameters(), relative))
        groups, self.rates = parameter_groups(trained, config.weight_decay)
        optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.adam_betas)
        self.model, self.optimiser = accelerator.prepare(model, optimiser)
        self.whole = accelerator.unwrap_model(self.model)  # policy, and critic where there is one
        self.policy = self.whole if config.critic == "none" else self.whole.policy
        self.engine = make_engine(self.policy, self.tokenizer, config, self.tasks)
        try:
            self._begin(trained_on, progress)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back what sampling holds; whoever makes a run closes it."""
        self.engine.close()

    def _begin(self, trained_on: dict[str, Task], progress: bool) -> None:
        """What is trained on, controllers and clock, from the last checkpoint where there is one; the first score."""
        config = self.config
        with _told_in_one_line("decontaminate: "):
            forbidden = self._forbidden(trained_on)
        with _told_in_one_line():
            self.pools = training_problems(config, trained_on, forbidden, self._fitting)
        for problems in (*self.dev.values(), *self.test.values()):
            self.engine.texts_of(problems)  # a prompt that the chat template cannot render is met before training

        self.clip, self.temperature, self.kl = make_controllers(config, self.policy.config.get_text_config().vocab_size)
        self.horizon = Horizon(config.horizon_unit, config.horizon)
        self.clip_state = self.clip.initial_state()
        self.temperature_state = self.temperature.initial_state()
        self.kl_state = self.kl.initial_state()
        self.step_kl = 0.0
        self.former_state = None  # the statistics of the last update's training rollouts
        self.failures: list[str] = []  # of grading on this rank, since the last line of metrics.jsonl
        self.evaluations = {"dev": []} | ({"train": []} if config.train_problems else {})
        self.contents = None  # fingerprints, see _identity
        self._resume()
        self.lines = Lines(self.run_dir, self.horizon) if progress else None
        self.watch = Watch(
            config, self._lines("metrics.jsonl"), (line["rule"] for line in self._lines("warnings.jsonl"))
        )
        if self.accelerator.is_main_process:
            self._warn(self.watch.see())
        if self.horizon.updates == 0:
            self.evaluate_dev()
            if self.evaluations["dev"] and self.accelerator.is_main_process:
                self._warn(self.watch.see_start(self.evaluations["dev"][0]))

    def _forbidden(self, tasks: dict[str, Task]) -> set[tuple[str, str]]:
        """Training problems that stand in an evaluation set, as (task, id); the run's folder keeps which, and where."""
        found = contaminated_problems(self.config, tasks)
        if found and self.accelerator.is_main_process:
            provenance.write_json(self.run_dir / "decontamination.json", found)
            for name, sets in found.items():
                dropped = len(set().union(*sets.values()))
                print(f"{name}: {dropped} training problems stand in {', '.join(sets)} and are left out.")
        return {(name, i) for name, sets in found.items() for ids in sets.values() for i in ids}

    def _fitting(self, name: str, pool: list[Problem]) -> list[Problem]:
        """Training problems whose prompts leave room for an answer."""
        kept = [problem for problem, fit in zip(pool, self.engine.fits(pool), strict=True) if fit]
        if len(kept) < len(pool) and self.accelerator.is_main_process:
            print(f"{name}: {len(pool) - len(kept)} training prompts leave no room for an answer and are left out.")
        return kept

    def _first(self, split: str, names: tuple[str, ...], count: int | None) -> dict[str, list[Problem]]:
        return {} if count == 0 else first_problems({name: self.tasks[name] for name in names}, split, count)

    # -- what an update draws -------------------------------------------------------------------

    def prompts(self, update: int) -> Prompts:
        """The update's prompts on this rank: every R-th of a global list that walks each task's shuffled pool."""
        P, pools = self.config.prompts_per_update, list(self.pools.values())
        slots = range(P)[self.accelerator.process_index :: self.accelerator.num_processes]
        problems = []
        for slot in slots:
            draw, task = divmod(update * P + slot, len(pools))
            pool = pools[task]
            epoch, index = divmod(draw, len(pool))
            order = permutation(self.config.seed, len(pool), key=epoch * len(pools) + task)
            problems.append(pool[int(order[index])])
        return self.engine.encode(problems, list(slots))

    def probe(self, prompts: Prompts, prefixes: list, update: int):
        """Sample the probe, book its tokens, and reduce it to the controllers' state(s).

        None at the first update of a free probe, when no rollouts have been seen; the controllers then keep their base.
        """
        c = self.config
        if not c.needs_probe:
            states = [self.former_state] if self.former_state else None
            return states, vars(self.former_state) if states else {}
        if c.probed_prompts < c.prompts_per_update:  # the first slots: tasks take turns, so all are among them
            prompts = prompts.select((prompts.slots_P < c.probed_prompts).nonzero().squeeze(1))
            prefixes = self.engine.open(prompts)
        tau_P = torch.full((len(prompts.problems),), c.tau_base, device=self.accelerator.device)
        rollouts = self.engine.sample(prompts, prefixes, c.probe_size, tau_P, "probe", update)
        self.score(rollouts)
        self.horizon.count("probe", self.total(rollouts.tokens))
        statistics = self.statistics(rollouts)
        mean = probe.ProbeState.mean(statistics)
        states = [mean]
        if c.controller_scope == "prompt":  # as in the authors' code: one state a prompt, in order
            states = [
                probe.ProbeState.mean({name: v[i : i + 1] for name, v in statistics.items()})
                for i in range(c.prompts_per_update)
            ]
        return states, {
            **vars(mean),
            "probe_reward": self.gather(rollouts.rewards_B.view(-1, c.probe_size).mean(dim=1))
            .mean().item(),
            "dispersion_fallback": statistics["fallback"].mean().item(),
        }  # fmt: skip

    def statistics(self, rollouts: Rollouts) -> dict[str, Tensor]:
        """What the controllers read of each prompt's group, over all ranks (Eqs. 1, 5, 8)."""
        c = self.config
        statistics = probe.prompt_statistics(
            rollouts.rewards_B.view(-1, rollouts.group),
            rollouts.grouped(rollouts.answers),
            mode=c.dispersion,
            fallback=c.dispersion_fallback,
            estimator=c.skewness,
            guard=c.skewness_guard,
            missing=c.missing_answers,
            sigma_min=c.sigma_min,
            kappa_max=c.kappa_max,
        )
        return {name: self.gather(values_P) for name, values_P in statistics.items()}

    def remember(self, rollouts: Rollouts) -> dict:
        """Keep the training rollouts' statistics: a free probe is the update before. Returns what is logged.

        They were drawn at tau_t, a probe at tau_base: `uncertainty_train` beside `uncertainty` shows how much a hotter
        sampler raises the uncertainty that would set its own temperature.
        """
        if not self.config.adapts:
            return {}
        self.former_state = probe.ProbeState.mean(self.statistics(rollouts))
        if not isinstance(self.temperature, AdaptiveTemperature):
            return {}
        return {"uncertainty_train": self.temperature.uncertainty(self.former_state)}

    def greedy_rewards(self, prompts: Prompts, prefixes: list, update: int) -> Tensor | None:
        """Rewards of one greedy completion a prompt, ReMax's baseline; its tokens are booked, never trained on."""
        if self.config.advantage != "greedy_baseline":
            return None
        rollouts = self.engine.sample(prompts, prefixes, 1, self.per_prompt(0.0), "probe", update)
        self.score(rollouts)
        self.horizon.count("probe", self.total(rollouts.tokens))
        return rollouts.rewards_B

    def rollout(self, prompts: Prompts, prefixes: list, tau_P: Tensor, update: int) -> Rollouts:
        """Sample and grade the training rollouts; groups without signal may be drawn once more."""
        G = self.config.group_size
        rollouts = self.engine.sample(prompts, prefixes, G, tau_P, "train", update)
        self.score(rollouts)
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
        self.score(fresh)
        rollouts.replace(again, fresh)

    def score(self, rollouts: Rollouts) -> None:
        """Grade every completion; where there is a reward model its score takes the place of the grade."""
        with together(self.accelerator):
            score(rollouts, self.tasks, self.config.failed_grading)
            if self.reward_model is not None:
                rollouts.rewards_B = self.reward_model.score(rollouts)
        self.failures += rollouts.failures

    # -- controllers ----------------------------------------------------------------------------

    def temperatures(self, states):
        """tau of each prompt of this rank (Eq. 12); one for the whole update unless the scope is a prompt."""
        state, values, heard = self.temperature_state, [], []
        if states is None:  # nothing to listen to
            values = [(self.config.tau_base, self.config.tau_base)]
        for signals in states or []:
            raw = self.temperature.raw(state, signals)
            if isinstance(self.temperature, AdaptiveTemperature):
                heard.append((self.temperature.uncertainty(signals), self.temperature.baseline(state, signals)))
            value, state = self.temperature.update(state, signals)
            values.append((value, raw))
        log = _summary("tau", values)
        if heard:
            U, baseline = zip(*heard, strict=True)
            log |= {"uncertainty": sum(U) / len(U), "uncertainty_baseline": sum(baseline) / len(baseline)}
        return self._spread(values), state, log

    def radii(self, states, batch: Batch, step_kl: float):
        """epsilon of each prompt of this rank (Eq. 4), a constant in the loss."""
        state, values = self.clip_state, []
        entropies = batch.entropies or [batch.entropy]
        if states is None:  # nothing to listen to
            values = [(self.config.epsilon_base, self.config.epsilon_base)]
        for signals, entropy in zip(states or [], entropies, strict=states is not None):
            state = same_update(self.clip_state, state)
            signals = ClipSignals(**vars(signals), entropy=entropy, step_kl=step_kl)
            raw = self.clip.raw(state, signals)
            value, state = self.clip.update(state, signals)
            values.append((value, raw))
        return self._spread(values), state, _summary("epsilon", values)

    def _spread(self, values: list[tuple[float, float]]) -> Tensor:
        if len(values) == 1:
            return self.per_prompt(values[0][0])
        mine = values[self.accelerator.process_index :: self.accelerator.num_processes]
        return torch.tensor([value for value, _ in mine], device=self.accelerator.device)

    def per_prompt(self, value: float) -> Tensor:
        P = self.config.prompts_per_update // self.accelerator.num_processes
        return torch.full((P,), value, device=self.accelerator.device)

    # -- what an update computes ----------------------------------------------------------------

    @torch.no_grad()
    def measure(self, rollouts: Rollouts) -> Batch:
        """Old and reference log-probabilities and the entropy of the policy that sampled."""
        c = self.config
        self.engine.rest()
        temperature_B = rollouts.temperature_B
        if c.ratio_temperature == "model":
            temperature_B = torch.ones_like(temperature_B)
        equal_P = probe.equal_rewards(rollouts.rewards_B.view(-1, c.group_size))
        keep_P = ~equal_P if c.equal_groups == "drop" else torch.ones_like(equal_P)
        batch = Batch(
            prompt_ids_P_S=rollouts.prompt_ids_P_S,
            prompt_mask_P_S=rollouts.prompt_mask_P_S,
            completion_ids_B_T=rollouts.completion_ids_B_T,
            mask_B_T=rollouts.mask_B_T,
            temperature_B=temperature_B,
            keep_B=keep_P.repeat_interleave(c.group_size),
            old_logps_B_T=None,
            old_logps_T1_B_T=None,
            reference_logps_B_T=None,
            entropy=0.0,
            beta=self.kl.value(self.kl_state),
            present_B_T=rollouts.present_B_T,
        )
        old, old_T1, reference, entropy, values = [], [], [], [], []
        for part in self._micro(batch):
            logits, values_B_T = policy.logits_and_values(self.whole, part, c)
            logps = policy.token_logps_and_T1(logits, part.completion_ids_B_T, part.temperature_B.view(-1, 1, 1))
            for found, values_of in zip((old, old_T1, entropy), (*logps, policy.token_entropy(logits)), strict=True):
                found.append(values_of)
            del logits  # before the reference makes its own
            if c.beta > 0:
                reference.append(self.reference.logps(part, c.shared_prompt))
            if values_B_T is not None:
                values.append(values_B_T)
        T = batch.mask_B_T.shape[1]
        batch.old_logps_B_T = _stack(old, T)
        batch.old_logps_T1_B_T = _stack(old_T1, T)
        batch.reference_logps_B_T = _stack(reference, T) if reference else None
        batch.old_values_B_T = _stack(values, T) if values else None
        entropy_B_T = _stack(entropy, T)
        batch.entropy = self.mean(entropy_B_T, batch.mask_B_T)
        if c.controller_scope == "prompt":
            sums_P, tokens_P = (
                v_B_T.double().sum(dim=1).view(-1, c.group_size).sum(dim=1)
                for v_B_T in (entropy_B_T * batch.mask_B_T, batch.mask_B_T)
            )
            batch.entropies = self.gather(sums_P / tokens_P.clamp(min=1)).tolist()
        return batch

    def advantages(self, rollouts: Rollouts, batch: Batch, greedy_P: Tensor | None) -> Tensor:
        """Advantages of this rank's rollouts, (B, T), or (B, 1) for all tokens of a rollout.

        Groups lie whole on a rank. Global statistics are those of all ranks' rollouts, whatever the micro-batching.
        """
        c = self.config
        rewards_B, mask_B_T, kl_B_T = self.processed(rollouts.rewards_B), batch.mask_B_T, None
        if batch.beta > 0 and c.kl_placement == "reward":
            penalty_B_T = losses.kl_penalty(batch.old_logps_T1_B_T, batch.reference_logps_B_T, c.kl_estimator, "reward")
            kl_B_T = penalty_B_T * mask_B_T
        options = {"population": c.population, "convention": c.convention}
        if c.advantage == "reinforce_pp":
            parts = [rewards_B.unsqueeze(1), mask_B_T, *([] if kl_B_T is None else [kl_B_T])]
            rewards_W_1, mask_W_T, *kl_W_T = map(self.every_rank, parts)
            kl_W_T = kl_W_T[0] if kl_W_T else None
            return self.own(
                estimators.reinforce_pp_advantages(
                    rewards_W_1.squeeze(1), mask_W_T, kl_W_T, batch.beta if kl_B_T is not None else 0.0,
                    c.credit, **options,
                ),
                width=mask_B_T.shape[1],
            )  # fmt: skip
        if c.advantage == "gae":
            return self._of_the_critic(rewards_B, kl_B_T, batch)
        if kl_B_T is not None:
            rewards_B = rewards_B - batch.beta * kl_B_T.sum(dim=1)
        rewards_P_G = rewards_B.view(-1, c.group_size)
        if c.advantage == "greedy_baseline":
            advantages_P_G = estimators.greedy_baseline_advantages(rewards_P_G, self.processed(greedy_P))
        elif c.advantage == "reinforce_pp_baseline":
            rewards_W_1, mask_W_T = map(self.every_rank, (rewards_B.unsqueeze(1), mask_B_T))
            whole_P_G = estimators.reinforce_pp_baseline_advantages(
                rewards_W_1.view(-1, c.group_size), mask_W_T, **options
            )
            return self.own(whole_P_G.view(-1, 1), width=1)
        elif c.advantage == "group":
            advantages_P_G = estimators.group_advantages(rewards_P_G, c.dispersion, fallback=c.dispersion_fallback)
        elif c.advantage == "dr_grpo":
            advantages_P_G = estimators.dr_grpo_advantages(rewards_P_G)
        else:
            advantages_P_G = estimators.leave_one_out_advantages(rewards_P_G)
        return advantages_P_G.view(-1, 1)

    def processed(self, rewards_B: Tensor) -> Tensor:
        """Rewards as the estimators see them: bounded, then scaled (R++ App. B.2)."""
        c = self.config
        if c.reward_clip is not None:
            rewards_B = rewards_B.clamp(-c.reward_clip, c.reward_clip)
        return rewards_B * c.reward_scale

    def _of_the_critic(self, rewards_B: Tensor, kl_B_T: Tensor | None, batch: Batch) -> Tensor:
        """Whitened advantages of a critic; its targets are written to the batch."""
        c, mask_B_T = self.config, batch.mask_B_T
        rewards_B_T = estimators.token_returns(rewards_B, mask_B_T, credit="last_token")
        if kl_B_T is not None:
            rewards_B_T = rewards_B_T - batch.beta * kl_B_T
        advantages_B_T, batch.returns_B_T = estimators.gae(
            rewards_B_T, batch.old_values_B_T, mask_B_T, c.gae_gamma, c.gae_lambda
        )
        whole_W_T = estimators.global_advantages(
            self.every_rank(advantages_B_T), self.every_rank(mask_B_T), convention=c.convention
        )
        return self.own(whole_W_T, width=mask_B_T.shape[1])

    def step(self, minibatch: Batch) -> dict:
        """One gradient step on one minibatch, over all its micro-batches and ranks."""
        c, accelerator = self.config, self.accelerator
        kept_B_T = minibatch.mask_B_T & minibatch.keep_B.unsqueeze(1)
        size = kept_B_T.sum() if c.aggregation == "token_mean" else kept_B_T.any(dim=1).sum()
        denominator = max(1, self.total(size))
        loss_sum, value_loss_sum = 0.0, 0.0
        binds = torch.zeros(3, dtype=torch.float64, device=accelerator.device)
        for part in self._micro(minibatch):
            loss, value_loss, binding_B_T = minibatch_loss(self.model, part, c, denominator)
            norm = self.descend(loss)
            loss_sum, value_loss_sum = loss_sum + loss.item(), value_loss_sum + value_loss
            active_B_T = part.mask_B_T & (part.advantages_B_T != 0)
            counts = (binding_B_T & part.mask_B_T, active_B_T, part.mask_B_T)
            binds += torch.stack([count_B_T.sum() for count_B_T in counts])
        norm = self._finite(norm)
        binding, active, tokens = accelerator.reduce(binds, "sum").tolist()
        step = {"loss": self.total(loss_sum), "norm": norm, "binding": binding, "active": active, "tokens": tokens}
        return step if c.critic == "none" else step | {"value_loss": self.total(value_loss_sum)}

    def descend(self, loss: Tensor) -> float | None:
        """Add the gradient of a part of a step's loss; the last part, of gradient_accumulation_steps, makes the step.

        Every rank gives as many parts; the step's loss is their sum over parts and ranks.

        Returns:
            At the last part the norm of the whole gradient, before clipping; else None.
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

    def _finite(self, norm: float) -> float:
        if math.isfinite(norm):
            return norm
        beta = "raise beta" if self.config.beta < 1 else f"lower beta, which is {self.config.beta:g}"
        raise FloatingPointError(
            f"gradient norm is {norm} at update {self.horizon.updates + 1}: the run stops; its last checkpoint is "
            f"whole. Lower learning_rate, or {beta}."
        )

    @torch.no_grad()
    def drift(self, batch: Batch) -> float:
        """Step KL at temperature 1 between the policies before and after the update (Eq. 6)."""
        tokens = self.total(batch.mask_B_T.sum())
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
        return self.total(torch.stack(parts).sum())

    def _micro(self, batch: Batch) -> list[Batch]:
        """A batch in forward-sized parts."""
        size = forward_prompts(self.config, self.accelerator.num_processes)
        return [batch.rows(i, i + size) for i in range(0, len(batch.prompt_ids_P_S), size)]

    def set_learning_rate(self, progress: float) -> None:
        for group, relative in zip(self.optimiser.param_groups, self.rates, strict=True):
            group["lr"] = learning_rate(self.config, progress) * relative

    # -- reductions over ranks: every rank gets the same number ----------------------------------

    def gather(self, values_P: Tensor) -> Tensor:
        """Values of this rank's prompts as values of all prompts, in the order of their slots."""
        R = self.accelerator.num_processes
        return self.accelerator.gather(values_P).view(R, -1).T.reshape(-1)

    def every_rank(self, values_B_X: Tensor) -> Tensor:
        """Rows of this rank's rollouts as rows of all rollouts, in the order of their slots; padded with zeros."""
        accelerator, P = self.accelerator, self.config.prompts_per_update
        # accelerate pads a bool tensor into an int64 one, and leaves one that needs no padding as it is: ranks with
        # completions of unequal length would then exchange tensors of different types.
        numbers = values_B_X.to(torch.uint8) if values_B_X.dtype == torch.bool else values_B_X
        widened = accelerator.pad_across_processes(numbers.contiguous(), dim=1)
        rows = accelerator.gather(widened).to(values_B_X.dtype)
        ranks, G = accelerator.num_processes, len(rows) // P
        by_prompt = rows.view(ranks, P // ranks, G, -1).transpose(0, 1)
        return by_prompt.reshape(P * G, -1)

    def own(self, values_W_X: Tensor, width: int) -> Tensor:
        """This rank's rows of what `every_rank` gave, without the other ranks' padding."""
        accelerator, P = self.accelerator, self.config.prompts_per_update
        by_prompt = values_W_X.view(P, len(values_W_X) // P, -1)
        mine = by_prompt[accelerator.process_index :: accelerator.num_processes]
        return mine.reshape(-1, values_W_X.shape[1])[:, :width]

    def total(self, value):
        """Sum of a number over ranks; an int stays one."""
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

    # -- the run's folder -----------------------------------------------------------------------

    def log(self, rollouts: Rollouts, batch: Batch, steps: list[dict], controllers: dict) -> None:
        """Append the update's line to metrics.jsonl; `metrics.LOGGED` says what each entry means."""
        c, h, G = self.config, self.horizon, self.config.group_size
        rewards_P_G = rollouts.rewards_B.view(-1, G)
        tokens, gap_B_T = sum(s["tokens"] for s in steps), rollouts.sampler_logps_B_T - batch.old_logps_B_T
        row = {
            "update": h.updates,
            "progress": h.progress,
            "tokens_train": h.tokens["train"],
            "tokens_probe": h.tokens["probe"],
            "seconds": h.seconds,
            "seconds_left": h.seconds * (1 - h.progress) / max(h.progress, 1e-9),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "reward": self.gather(rewards_P_G.mean(dim=1)).mean().item(),
            "reward_std": _spread_of(self.every_rank(rollouts.rewards_B.unsqueeze(1))),
            "equal_groups": self.gather(probe.equal_rewards(rewards_P_G).double()).mean().item(),
            "length": self.total(batch.mask_B_T.sum()) / (c.prompts_per_update * G),
            "truncated": self.total(rollouts.truncated_B.sum()) / (c.prompts_per_update * G),
            "entropy": batch.entropy,
            "sampler_gap": self.mean(gap_B_T, rollouts.mask_B_T),
            "sampler_gap_abs": self.mean(gap_B_T.abs(), rollouts.mask_B_T),
            "step_kl": self.step_kl,
            "loss": sum(s["loss"] for s in steps) / len(steps),
            "grad_norm": sum(s["norm"] for s in steps) / len(steps),
            "grad_norms": [s["norm"] for s in steps],
            "clip_fraction": sum(s["binding"] for s in steps) / max(1, tokens),
            "clip_fraction_active": sum(s["binding"] for s in steps) / max(1, sum(s["active"] for s in steps)),
            **controllers,
        }
        if c.critic != "none":
            row["value_loss"] = sum(s["value_loss"] for s in steps) / len(steps)
            row["explained_variance"] = self.explained_variance(batch)
        if self.reward_model is not None:  # graded anew: groups may have been drawn again since
            graded = dataclasses.replace(rollouts)
            with together(self.accelerator):
                score(graded, self.tasks, c.failed_grading)
            row["reward_gold"] = self.gather(graded.rewards_B.view(-1, G).mean(dim=1)).mean().item()
        if rollouts.calls_B is not None:
            row |= self.tool_use(rollouts)
        if c.kl_control == "adaptive":
            row["beta"] = batch.beta
        if batch.reference_logps_B_T is not None:
            d_B_T = kl.k1(batch.old_logps_T1_B_T, batch.reference_logps_B_T)
            row["reference_kl"] = self.mean(d_B_T, batch.mask_B_T)
            row["reference_kl_sequence"] = row["reference_kl"] * row["length"]
        self.write(row)
        if self.accelerator.is_main_process:
            for i in range(0, len(rollouts.texts), max(1, len(rollouts.texts) // 3)):
                problem = rollouts.prompts.problems[i // G]
                sample = {"update": h.updates, "task": problem.task, "prompt": problem.prompt,
                          "completion": rollouts.transcripts[i], "answer": problem.answer,
                          "reward": rollouts.rewards_B[i].item()}  # fmt: skip
                provenance.append_jsonl(self.run_dir / "samples.jsonl", sample)

    def tool_use(self, rollouts: Rollouts) -> dict:
        """How often the policy called its tool, over all ranks; nothing called has no failures."""
        counts = ((rollouts.calls_B > 0).sum(), rollouts.calls_B.sum(), rollouts.failed_calls_B.sum())
        callers, calls, failed = map(self.total, counts)
        completions = self.config.prompts_per_update * self.config.group_size
        return {
            "tool_share": callers / completions,
            "tool_calls": calls / completions,
            "tool_failures": failed / max(1, calls),
        }

    def write(self, row: dict) -> None:
        """Append a line to metrics.jsonl, and say what it gives reason to warn of.

        A number that is not finite, of which JSON knows none, is written as null.
        """
        row["failed_grades"] = self.total(len(self.failures))
        if row["failed_grades"]:
            first, *_ = gather_object(self.failures[:1])
            sentence = f"{row['failed_grades']} x grading failed, which counts as reward 0. The first: {first}."
            if self.accelerator.is_main_process:
                self._warn(self.watch.once("grading_fails", sentence))
            self.failures.clear()
        undocumented = row.keys() - metrics.LOGGED.keys()
        assert not undocumented, f"metrics.LOGGED lacks {sorted(undocumented)}"
        if self.accelerator.is_main_process:
            row = {name: _writable(value) for name, value in row.items()}
            provenance.append_jsonl(self.run_dir / "metrics.jsonl", row)
            if self.lines:
                self.lines.see(row)
            self._warn(self.watch.see(row))

    def explained_variance(self, batch: Batch) -> float:
        """1 - Var(R - V) / Var(R) over all tokens: what the critic foresaw of the returns; 0 where R is constant."""
        mask_W_T = self.every_rank(batch.mask_B_T)
        returns, values = (self.every_rank(v)[mask_W_T].double() for v in (batch.returns_B_T, batch.old_values_B_T))
        spread = returns.var(correction=0)
        return (1 - (returns - values).var(correction=0) / spread).item() if spread > 0 else 0.0

    def adapt_kl(self, batch: Batch) -> None:
        """Let the weight of the KL follow the KL that this update measured (Ziegler et al. 2019)."""
        if self.config.kl_control == "adaptive":
            d_B_T = kl.k1(batch.old_logps_T1_B_T, batch.reference_logps_B_T)
            sequences = self.config.prompts_per_update * self.config.group_size
            total = self.total((d_B_T * batch.mask_B_T).sum().double())
            _, self.kl_state = self.kl.update(self.kl_state, KLSignals(total / sequences, sequences))

    def evaluate_dev(self) -> None:
        """Add a point to the learning curves: on dev, and on the training problems where they are few (R++ Fig. 3)."""
        curves = {"dev": self.dev} | ({"train": self.pools} if self.config.train_problems else {})
        for name, problems in curves.items():
            if problems:
                self.evaluations[name].append(self._evaluate(problems)[0])
                self._write_evaluations()

    def _evaluate(self, problems: dict[str, list[Problem]]) -> tuple[dict, dict[str, list[float]]]:
        """A point of a learning curve, and the greedy reward of each problem; tokens are counted apart."""
        failures = []
        graded, tokens = complete_and_grade(self.engine, self.tasks, problems, self.accelerator, failures=failures)
        self.horizon.count("evaluation", tokens)
        rewards = {name: [reward for (reward,) in rows] for name, rows in graded.items()}
        scores = {name: sum(values) / len(values) for name, values in rewards.items()}
        sizes = {name: len(values) for name, values in rewards.items()}
        too_long = {name: self.engine.fits(several).count(False) for name, several in problems.items()}
        point = {
            "progress": self.horizon.progress,
            "update": self.horizon.updates,
            "tokens": self.horizon.tokens["train"] + self.horizon.tokens["probe"],
            "score": scores,
            "macro": sum(scores.values()) / len(scores),
            "problems": next(iter(sizes.values())) if len(set(sizes.values())) == 1 else sizes,  # a task
        }
        if any(too_long.values()):  # counted as wrong
            point["too_long"] = too_long
        if failures:  # counted as 0
            point["failed_grades"] = len(failures)
        if self.reward_model is not None:
            point["sampled"] = self._appraise([problem for several in problems.values() for problem in several])
        return point, rewards

    def _evaluate_at_end(self, problems: dict[str, list[Problem]]) -> dict:
        """The last point with the rewards behind it, and what a problem's sampled completions earn.

        How many are right is counted where rewards lie in [0, 1]: elsewhere 1 does not mean right.
        """
        point, rewards = self._evaluate(problems)
        point["rewards"], failures = rewards, []
        if n := self.config.test_samples:
            tau = self.config.tau_base
            graded, tokens = complete_and_grade(self.engine, self.tasks, problems, self.accelerator, n, tau, failures)
            self.horizon.count("evaluation", tokens)
            right = {name: count for name, rows in graded.items() if (count := counts_right(rows)) is not None}
            average = {name: sum(map(sum, rows)) / (n * len(rows)) for name, rows in graded.items()}
            point |= {"samples": n, "right": right, "average": average}
            if failures:
                point["failed_grades"] = point.get("failed_grades", 0) + len(failures)
        return point

    def _appraise(self, problems: list[Problem]) -> dict:
        """Means over problems of what `reward_model.appraise` gives, over all ranks; too long prompts are left out."""
        problems = [problem for problem, fit in zip(problems, self.engine.fits(problems), strict=True) if fit]
        slots = range(len(problems))[self.accelerator.process_index :: self.accelerator.num_processes]
        with together(self.accelerator):
            found = appraise(self, [problems[i] for i in slots], list(slots))
        self.horizon.count("evaluation", self.total(sum(found["length"])))
        return {name: self.total(float(sum(values))) / len(problems) for name, values in found.items()}

    def _write_evaluations(self) -> None:
        if self.accelerator.is_main_process:
            provenance.write_json(self.run_dir / "eval.json", self.evaluations)

    def save(self) -> None:
        """Checkpoint everything that a resumed run needs."""
        checkpoint.save(
            self.accelerator,
            self.run_dir,
            {
                "horizon": self.horizon.state(),
                "clip": self.clip_state,
                "temperature": self.temperature_state,
                "kl": self.kl_state,
                "former": vars(self.former_state) if self.former_state else None,
                "step_kl": self.step_kl,
                "evaluations": self.evaluations,
            },
            self._identity(),
        )

    def _identity(self) -> dict | None:
        """Which run this is, on the main process; models and problems by their content, wherever they lie."""
        if not self.accelerator.is_main_process:
            return None
        if self.contents is None:
            problems = [*self.pools.values(), *self.dev.values()]
            self.contents = {
                "model": model_fingerprint(self.config.model),
                "reward_model": self.config.reward_model and model_fingerprint(self.config.reward_model),
                "problems": hashlib.sha256(repr(problems).encode(errors="replace")).hexdigest()[:20],
            }
        return checkpoint.identity(self.config, **self.contents)

    def _resume(self) -> None:
        state = checkpoint.load(self.accelerator, self.run_dir, self._identity())
        if state is not None:
            self.horizon = Horizon(**{**state["horizon"], "total": self.config.horizon})
            self.clip_state, self.temperature_state = state["clip"], state["temperature"]
            self.kl_state, self.step_kl, self.evaluations = state["kl"], state["step_kl"], state["evaluations"]
            self.former_state = probe.ProbeState(**state["former"]) if state["former"] else None
            if any(self.evaluations.values()):
                self._write_evaluations()
            if "extended_from" in state and self.accelerator.is_main_process:
                self._warn([("horizon_extended", EXTENDED.format(
                    state["extended_from"], self.config.horizon, self.config.horizon_unit, self.horizon.updates
                ))])  # fmt: skip

    def _lines(self, name: str) -> list[dict]:
        path = self.run_dir / name
        return provenance.read_jsonl(path) if path.exists() else []

    def _warn(self, found: list[tuple[str, str]]) -> None:
        """Say it in the log, and keep it for the notebook."""
        for rule, sentence in found:
            warnings.warn(sentence, stacklevel=2)
            line = {"update": self.horizon.updates, "rule": rule, "warning": sentence}
            provenance.append_jsonl(self.run_dir / "warnings.jsonl", line)

    def finish(self) -> None:
        """Evaluate on test, once, and save the policy in Hugging Face format."""
        if self.test:
            self.evaluations["test"] = self._evaluate_at_end(self.test)
            if self.config.train_problems:
                self.evaluations["trained_on"] = self._evaluate_at_end(self.pools)
            self._write_evaluations()
        if self.accelerator.is_main_process:
            with provenance.explain_full_disk(self.run_dir / "policy"):
                policy.save_policy(self.policy, self.tokenizer, self.run_dir / "policy")
        self.accelerator.wait_for_everyone()


def _task(setting: str, name: str, *rest) -> Task:
    """`get_task`; of a name that it does not know, the setting is told."""
    with _told_in_one_line(f"{setting}: "):
        return get_task(name, *rest)


@contextlib.contextmanager
def _told_in_one_line(prefix: str = ""):
    """Raise a ConfigError where a task, or its data, cannot be had; the message says what to do."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, OSError) as error:  # OSError: no file, no connection
        raise ConfigError(prefix + " ".join(str(error).removeprefix("name: ").split())) from error


def _writable(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary(name: str, values: list[tuple[float, float]]) -> dict:
    """A controller's mean value, its mean before clipping, and the share of values that a bound holds."""
    n = len(values)
    return {
        name: sum(value for value, _ in values) / n,
        f"{name}_raw": sum(raw for _, raw in values) / n,
        f"{name}_at_bound": sum(value != raw for value, raw in values) / n,
    }


def _spread_of(values: Tensor) -> float:
    """Unbiased standard deviation; 0 of a single value."""
    return values.std().item() if values.numel() > 1 else 0.0


def _stack(parts: list[Tensor], width: int) -> Tensor:
    """Concatenate (B_i, T_i) tensors along B, padding T with zeros to `width`."""
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, width - part.shape[1])) for part in parts])
