"""What each rank of a run sees. Started by test_two_ranks, alone and under the deepspeed launcher:

    python -m tests.training.two_ranks FOLDER

FOLDER holds `config.yaml`. The run is trained straight through in FOLDER/straight, broken off and
resumed in FOLDER/resumed, and for one update with controllers of each prompt's own in
FOLDER/prompt and with a tool in FOLDER/tool; every recipe is trained for two updates in FOLDER/<recipe>. Each rank
writes what it saw to FOLDER/rank<r>.json.
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
from accelerate.state import AcceleratorState

from agpo_core import provenance, recipes
from agpo_core.config import TrainConfig
from agpo_core.training import run as run_module
from agpo_core.training import train as module
from tests.conftest import Toy
from tests.training.test_tools import Talk


class ObservedRun(run_module.Run):
    """A run that keeps what this rank sees."""

    seen: list[dict]

    def log(self, rollouts, batch, steps, controllers):
        super().log(rollouts, batch, steps, controllers)
        self.seen.append(
            {
                "slots": rollouts.prompts.slots_P.tolist(),
                "texts": rollouts.grouped(rollouts.texts),
                "order": self.gather(rollouts.prompts.slots_P).tolist(),
                "tau": rollouts.temperature_B[:: rollouts.group].tolist(),
                "epsilon": batch.epsilon_B_1[:: rollouts.group, 0].tolist(),
                "entropy": batch.entropy,
                "step_kl": self.step_kl,
                "states": [self.clip_state, self.temperature_state],
                "horizon": self.horizon.state(),
                "steps": steps,
                "controllers": controllers,
            }
        )

    def finish(self):
        super().finish()
        weights = torch.cat([p.detach().flatten() for p in self.policy.parameters()])
        digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
        self.seen.append({"weights": digest, "evaluations": self.evaluations})


def observe(config: TrainConfig, folder: Path, stops: list) -> list[dict]:
    """Train in a folder, breaking off after each number of updates in `stops`; None: to the end."""
    folder.mkdir(exist_ok=True)
    ObservedRun.seen = []
    for stop_after in stops:
        module.train(config, folder, stop_after)
        AcceleratorState._reset_state()
    return ObservedRun.seen


def of_recipe(method: str, config: TrainConfig) -> TrainConfig:
    """A short run of a recipe, on the model and tasks of `config`."""
    shared = ("model", "tasks", "max_completion_tokens", "micro_batch_prompts", "minibatches", "learning_rate")
    settings = {"prompts_per_update": 8, "group_size": 4, **recipes.RECIPES[method].settings}
    if settings["group_size"] == 1:
        settings["prompts_per_update"] = 16
    settings |= {name: getattr(config, name) for name in shared}
    return recipes.resolve(
        method, **settings, horizon_unit="updates", horizon=2.0, checkpoint_every=1.0, dev_problems=0, test_problems=0
    )


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    module.Run = ObservedRun
    run_module.get_task = lambda name, *rest: Toy(name)
    config = recipes.load(folder / "config.yaml")
    seen = {
        "straight": observe(config, folder / "straight", [None]),
        "resumed": observe(config, folder / "resumed", [2, None]),
        "prompt": observe(config.replace(controller_scope="prompt"), folder / "prompt", [1]),
    }
    run_module.get_task = lambda name, *rest: Talk(name)
    seen["tool"] = observe(config, folder / "tool", [1])
    run_module.get_task = lambda name, *rest: Toy(name)
    for method in (name for name in recipes.RECIPES if name != "dpo"):
        observe(of_recipe(method, config), folder / method, [None])
    provenance.write_json(folder / f"rank{os.environ.get('RANK', '0')}.json", seen)


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
