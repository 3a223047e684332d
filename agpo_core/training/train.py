"""The loop: one update after another, for every on-policy method.

`python -m agpo_core.training.train --run-dir FOLDER` trains what FOLDER/config.yaml says. The same command under the
`deepspeed` launcher trains it on several ranks (ZeRO-2). A folder whose run is finished is left alone; an unfinished
run goes on from its last checkpoint.

What the paper leaves open (AGPO §3.3) is a setting of `TrainConfig`, beside what the paper says. What is not a setting:

* A rollout batch is split into minibatches by prompt, in the order in which the prompts were drawn: rank r of R holds
  every R-th prompt, so that a minibatch is the same set of prompts whatever the number of ranks, and in every epoch.
* Policy entropy, step KL and the KL to the reference are taken at temperature 1.
* Tokens are drawn from the nucleus, while the ratio uses the full vocabulary; `sampler_gap` logs the difference.
* The learning rate of an update is that of the progress at which the update starts; warm-up begins at a tenth of it.
"""

import argparse
import math
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from agpo_core import kl, losses, metrics, probe, provenance, recipes
from agpo_core.advantages import group_advantages
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.controllers import (
    AdaptiveClip,
    AdaptiveTemperature,
    ClipSignals,
    FixedClip,
    FixedTemperature,
)
from agpo_core.horizon import Horizon, crossed, permutation
from agpo_core.tasks import Problem, Task, get_task
from agpo_core.training import checkpoint, policy
from agpo_core.training.evaluate import evaluate
from agpo_core.training.rollout import Prompts, Rollouts, TransformersEngine, score

PINNED = 0.9  # share of updates at the floor above which an adaptive radius is called fixed


def train(config: TrainConfig, run_dir: Path, stop_after: int | None = None) -> None:
    """Train one run, from its last checkpoint or from the start, to its horizon.

    Args:
        config: all settings.
        run_dir: the run's folder; receives metrics.jsonl, eval.json, samples.jsonl, checkpoint/, policy/.
        stop_after: leave the run unfinished after this many updates in all (to look at its first updates).
    """
    run = Run(config, run_dir)
    horizon, engine = run.horizon, run.engine
    while not horizon.done and horizon.updates != stop_after:
        begun, before, update = time.perf_counter(), horizon.progress, horizon.updates
        run.set_learning_rate(before)
        prompts = run.prompts(update)
        prefixes = engine.open(prompts)

        # Probe: read by the controllers, never trained on (§3.3). It is drawn at tau_base.
        states, probe_log = run.probe(prompts, prefixes, update)
        tau_P, run.temperature_state, tau_log = run.temperatures(states)

        rollouts = run.rollout(prompts, prefixes, tau_P, update)
        batch = run.measure(rollouts)

        # The clip radius listens to the step KL of the update before (Eq. 4).
        epsilon_P, run.clip_state, clip_log = run.radii(states, batch.entropy, run.step_kl)
        batch.epsilon_B_1 = epsilon_P.repeat_interleave(config.group_size).unsqueeze(1)
        batch.advantages_B_1 = run.advantages(rollouts, batch)

        steps = []
        for _ in range(config.epochs):
            for minibatch in batch.split(config.minibatches):
                steps.append(run.step(minibatch))

        step_kl, run.step_kl = run.step_kl, run.drift(batch)
        horizon.count("train", run.total(rollouts.tokens))
        horizon.tick(run.slowest(time.perf_counter() - begun))

        run.log(rollouts, batch, steps, {**probe_log, **tau_log, **clip_log, "step_kl_used": step_kl})
        if crossed(before, horizon.progress, config.eval_every) or horizon.done:
            run.evaluate_dev()
        if crossed(before, horizon.progress, config.checkpoint_every) or horizon.done:
            run.save()
    if horizon.done:
        run.finish()


