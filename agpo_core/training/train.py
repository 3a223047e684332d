"""The loop: one update after another, for every on-policy method. (DPO, which is offline, goes to `training.offline`.)

`python -m agpo_core.training.train --run-dir FOLDER` trains the run that FOLDER/config.yaml describes. The same command
under the `deepspeed` launcher trains it on several ranks (ZeRO-2). A folder whose run is finished is left alone; an
unfinished run goes on from its last checkpoint. On SIGTERM or SIGINT the run finishes its current update, writes a
checkpoint and exits.

What the paper states and what it leaves open (AGPO §3.3) are settings of `TrainConfig`. These choices are not settings:

* A rollout batch is split into minibatches by prompt, in the order in which the prompts were drawn. Rank r of R holds
  every R-th prompt, so a minibatch is the same set of prompts in every epoch and for any number of ranks.
* Policy entropy, step KL and the KL to the reference are taken at temperature 1.
* Tokens are drawn from the nucleus, while the ratio uses the full vocabulary; `sampler_gap` logs the difference.
* The learning rate of an update follows from the progress at its start; warm-up begins at a tenth of the peak.
"""

import argparse
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from agpo_core import provenance, recipes
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import crossed
from agpo_core.jobs import folder, launch
from agpo_core.jobs.folder import FolderError
from agpo_core.jobs.interrupts import Interrupted, Interrupts
from agpo_core.model_files import model_fingerprint
from agpo_core.training import checkpoint
from agpo_core.training.batch import Batch
from agpo_core.training.offline import train_dpo
from agpo_core.training.run import Run
from agpo_core.training.update import advantages


def train(
    config: TrainConfig, run_dir: Path, stop_after: int | None = None, interrupts: Interrupts | None = None,
    progress: bool = False,
) -> None:  # fmt: skip
    """Train one run, from its last checkpoint or from the start, to its horizon.

    Args:
        config: all settings.
        run_dir: the run's folder; receives metrics.jsonl, eval.json, samples.jsonl, checkpoint/, policy/.
        stop_after: leave the run unfinished after this many updates in all (to look at its first updates).
        interrupts: holds signals back until an update is complete; None: signals act as usual.
        progress: print a line at each tenth of the horizon, as the command does.
    Raises:
        Interrupted: a signal came; the checkpoint includes the update in which it came.
    """
    if config.method == "dpo":
        return train_dpo(config, run_dir, stop_after, interrupts, progress)
    with closing(Run(config, run_dir, progress)) as run:
        _update_until_done(run, stop_after, interrupts or Interrupts())


def _update_until_done(run: Run, stop_after: int | None, interrupts: Interrupts) -> None:
    """The loop (AGPO §3.3), one for every on-policy method; for the arguments see `train`."""
    config, horizon, ranks = run.config, run.horizon, run.ranks
    sampler, control, learner = run.sampler, run.control, run.learner
    leaving = 0
    interrupts.hold()
    while not horizon.done and (stop_after is None or horizon.updates < stop_after):
        begun, before, update = time.perf_counter(), horizon.progress, horizon.updates
        learner.set_learning_rate(before)
        prompts = sampler.prompts(update)
        prefixes = run.engine.open(prompts)

        # Probe: read by the controllers, never trained on (§3.3). It is drawn at tau_base; a free probe draws nothing
        # and reads the previous update's rollouts.
        probed = sampler.probe(prompts, prefixes, update)
        signals, probe_log = control.signals(probed, run.former_state)
        tau_P, run.temperature_state, tau_log = control.temperatures(run.temperature_state, signals)

        greedy = sampler.greedy(prompts, prefixes, update)  # ReMax's baseline
        rollouts = sampler.rollouts(prompts, prefixes, tau_P, update)
        run.engine.rest()
        run.former_state, former_log = control.remember(rollouts)  # a free probe for the next update
        measured = learner.measure(rollouts)

        # The clip radius depends on the step KL of the previous update (Eq. 4).
        entropies = measured.entropies or [measured.entropy]
        epsilon_P, run.clip_state, clip_log = control.radii(run.clip_state, signals, entropies, run.step_kl)
        beta, run.kl_state, kl_log = control.kl_weight(run.kl_state, measured)

        advantages_B_T, returns_B_T = advantages(config, ranks, rollouts, measured, beta, greedy)
        batch = Batch(
            **vars(measured), beta=beta, advantages_B_T=advantages_B_T, returns_B_T=returns_B_T,
            epsilon_B_1=epsilon_P.repeat_interleave(config.group_size).unsqueeze(1),
        )  # fmt: skip
        steps = []
        for _ in range(config.epochs):
            for minibatch in batch.split(config.minibatches):
                steps.append(learner.step(minibatch, update))
        step_kl, run.step_kl = run.step_kl, learner.drift(batch)

        looked_at = [each for each in (probed, greedy) if each is not None]
        horizon.count("probe", ranks.total(sum(each.tokens for each in looked_at)))
        horizon.count("train", ranks.total(rollouts.tokens))
        horizon.tick(ranks.slowest(time.perf_counter() - begun))

        log = {"learning_rate": learner.learning_rate, "step_kl": run.step_kl, "step_kl_used": step_kl}
        log |= probe_log | tau_log | clip_log | kl_log | former_log
        failures = [failure for each in (*looked_at, rollouts) for failure in each.failures]  # of grading
        run.journal.log(rollouts, batch, steps, log, failures)
        if crossed(before, horizon.progress, config.eval_every) or horizon.done:
            run.evaluate_dev()
        leaving = int(ranks.slowest(interrupts.asked))  # on all ranks, if one of them got a signal
        if crossed(before, horizon.progress, config.checkpoint_every) or horizon.done or leaving:
            run.save()
        if leaving:
            break
    interrupts.release(leaving)
    if horizon.done:
        run.finish()


