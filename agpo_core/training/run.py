"""A run: what it holds, how it begins, and what it saves; `training.train` makes its updates."""

import contextlib
import hashlib
from pathlib import Path

import torch

from agpo_core import probe, provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.evaluation.evaluate import first_problems
from agpo_core.horizon import Horizon
from agpo_core.model_files import model_fingerprint
from agpo_core.rollouts import policy
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import make_engine
from agpo_core.tasks import Problem, Task, get_task
from agpo_core.training import checkpoint
from agpo_core.training.control import Control
from agpo_core.training.journal import Journal
from agpo_core.training.optimisation import parameter_groups
from agpo_core.training.problems import contaminated_problems, refuse_evaluation_sets, training_problems
from agpo_core.training.ranks import Ranks, make_accelerator
from agpo_core.training.reward_model import load_reward_model
from agpo_core.training.scores import Scores
from agpo_core.training.update import Learner, Sampler

EXTENDED = (
    "the horizon was {:g}, and is {:g} {} from update {} on: progress, and with it the learning rate, falls "
    "back to the consumed share of the longer horizon. Earlier lines give progress as a share of the shorter one."
)


class Run:
    """Everything that a run holds: model, optimiser, tasks and engine; its clock and its states; its folder.

    It also holds the objects with which the loop makes an update: `sampler` and `learner` (see `update`), `control`,
    `ranks`, `journal`. All that must be remembered from one update to the next is held by the run alone, which a
    checkpoint saves: horizon, temperature_state, clip_state, kl_state, former_state, step_kl, evaluations.

    Args:
        config: all settings.
        run_dir: the run's folder; a checkpoint in it is resumed.
        progress: print how far it is.
    """

    def __init__(self, config: TrainConfig, run_dir: Path, progress: bool = False):
        self.config, self.run_dir = config, Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.accelerator = accelerator = make_accelerator(config)
        self.ranks = Ranks(accelerator, config.prompts_per_update)
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
        groups, rates = parameter_groups(trained, config.weight_decay)
        optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.adam_betas)
        self.model, self.optimiser = accelerator.prepare(model, optimiser)
        self.learner = Learner(config, self.ranks, self.model, self.optimiser, rates, self.reference)
        self.whole, self.policy = self.learner.whole, self.learner.policy
        self.engine = make_engine(self.policy, self.tokenizer, config, self.tasks)
        try:
            self._begin(trained_on, progress)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory that sampling holds; whoever makes a run closes it."""
        self.engine.close()

    def _begin(self, trained_on: dict[str, Task], progress: bool) -> None:
        """Set up problems, controllers and clock, from the last checkpoint if there is one; evaluate a new run."""
        config = self.config
        with _told_in_one_line("decontaminate: "):
            forbidden = self._forbidden(trained_on)
        with _told_in_one_line():
            self.pools = training_problems(config, trained_on, forbidden, self._fitting)
        for problems in (*self.dev.values(), *self.test.values()):
            self.engine.texts_of(problems)  # finds a prompt that the chat template cannot render before training

        self.sampler = Sampler(config, self.ranks, self.engine, self.tasks, self.pools, self.reward_model)
        self.scores = Scores(self.ranks, self.engine, self.tasks, self.reward_model, self.reference)
        self.control = Control(config, self.ranks, self.policy.config.get_text_config().vocab_size)
        self.horizon = Horizon(config.horizon_unit, config.horizon)
        self.clip_state = self.control.clip.initial_state()
        self.temperature_state = self.control.temperature.initial_state()
        self.kl_state = self.control.kl.initial_state()
        self.step_kl = 0.0
        self.former_state = None  # the statistics of the last update's training rollouts
        self.evaluations = {"dev": []} | ({"train": []} if config.train_problems else {})
        self.contents = None  # fingerprints, see _identity
        extended_from = self._resume()
        self.journal = Journal(config, self.run_dir, self.horizon, self.ranks, progress)
        if any(self.evaluations.values()):
            self.journal.write_scores(self.evaluations)
        if extended_from is not None:
            self.journal.warn([("horizon_extended", EXTENDED.format(
                extended_from, config.horizon, config.horizon_unit, self.horizon.updates
            ))])  # fmt: skip
        self.journal.warn(self.journal.rules.see())
        if self.horizon.updates == 0:
            self.evaluate_dev()
            if self.evaluations["dev"]:
                self.journal.warn(self.journal.rules.see_start(self.evaluations["dev"][0]))

    def _forbidden(self, tasks: dict[str, Task]) -> set[tuple[str, str]]:
        """Training problems that stand in an evaluation set, as (task, id); a file in the run's folder lists them."""
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

    def evaluate_dev(self) -> None:
        """Add a point to the learning curves: on dev and, with `train_problems`, on those problems (R++ Fig. 3)."""
        curves = {"dev": self.dev} | ({"train": self.pools} if self.config.train_problems else {})
        for name, problems in curves.items():
            if problems:
                self.evaluations[name].append(self.scores.point(problems, self.horizon)[0])
                self.journal.write_scores(self.evaluations)

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
        """The run's description for a checkpoint, on the main process; models and problems count by content."""
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

    def _resume(self) -> float | None:
        """Take clock and states from the last checkpoint, if any; returns its horizon if that was shorter."""
        state = checkpoint.load(self.accelerator, self.run_dir, self._identity())
        if state is None:
            return None
        self.horizon = Horizon(**{**state["horizon"], "total": self.config.horizon})
        self.clip_state, self.temperature_state = state["clip"], state["temperature"]
        self.kl_state, self.step_kl, self.evaluations = state["kl"], state["step_kl"], state["evaluations"]
        self.former_state = probe.ProbeState(**state["former"]) if state["former"] else None
        return state.get("extended_from")

    def finish(self) -> None:
        """Evaluate on test, once, and save the policy in Hugging Face format."""
        if self.test:
            self.evaluations["test"] = self.scores.at_end(self.test, self.horizon)
            if self.config.train_problems:
                self.evaluations["trained_on"] = self.scores.at_end(self.pools, self.horizon)
            self.journal.write_scores(self.evaluations)
        if self.accelerator.is_main_process:
            with provenance.explain_full_disk(self.run_dir / "policy"):
                policy.save_policy(self.policy, self.tokenizer, self.run_dir / "policy")
        self.accelerator.wait_for_everyone()


def _task(setting: str, name: str, *rest) -> Task:
    """`get_task`, with the name of the setting in its error messages."""
    with _told_in_one_line(f"{setting}: "):
        return get_task(name, *rest)


@contextlib.contextmanager
def _told_in_one_line(prefix: str = ""):
    """Raise a ConfigError of one line where a task or its data cannot be loaded; the message says what to do."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, OSError) as error:  # OSError: no file, no connection
        raise ConfigError(prefix + " ".join(str(error).removeprefix("name: ").split())) from error