@dataclass
class Batch:
    """Rollouts as tensors with all that the loss needs; rows in groups of G."""

    prompt_ids_P_S: Tensor
    prompt_mask_P_S: Tensor
    completion_ids_B_T: Tensor
    mask_B_T: Tensor
    temperature_B: Tensor  # of the ratio: the sampler's, or 1
    keep_B: Tensor  # False: the row's group has no signal and is dropped
    old_logps_B_T: Tensor  # at temperature_B
    old_logps_T1_B_T: Tensor  # at temperature 1
    reference_logps_B_T: Tensor | None  # at temperature 1
    entropy: float  # H(pi_old), nats per token over all ranks
    advantages_B_1: Tensor | None = None
    epsilon_B_1: Tensor | None = None

    def rows(self, start: int, stop: int) -> "Batch":
        """Prompts start..stop with their groups, without columns that hold only padding."""
        G = len(self.completion_ids_B_T) // len(self.prompt_ids_P_S)
        P, B = slice(start, stop), slice(start * G, stop * G)
        mask_P_S, mask_B_T = self.prompt_mask_P_S[P], self.mask_B_T[B]
        S = int(mask_P_S.any(dim=0).int().argmax())
        T = int(mask_B_T.any(dim=0).sum())
        fields = {}
        for name, value in vars(self).items():
            if name in ("prompt_ids_P_S", "prompt_mask_P_S"):
                value = value[P, S:]
            elif isinstance(value, Tensor):
                value = value[B, :T] if name.endswith("_B_T") else value[B]
            fields[name] = value
        return Batch(**fields)

    def split(self, parts: int) -> list["Batch"]:
        """Equal parts by prompt, in order."""
        size = math.ceil(len(self.prompt_ids_P_S) / parts)
        return [self.rows(i, i + size) for i in range(0, len(self.prompt_ids_P_S), size)]