def main() -> None:
    """Train the run of the command line, and keep its run.json.

    Raises:
        ConfigError, FolderError: the settings, or the folder, cannot be used; one line says what to do.
    """
    parser = argparse.ArgumentParser(description="Train the run that RUN_DIR/config.yaml describes.")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--local_rank", type=int, help="set by the deepspeed launcher")
    run_dir = parser.parse_args().run_dir
    config = recipes.load(run_dir / "config.yaml")
    if _finished(config, run_dir):
        print(f"{run_dir.name} is finished.")
        return
    if os.environ.get("RANK", "0") == "0":
        with folder.locked(run_dir):
            _train_and_record(config, run_dir)
    else:
        with Interrupts() as interrupts:
            train(config, run_dir, interrupts=interrupts, progress=True)


def _train_and_record(config: TrainConfig, run_dir: Path) -> None:
    """Train on the main process; run.json says how it went."""
    contents = {"model": model_fingerprint(config.model)}
    checkpoint.refuse_another(run_dir, checkpoint.identity(config, **contents))
    command = [sys.executable, "-m", "agpo_core.training.train", *sys.argv[1:]]
    record = provenance.collect(command, config) | {"model_fingerprint": contents["model"]}
    provenance.write_json(run_dir / "run.json", record)
    before = provenance.memory()

    def close(exit_status: int, error: str | None, **more) -> None:
        closed = provenance.conclude(record, exit_status, error, before)
        provenance.write_json(run_dir / "run.json", closed | more)

    def noted(name: str) -> None:
        close(128 + signal.Signals[name], f"stopped by {name} within an update", status="interrupted")

    try:
        with Interrupts(noted) as interrupts:
            train(config, run_dir, interrupts=interrupts, progress=True)
            files = folder.inventory(run_dir)
    except Interrupted as stopped:
        close(stopped.code, str(stopped), status="interrupted")
        print(f"{run_dir.name}: {stopped}. The same command goes on from its checkpoint.", file=sys.stderr)
        raise
    except BaseException as raised:
        if remedy := launch.remedy(f"{type(raised).__name__}: {raised}"):
            raised.add_note(remedy)
        close(1, f"{type(raised).__name__}: {raised}")
        raise
    close(0, None, files=files)


def _finished(config: TrainConfig, run_dir: Path) -> bool:
    """Whether the folder holds the complete finished run of these settings; missing files are named.

    Raises:
        FolderError: it holds a finished run of another model; or the settings differ or files are missing, and there is
            no checkpoint to go on from.
    """
    record = folder.read_record(run_dir)
    if record is None or record["status"] != "finished":
        return False
    trained_from = record.get("model_fingerprint")
    now = model_fingerprint(config.model) if trained_from else None
    if now and now != trained_from:
        raise FolderError(
            f"{run_dir.name} is finished, and was trained from another model: the content of {config.model} has "
            f"changed since ({trained_from} → {now}). Put it back, or take a new folder."
        )
    if record.get("hash", config.hash()) != config.hash():
        if (run_dir / checkpoint.FOLDER).exists():
            return False  # a longer horizon extends it; the check of its checkpoint refuses any other difference
        raise FolderError(
            f"{run_dir.name} is finished under other settings (hash {record['hash']}, config.yaml now gives "
            f"{config.hash()}): put config.yaml back, or take a new folder."
        )
    if missing := folder.damages(run_dir, record.get("files", {})):
        if config.horizon > 0 and not any(run_dir.glob(f"{checkpoint.FOLDER}*")):
            raise FolderError(
                f"{run_dir.name} is finished, but {'; '.join(missing)}, and there is no checkpoint to make its end "
                "from: put the files back, or take a new folder. To train it anew, delete its run.json."
            )
        print(f"{run_dir.name} was finished, but {'; '.join(missing)}: its end is made again.", flush=True)
        return False
    return True


if __name__ == "__main__":
    try:
        main()
    except (ConfigError, FolderError, OSError) as error:  # OSError: the disk, or a folder's permissions
        sys.exit(" ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]))
