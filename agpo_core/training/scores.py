"""Evaluations of a policy during a run and at its end: the entries of eval.json."""

from agpo_core.evaluation.evaluate import complete_and_grade, counts_right
from agpo_core.horizon import Horizon
from agpo_core.jobs.together import together
from agpo_core.rollouts.policy import Reference
from agpo_core.rollouts.rollout import RolloutEngine
from agpo_core.tasks import Problem, Task
from agpo_core.training.batch import forward_prompts
from agpo_core.training.ranks import Ranks
from agpo_core.training.reward_model import RewardModel, appraise


class Scores:
    """Evaluates a policy on problems, with greedy and with sampled completions; the ranks share the work.

    Args:
        ranks: of the run.
        engine: samples from the policy; has the run's settings.
        tasks: by name; they grade.
        reward_model: gives scores beside the grades; None: there is none.
        reference: the policy before training.
    """

    def __init__(
        self, ranks: Ranks, engine: RolloutEngine, tasks: dict[str, Task], reward_model: RewardModel | None,
        reference: Reference,
    ):  # fmt: skip
        self.ranks, self.engine, self.tasks = ranks, engine, tasks
        self.reward_model, self.reference, self.config = reward_model, reference, engine.config

    def point(self, problems: dict[str, list[Problem]], horizon: Horizon) -> tuple[dict, dict[str, list[float]]]:
        """A point of a learning curve, and the greedy reward of each problem.

        Args:
            problems: of each task.
            horizon: counts the tokens, apart from those of training.
        """
        found = complete_and_grade(self.engine, self.tasks, problems, self.ranks.accelerator)
        horizon.count("evaluation", found.tokens)
        rewards = {name: [reward for (reward,) in rows] for name, rows in found.rewards.items()}
        scores = {name: sum(values) / len(values) for name, values in rewards.items()}
        sizes = {name: len(values) for name, values in rewards.items()}
        too_long = {name: self.engine.fits(several).count(False) for name, several in problems.items()}
        point = {
            "progress": horizon.progress,
            "update": horizon.updates,
            "tokens": horizon.tokens["train"] + horizon.tokens["probe"],
            "score": scores,
            "macro": sum(scores.values()) / len(scores),
            "problems": next(iter(sizes.values())) if len(set(sizes.values())) == 1 else sizes,  # per task
        }
        if any(too_long.values()):  # counted as wrong
            point["too_long"] = too_long
        if found.failures:  # counted as 0
            point["failed_grades"] = len(found.failures)
        if self.reward_model is not None:
            every = [problem for several in problems.values() for problem in several]
            point["sampled"] = self._appraise(every, horizon)
        return point, rewards

    def at_end(self, problems: dict[str, list[Problem]], horizon: Horizon) -> dict:
        """The last point with the reward of each problem, and the rewards and votes of sampled completions.

        Right completions and votes are counted only where rewards lie in [0, 1]: elsewhere 1 does not mean right.

        Args:
            problems, horizon: as in `point`.
        """
        point, rewards = self.point(problems, horizon)
        point["rewards"] = rewards
        if n := self.config.test_samples:
            found = complete_and_grade(
                self.engine, self.tasks, problems, self.ranks.accelerator, n, self.config.tau_base
            )
            horizon.count("evaluation", found.tokens)
            right = {name: count for name, rows in found.rewards.items() if (count := counts_right(rows)) is not None}
            average = {name: sum(map(sum, rows)) / (n * len(rows)) for name, rows in found.rewards.items()}
            votes = {name: found.votes[name] for name in right}
            point |= {"samples": n, "right": right, "average": average, "votes": votes}
            if found.failures:
                point["failed_grades"] = point.get("failed_grades", 0) + len(found.failures)
        return point

    def _appraise(self, problems: list[Problem], horizon: Horizon) -> dict:
        """Means over all ranks' problems of the results of `reward_model.appraise`, without too long prompts."""
        c, ranks = self.config, self.ranks
        problems = [problem for problem, fit in zip(problems, self.engine.fits(problems), strict=True) if fit]
        size = min(c.rollout_batch, forward_prompts(c, ranks.count) * c.group_size)  # as in training
        with together(ranks.accelerator):
            found = appraise(
                self.reward_model, self.engine, self.reference, self.tasks, ranks.mine(problems),
                list(ranks.mine(range(len(problems)))), size,
            )  # fmt: skip
        horizon.count("evaluation", ranks.total(sum(found["length"])))
        return {name: ranks.total(float(sum(values))) / len(problems) for name, values in found.items()}