class Run:
    """What a run holds: model, optimiser, tasks, controllers, horizon, and its folder.

    Args:
        config: all settings.
        run_dir: the run's folder; a checkpoint in it is resumed.
    """

    def __init__(self, config: TrainConfig, run_dir: Path):
        self.config, self.run_dir = config, Path(run_dir)
        self.accelerator = accelerator = make_accelerator(config)
        if config.minibatches * config.epochs == 1:
            warnings.warn(
                "clip radius is inert: with one gradient step per rollout batch the ratio is 1 "
                "(raise minibatches or epochs).",
                stacklevel=2,
            )
        if config.beta > 0 and config.kl_placement == "reward":
            warnings.warn(
                "k1 inside the reward: groups whose task rewards are equal are normalised by the KL's "
                "noise, which becomes advantages of unit size.",
                stacklevel=2,
            )
        self.tasks: dict[str, Task] = {n: get_task(n, config.data_dir) for n in config.tasks}
        if not self.tasks:
            raise ConfigError("tasks is empty: name at least one.")
        self.pools: list[list[Problem]] = [t.problems("train") for t in self.tasks.values()]

        torch.manual_seed(config.seed)  # LoRA's initial weights; sampling has its own streams
        model, self.tokenizer = policy.load_policy(config)
        self.reference = policy.Reference(model, config).to(accelerator.device)
        optimiser = torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad],
            lr=config.learning_rate,
            betas=config.adam_betas,
            weight_decay=config.weight_decay,
        )
        self.model, self.optimiser = accelerator.prepare(model, optimiser)
        self.policy = accelerator.unwrap_model(self.model)
        self.engine = TransformersEngine(self.policy, self.tokenizer, config)

        self.clip, self.temperature = make_controllers(config, self.policy.config.vocab_size)
        self.horizon = Horizon(config.horizon_unit, config.horizon)
        self.clip_state = self.clip.initial_state()
        self.temperature_state = self.temperature.initial_state()
        self.step_kl = 0.0
        self.evaluations = {"dev": []}
        self._resume()
        if self.horizon.updates == 0:
            self.evaluate_dev()

    # -- what an update draws -------------------------------------------------------------------

    def prompts(self, update: int) -> Prompts:
        """The update's prompts on this rank: every R-th of a global list that walks each task's shuffled pool."""
        P, tasks = self.config.prompts_per_update, len(self.pools)
        slots = range(P)[self.accelerator.process_index :: self.accelerator.num_processes]
        problems = []
        for slot in slots:
            task, draw = (update * P + slot) % tasks, (update * P + slot) // tasks
            pool = self.pools[task]
            epoch, index = divmod(draw, len(pool))
            order = permutation(self.config.seed, len(pool), key=epoch * tasks + task)
            problems.append(pool[int(order[index])])
        return self.engine.encode(problems, list(slots))

    def probe(self, prompts: Prompts, prefixes: list, update: int):
        """Sample the probe, book its tokens, and reduce it to the controllers' state(s)."""
        c = self.config
        if not c.needs_probe:
            return None, {}
        tau_P = self._per_prompt(c.tau_base)
        rollouts = self.engine.sample(prompts, prefixes, c.probe_size, tau_P, "probe", update)
        score(rollouts, self.tasks)
        self.horizon.count("probe", self.total(rollouts.tokens))
        statistics = probe.prompt_statistics(
            rollouts.rewards_B.view(-1, c.probe_size),
            rollouts.grouped(rollouts.answers),
            mode=c.dispersion,
            fallback=c.dispersion_fallback,
            estimator=c.skewness,
            guard=c.skewness_guard,
            missing=c.missing_answers,
            sigma_min=c.sigma_min,
            kappa_max=c.kappa_max,
        )
        statistics = {name: self.gather(values_P) for name, values_P in statistics.items()}
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

    def rollout(self, prompts: Prompts, prefixes: list, tau_P: Tensor, update: int) -> Rollouts:
        """Sample and grade the training rollouts; groups without signal may be drawn once more."""
        G = self.config.group_size
        rollouts = self.engine.sample(prompts, prefixes, G, tau_P, "train", update)
        score(rollouts, self.tasks)
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
        score(fresh, self.tasks)
        rollouts.replace(again, fresh)

    # -- controllers ----------------------------------------------------------------------------

    def temperatures(self, states):
        """tau of each prompt of this rank (Eq. 12); one for the whole update unless the scope is a prompt."""
        state, values, heard = self.temperature_state, [], []
        for signals in states or [None]:
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

    def radii(self, states, entropy: float, step_kl: float):
        """epsilon of each prompt of this rank (Eq. 4), a constant in the loss."""
        state, values = self.clip_state, []
        for signals in states or [None]:
            if signals is not None:
                signals = ClipSignals(**vars(signals), entropy=entropy, step_kl=step_kl)
            raw = self.clip.raw(state, signals)
            value, state = self.clip.update(state, signals)
            values.append((value, raw))
        return self._spread(values), state, _summary("epsilon", values)

    def _spread(self, values: list[tuple[float, float]]) -> Tensor:
        if len(values) == 1:
            return self._per_prompt(values[0][0])
        mine = values[self.accelerator.process_index :: self.accelerator.num_processes]
        return torch.tensor([value for value, _ in mine], device=self.accelerator.device)

    def _per_prompt(self, value: float) -> Tensor:
        P = self.config.prompts_per_update // self.accelerator.num_processes
        return torch.full((P,), value, device=self.accelerator.device)

    # -- what an update computes ----------------------------------------------------------------

    @torch.no_grad()
    def measure(self, rollouts: Rollouts) -> Batch:
        """Old and reference log-probabilities and the entropy of the policy that sampled."""
        c = self.config
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
        )
        old, old_T1, reference, entropy = [], [], [], []
        for part in self._micro(batch):
            logits = policy.completion_logits(self.policy, part, c.shared_prompt)
            ids = part.completion_ids_B_T
            old.append(policy.token_logps(logits, ids, part.temperature_B.view(-1, 1, 1)))
            old_T1.append(policy.token_logps(logits, ids))
            entropy.append(policy.token_entropy(logits))
            if c.beta > 0:
                reference.append(self.reference.logps(part, c.shared_prompt))
        T = batch.mask_B_T.shape[1]
        batch.old_logps_B_T = _stack(old, T)
        batch.old_logps_T1_B_T = _stack(old_T1, T)
        batch.reference_logps_B_T = _stack(reference, T) if reference else None
        batch.entropy = self.mean(_stack(entropy, T), batch.mask_B_T)
        return batch

    def advantages(self, rollouts: Rollouts, batch: Batch) -> Tensor:
        """Eq. 1 on this rank's groups, broadcast to tokens by shape (B, 1)."""
        c = self.config
        rewards_B = rollouts.rewards_B
        if c.beta > 0 and c.kl_placement == "reward":
            penalty_B_T = losses.kl_penalty(batch.old_logps_T1_B_T, batch.reference_logps_B_T, c.kl_estimator, "reward")
            rewards_B = rewards_B - c.beta * (penalty_B_T * batch.mask_B_T).sum(dim=1)
        advantages_P_G = group_advantages(
            rewards_B.view(-1, c.group_size), mode=c.dispersion, fallback=c.dispersion_fallback
        )
        return advantages_P_G.view(-1, 1)

    def step(self, minibatch: Batch) -> dict:
        """One gradient step on one minibatch, over all its micro-batches and ranks."""
        c, accelerator = self.config, self.accelerator
        kept_B_T = minibatch.mask_B_T & minibatch.keep_B.unsqueeze(1)
        size = kept_B_T.sum() if c.aggregation == "token_mean" else kept_B_T.any(dim=1).sum()
        denominator = max(1, self.total(size))
        # Backward averages over ranks and over micro-batches: undo both, the loss is a sum of parts.
        scale = accelerator.num_processes * accelerator.gradient_accumulation_steps
        loss_sum, binds = 0.0, torch.zeros(3, dtype=torch.float64, device=accelerator.device)
        for part in self._micro(minibatch):
            with accelerator.accumulate(self.model):
                loss, binding_B_T = minibatch_loss(self.model, part, c, denominator)
                accelerator.backward(loss * scale)
                norm = None
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(self.model.parameters(), c.max_grad_norm)
                    norm = self._finite(float(norm))
                self.optimiser.step()
                self.optimiser.zero_grad()
            loss_sum += loss.item()
            active_B_T = part.mask_B_T & (part.advantages_B_1 != 0)
            counts = (binding_B_T & part.mask_B_T, active_B_T, part.mask_B_T)
            binds += torch.stack([count_B_T.sum() for count_B_T in counts])
        binding, active, tokens = accelerator.reduce(binds, "sum").tolist()
        loss = self.total(loss_sum)
        return {"loss": loss, "norm": norm, "binding": binding, "active": active, "tokens": tokens}

    def _finite(self, norm: float) -> float:
        if math.isfinite(norm):
            return norm
        raise FloatingPointError(
            f"gradient norm is {norm} at update {self.horizon.updates + 1}: the run stops; its last checkpoint is "
            "whole. Lower learning_rate, or raise beta."
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
        size = self.config.micro_batch_prompts or len(batch.prompt_ids_P_S)
        return [batch.rows(i, i + size) for i in range(0, len(batch.prompt_ids_P_S), size)]

    def set_learning_rate(self, progress: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.config, progress)

    # -- reductions over ranks: every rank gets the same number ----------------------------------

    def gather(self, values_P: Tensor) -> Tensor:
        """Values of this rank's prompts as values of all prompts, in the order of their slots."""
        R = self.accelerator.num_processes
        return self.accelerator.gather(values_P).view(R, -1).T.reshape(-1)

    def total(self, value):
        """Sum of a number over ranks; an int stays one."""
        exact = torch.as_tensor(value, dtype=torch.float64, device=self.accelerator.device)
        whole = self.accelerator.reduce(exact, "sum").item()
        return whole if torch.as_tensor(value).is_floating_point() else int(whole)

    def mean(self, values_B_T: Tensor, mask_B_T: Tensor) -> float:
        """Mean over all tokens of all ranks."""
        sums = torch.stack([values_B_T[mask_B_T].double().sum(), mask_B_T.sum().double()])
        numerator, tokens = self.accelerator.reduce(sums, "sum").tolist()
        return numerator / tokens

    def slowest(self, seconds: float) -> float:
        """The longest time over ranks, so that all stop at the same update."""
        times = torch.tensor([seconds], dtype=torch.float64, device=self.accelerator.device)
        return self.accelerator.gather(times).max().item()

    # -- the run's folder -----------------------------------------------------------------------

    def log(self, rollouts: Rollouts, batch: Batch, steps: list[dict], controllers: dict) -> None:
        """Append the update's line to metrics.jsonl; `metrics.LOGGED` says what each entry means."""
        c, h, G = self.config, self.horizon, self.config.group_size
        rewards_P_G = rollouts.rewards_B.view(-1, G)
        tokens = sum(s["tokens"] for s in steps)
        row = {
            "update": h.updates,
            "progress": h.progress,
            "tokens_train": h.tokens["train"],
            "tokens_probe": h.tokens["probe"],
            "seconds": h.seconds,
            "seconds_left": h.seconds * (1 - h.progress) / max(h.progress, 1e-9),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "reward": self.gather(rewards_P_G.mean(dim=1)).mean().item(),
            "equal_groups": self.gather(probe.equal_rewards(rewards_P_G).double()).mean().item(),
            "length": self.total(batch.mask_B_T.sum()) / (c.prompts_per_update * G),
            "truncated": self.total(rollouts.truncated_B.sum()) / (c.prompts_per_update * G),
            "entropy": batch.entropy,
            "sampler_gap": self.mean(rollouts.sampler_logps_B_T - batch.old_logps_B_T, rollouts.mask_B_T),
            "step_kl": self.step_kl,
            "loss": sum(s["loss"] for s in steps) / len(steps),
            "grad_norm": sum(s["norm"] for s in steps) / len(steps),
            "grad_norms": [s["norm"] for s in steps],
            "clip_fraction": sum(s["binding"] for s in steps) / tokens,
            "clip_fraction_active": sum(s["binding"] for s in steps) / max(1, sum(s["active"] for s in steps)),
            **controllers,
        }
        if batch.reference_logps_B_T is not None:
            d_B_T = kl.k1(batch.old_logps_T1_B_T, batch.reference_logps_B_T)
            row["reference_kl"] = self.mean(d_B_T, batch.mask_B_T)
            row["reference_kl_sequence"] = row["reference_kl"] * row["length"]
        undocumented = row.keys() - metrics.LOGGED.keys()
        assert not undocumented, f"metrics.LOGGED lacks {sorted(undocumented)}"
        if self.accelerator.is_main_process:
            provenance.append_jsonl(self.run_dir / "metrics.jsonl", row)
            for i in range(0, len(rollouts.texts), max(1, len(rollouts.texts) // 3)):
                problem = rollouts.prompts.problems[i // G]
                sample = {"update": h.updates, "task": problem.task, "prompt": problem.prompt,
                          "completion": rollouts.texts[i], "answer": problem.answer,
                          "reward": rollouts.rewards_B[i].item()}  # fmt: skip
                provenance.append_jsonl(self.run_dir / "samples.jsonl", sample)

    def evaluate_dev(self) -> None:
        """Add a point to the learning curve; evaluation tokens are counted apart."""
        if self.config.dev_problems > 0:
            self.evaluations["dev"].append(self._evaluate("dev", self.config.dev_problems))
            self._write_evaluations()

    def _evaluate(self, split: str, count: int) -> dict:
        rewards, tokens = evaluate(self.engine, self.tasks, split, count, self.accelerator)
        self.horizon.count("evaluation", tokens)
        scores = {name: sum(values) / len(values) for name, values in rewards.items()}
        point = {
            "progress": self.horizon.progress,
            "update": self.horizon.updates,
            "tokens": self.horizon.tokens["train"] + self.horizon.tokens["probe"],
            "score": scores,
            "macro": sum(scores.values()) / len(scores),
            "problems": count,
        }
        return {**point, "rewards": rewards} if split == "test" else point

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
                "step_kl": self.step_kl,
                "evaluations": self.evaluations,
            },
        )

    def _resume(self) -> None:
        state = checkpoint.load(self.accelerator, self.run_dir)
        if state is not None:
            self.horizon = Horizon(**state["horizon"])
            self.clip_state, self.temperature_state = state["clip"], state["temperature"]
            self.step_kl, self.evaluations = state["step_kl"], state["evaluations"]
        if self.accelerator.is_main_process:  # lines written after the checkpoint are written again
            for name in ("metrics.jsonl", "samples.jsonl"):
                provenance.truncate_jsonl(self.run_dir / name, lambda row: row["update"] <= self.horizon.updates)

    def finish(self) -> None:
        """Evaluate on test, once, and save the policy in Hugging Face format."""
        self._warn_of_a_pinned_radius()
        if self.config.test_problems > 0:
            self.evaluations["test"] = self._evaluate("test", self.config.test_problems)
            self._write_evaluations()
        if self.accelerator.is_main_process:
            policy.save_policy(self.policy, self.tokenizer, self.run_dir / "policy")
        self.accelerator.wait_for_everyone()

    def _warn_of_a_pinned_radius(self) -> None:
        """Eq. 4 multiplies by H in nats: below about 0.3 the radius lies at its floor whatever the other signals."""
        if self.config.clip != "adaptive" or self.horizon.updates == 0:
            return
        rows = provenance.read_jsonl(self.run_dir / "metrics.jsonl")
        share = sum(row["epsilon"] == self.config.epsilon_min for row in rows) / len(rows)
        if share > PINNED:
            warnings.warn(
                f"the clip radius lay at epsilon_min in {share:.0%} of updates, so it was in effect fixed: "
                "lower epsilon_min, or set clip_entropy to ratio_ema.",
                stacklevel=2,
            )


def minibatch_loss(model, batch: Batch, config: TrainConfig, denominator: int):
    """The loss of Eq. 7 on a part of a minibatch.

    L = -aggregate( min(rho A, clip(rho, 1 - eps, 1 + eps) A) - beta KL )

    Args:
        model: the policy; gradients flow into it.
        batch: a micro-batch with advantages and radii.
        config: ratio, aggregation, beta, kl_estimator, kl_placement, shared_prompt.
        denominator: sequences (or tokens) of the whole minibatch over micro-batches and ranks.
    Returns:
        The loss, whose sum over parts is the minibatch's, and where the clip binds, (B, T).
    """
    c = config
    logits = policy.completion_logits(model, batch, c.shared_prompt)
    ids, mask_B_T = batch.completion_ids_B_T, batch.mask_B_T
    logps_B_T = policy.token_logps(logits, ids, batch.temperature_B.view(-1, 1, 1))
    ratio_B_T = losses.importance_ratio(logps_B_T, batch.old_logps_B_T, mask_B_T, c.ratio)
    objective_B_T = losses.clipped_surrogate(ratio_B_T, batch.advantages_B_1, batch.epsilon_B_1)
    if c.beta > 0 and c.kl_placement == "loss":
        at_one = (batch.temperature_B == 1).all()
        logps_T1_B_T = logps_B_T if at_one else policy.token_logps(logits, ids)
        objective_B_T = objective_B_T - c.beta * losses.kl_penalty(
            logps_T1_B_T, batch.reference_logps_B_T, c.kl_estimator
        )
    objective = losses.aggregate(
        objective_B_T,
        mask_B_T & batch.keep_B.unsqueeze(1),
        c.aggregation,
        max_length=c.max_completion_tokens if c.aggregation == "constant" else None,
        denominator=denominator,
    )
    binds_B_T = metrics.clip_binds(ratio_B_T.detach(), batch.advantages_B_1, batch.epsilon_B_1)
    return -objective, binds_B_T


def learning_rate(config: TrainConfig, progress: float) -> float:
    """Linear warm-up, then cosine decay to zero, as a function of progress alone.

    lr = peak * p / w  for p < w;  peak * (1 + cos(pi (p - w) / (1 - w))) / 2  after

    Warm-up starts at a tenth of the peak: at progress 0 the first update must not be void.
    """
    w = config.warmup
    if progress < w:
        return config.learning_rate * max(0.1, progress / w)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - w) / (1 - w)))


