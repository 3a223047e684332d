"""The loop: one update after another, for every on-policy method. (DPO, which is offline, is `training.offline`.)

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
import os
import sys
import time
from pathlib import Path

from agpo_core import provenance, recipes
from agpo_core.config import TrainConfig
from agpo_core.horizon import crossed
from agpo_core.training.offline import train_dpo
from agpo_core.training.run import Run


def train(config: TrainConfig, run_dir: Path, stop_after: int | None = None) -> None:
    """Train one run, from its last checkpoint or from the start, to its horizon.

    Args:
        config: all settings.
        run_dir: the run's folder; receives metrics.jsonl, eval.json, samples.jsonl, checkpoint/, policy/.
        stop_after: leave the run unfinished after this many updates in all (to look at its first updates).
    """
    run = Run(config, run_dir)
    horizon, engine = run.horizon, run.engine
    while not horizon.done and (stop_after is None or horizon.updates < stop_after):
        begun, before, update = time.perf_counter(), horizon.progress, horizon.updates
        run.set_learning_rate(before)
        prompts = run.prompts(update)
        prefixes = engine.open(prompts)

        # Probe: read by the controllers, never trained on (§3.3). It is drawn at tau_base.
        states, probe_log = run.probe(prompts, prefixes, update)
        tau_P, run.temperature_state, tau_log = run.temperatures(states)

        rollouts = run.rollout(prompts, prefixes, tau_P, update)
        greedy_P = run.greedy_rewards(prompts, prefixes, update)  # ReMax's baseline
        batch = run.measure(rollouts)

        # The clip radius listens to the step KL of the update before (Eq. 4).
        epsilon_P, run.clip_state, clip_log = run.radii(states, batch, run.step_kl)
        batch.epsilon_B_1 = epsilon_P.repeat_interleave(config.group_size).unsqueeze(1)
        batch.advantages_B_T = run.advantages(rollouts, batch, greedy_P)
        former_log = run.remember(rollouts)

        steps = []
        for _ in range(config.epochs):
            for minibatch in batch.split(config.minibatches):
                steps.append(run.step(minibatch))

        step_kl, run.step_kl = run.step_kl, run.drift(batch)
        run.adapt_kl(batch)
        horizon.count("train", run.total(rollouts.tokens))
        horizon.tick(run.slowest(time.perf_counter() - begun))

        run.log(rollouts, batch, steps, {**probe_log, **tau_log, **clip_log, **former_log, "step_kl_used": step_kl})
        if crossed(before, horizon.progress, config.eval_every) or horizon.done:
            run.evaluate_dev()
        if crossed(before, horizon.progress, config.checkpoint_every) or horizon.done:
            run.save()
    if horizon.done:
        run.finish()


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
    error, before = None, provenance.memory()
    try:
        (train_dpo if config.method == "dpo" else train)(config, run_dir)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        if main_process:
            provenance.write_json(record_path, provenance.conclude(record, int(error is not None), error, before))


if __name__ == "__main__":
    main()
