"""The problems that a run trains on: the tasks' training problems without those that an evaluation set also holds."""

from collections.abc import Callable, Collection

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import permutation
from agpo_core.tasks import Problem, Task
from agpo_core.tasks.benchmarks.task import EVALUATION_ONLY
from agpo_core.tasks.decontamination import load_sets, overlaps

FEW = 2**32 - 1  # permutation key that draws the first task's `train_problems`; the loop's keys count up from 0


def refuse_evaluation_sets(tasks: dict[str, Task]) -> None:
    """Refuse to train on benchmarks that are for evaluation only, before any of their data are read.

    Raises:
        ConfigError: such a benchmark is among the tasks, and train_on_evaluation_sets is not set.
    """
    for name, task in tasks.items():
        if getattr(task, "evaluation_only", False):
            raise ConfigError(EVALUATION_ONLY.format(name))


def contaminated_problems(config: TrainConfig, tasks: dict[str, Task]) -> dict[str, dict[str, list[str]]]:
    """The training problems that `decontaminate` leaves out: {task: {evaluation set: ids of training problems}}.

    Raises:
        ConfigError: no training problem of a task is left.
    """
    if not config.decontaminate:
        return {}
    train = {name: task.problems("train") for name, task in tasks.items()}
    evaluation = load_sets(config.decontaminate, "test", config.data_dir)
    found = overlaps(train, evaluation)
    forbidden = {name: {one: found[name, one].contaminated for one in evaluation} for name in train}
    for name, problems in train.items():
        if len(set().union(*forbidden[name].values())) == len(problems):
            raise ConfigError(
                f"decontaminate: every training problem of {name} stands in {', '.join(evaluation)} too; train on "
                "another task, or take the set out of decontaminate."
            )
    return forbidden


def training_problems(
    config: TrainConfig,
    tasks: dict[str, Task],
    forbidden: Collection[tuple[str, str]] = (),
    fitting: Callable[[str, list[Problem]], list[Problem]] = lambda name, pool: pool,
) -> dict[str, list[Problem]]:
    """The problems to train on, by task: the train split, or `train_problems` problems of it.

    With `train_problems` the problems are drawn by the seed, so methods with the same seed share them. They keep the
    split's order.

    Args:
        config: uses train_problems and seed.
        tasks: by name.
        forbidden: (task, id) of problems to leave out.
        fitting: a function that keeps only the problems whose prompts leave room for an answer.
    Raises:
        ConfigError: a task has fewer training problems than asked for, or none that fits.
    """
    pools = {
        name: fitting(name, [problem for problem in task.problems("train") if (name, problem.id) not in forbidden])
        for name, task in tasks.items()
    }
    for name, pool in pools.items():
        if not pool:
            raise ConfigError(
                f"no training prompt of {name} fits into max_sequence_tokens - max_completion_tokens = "
                f"{config.max_sequence_tokens - config.max_completion_tokens} tokens: raise max_sequence_tokens."
            )
    few = config.train_problems
    if few is None:
        return pools
    for i, (name, pool) in enumerate(pools.items()):
        if len(pool) < few:
            raise ConfigError(
                f"task {name!r} has {len(pool)} train problems, {few} were asked for: lower train_problems."
            )
        drawn = permutation(config.seed, len(pool), key=FEW - i)[:few]
        pools[name] = [pool[j] for j in sorted(drawn.tolist())]
    return pools