def make_controllers(config: TrainConfig, vocabulary_size: int):
    """The clip and the temperature controller that a configuration asks for."""
    c = config
    clip = FixedClip(c.epsilon_base)
    if c.clip == "adaptive":
        clip = AdaptiveClip(
            epsilon_base=c.epsilon_base,
            epsilon_min=c.epsilon_min,
            epsilon_max=c.epsilon_max,
            alpha=c.alpha,
            gamma=c.gamma,
            delta=c.delta,
            zeta=c.zeta,
            signals_mask=c.signals_mask,
            entropy=c.clip_entropy,
            step_kl=c.step_kl,
            vocabulary_size=vocabulary_size,
        )
    temperature = FixedTemperature(c.tau_base)
    if c.temperature == "adaptive":
        temperature = AdaptiveTemperature(
            tau_base=c.tau_base,
            tau_min=c.tau_min,
            tau_max=c.tau_max,
            sensitivity=c.sensitivity,
            momentum=c.momentum,
            weights=c.weights,
            signals_mask=c.signals_mask,
            start=c.baseline_start,
            centring=c.centring,
        )
    return clip, temperature


def make_accelerator(config: TrainConfig):
    """One process without a launcher; DeepSpeed ZeRO-2 under it, on GPUs or (gloo) on CPUs."""
    from accelerate import Accelerator, DeepSpeedPlugin, InitProcessGroupKwargs

    ranks = int(os.environ.get("WORLD_SIZE", 1))
    parts = config.minibatches * ranks
    if config.prompts_per_update % parts:
        raise ConfigError(
            f"prompts_per_update {config.prompts_per_update} must be a multiple of minibatches x ranks "
            f"= {config.minibatches} x {ranks}."
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


def _summary(name: str, values: list[tuple[float, float]]) -> dict:
    """A controller's mean value, its mean before clipping, and the share of values that a bound holds."""
    n = len(values)
    return {
        name: sum(value for value, _ in values) / n,
        f"{name}_raw": sum(raw for _, raw in values) / n,
        f"{name}_at_bound": sum(value != raw for value, raw in values) / n,
    }


def _stack(parts: list[Tensor], width: int) -> Tensor:
    """Concatenate (B_i, T_i) tensors along B, padding T with zeros to `width`."""
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, width - part.shape[1])) for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the run that RUN_DIR/config.yaml describes.")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--local_rank", type=int, help="set by the deepspeed launcher")
    run_dir = parser.parse_args().run_dir
    main_process = os.environ.get("RANK", "0") == "0"
    record_path = run_dir / "run.json"
    if record_path.exists() and provenance.read_json(record_path)["status"] == "finished":
        print(f"{run_dir.name} is finished.")
        return
    config = recipes.load(run_dir / "config.yaml")
    record = provenance.collect([sys.executable, "-m", "agpo_core.training.train", *sys.argv[1:]], config)
    if main_process:
        provenance.write_json(record_path, record)
    error = None
    try:
        train(config, run_dir)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        if main_process:
            provenance.write_json(record_path, provenance.conclude(record, int(error is not None), error))


if __name__ == "__main__":
    main()
