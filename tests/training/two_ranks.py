"""What each rank of a run sees. Started by test_two_ranks, alone and under the deepspeed launcher:

    python -m tests.training.two_ranks FOLDER

FOLDER holds `config.yaml` and `variants.json`, {name: [recipe, settings]}. Each variant is trained for two updates in
FOLDER/<name>, and its trainable weights before and after are kept in FOLDER/<name>.weights<rank>. Where the name
"details" is among the variants, the run of `config.yaml` is trained straight through in FOLDER/straight, broken off and
resumed in FOLDER/resumed, and for one update with controllers of each prompt's own in FOLDER/prompt and with a tool in
FOLDER/tool, and DPO is broken off and resumed in FOLDER/pairs; what this rank saw is written to FOLDER/rank<r>.json.
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
from accelerate.state import AcceleratorState

from agpo_core import provenance, recipes
from agpo_core.config import TrainConfig
from agpo_core.training import offline
from agpo_core.training import run as run_module
from agpo_core.training import train as module
from tests.conftest import Toy
from tests.training.test_tools import Talk

RANK = int(os.environ.get("RANK", 0))
DETAILS = "details"


def trainable(run: run_module.Run) -> torch.Tensor:
    """All trained weights, those of a critic too, as one vector."""
    return torch.cat([p.detach().flatten().double() for p in run.whole.parameters() if p.requires_grad])


class ObservedRun(run_module.Run):
    """A run that keeps what this rank sees."""

    seen: list[dict]

    def __init__(self, *args):
        super().__init__(*args)
        self.start = trainable(self)
        draw, log = self.sampler.rollouts, self.journal.log

        def watched_draw(*args):
            rollouts = draw(*args)
            self.seen.append({"longest": int(rollouts.mask_B_T.sum(dim=1).max())})
            return rollouts

        def watched_log(rollouts, batch, steps, more, failures):
            log(rollouts, batch, steps, more, failures)
            self.see(rollouts, batch, steps, more)

        self.sampler.rollouts, self.journal.log = watched_draw, watched_log

    def see(self, rollouts, batch, steps, more):
        self.seen.append(
            {
                "slots": rollouts.prompts.slots_P.tolist(),
                "texts": rollouts.grouped(rollouts.texts),
                "longest_prompt": int(rollouts.prompt_mask_P_S.sum(dim=1).max()),
                "order": self.ranks.gather(rollouts.prompts.slots_P).tolist(),
                "tau": rollouts.temperature_B[:: rollouts.group].tolist(),
                "epsilon": batch.epsilon_B_1[:: rollouts.group, 0].tolist(),
                "entropy": batch.entropy,
                "step_kl": self.step_kl,
                "states": [self.clip_state, self.temperature_state],
                "horizon": self.horizon.state(),
                "steps": steps,
                "controllers": more,
            }
        )

    def finish(self):
        super().finish()
        end = trainable(self)
        torch.save({"start": self.start, "end": end}, self.run_dir.with_name(f"{self.run_dir.name}.weights{RANK}"))
        digest = hashlib.sha256(end.numpy().tobytes()).hexdigest()
        self.seen.append({"weights": digest, "evaluations": self.evaluations})


def observe(config: TrainConfig, folder: Path, stops: list) -> list[dict]:
    """Train in a folder, breaking off after each number of updates in `stops`; None: to the end."""
    folder.mkdir(exist_ok=True)
    ObservedRun.seen = []
    for stop_after in stops:
        module.train(config, folder, stop_after)
        AcceleratorState._reset_state()
    return ObservedRun.seen


def of_recipe(method: str, config: TrainConfig, settings: dict) -> TrainConfig:
    """Two updates of a recipe on the model and tasks of `config`: unequal lengths, an odd number of dev problems."""
    params = {"prompts_per_update": 8, "group_size": 4, **recipes.RECIPES[method].settings}
    if params["group_size"] == 1:
        params["prompts_per_update"] = 16
    params |= {
        "model": config.model, "tasks": config.tasks, "minibatches": config.minibatches,
        "max_completion_tokens": 96, "micro_batch_prompts": 1, "learning_rate": 2.0e-4,
        "dev_problems": 5, "test_problems": 3, "eval_every": 1.0, "checkpoint_every": 1.0,
    }  # fmt: skip
    return recipes.resolve(method, **params | settings, horizon_unit="updates", horizon=2.0)


def look_at_details(config: TrainConfig, folder: Path) -> dict:
    seen = {
        "straight": observe(config, folder / "straight", [None]),
        "resumed": observe(config, folder / "resumed", [2, None]),
        "prompt": observe(config.replace(controller_scope="prompt"), folder / "prompt", [1]),
        "pairs": observe(of_recipe("dpo", config, {"checkpoint_every": 0.5}), folder / "pairs", [1, None]),
    }
    run_module.get_task = lambda name, *rest: Talk(name)
    seen["tool"] = observe(config, folder / "tool", [1])
    run_module.get_task = lambda name, *rest: Toy(name)
    return seen


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    module.Run = offline.Run = ObservedRun
    run_module.get_task = lambda name, *rest: Toy(name)
    config = recipes.load(folder / "config.yaml")
    variants = provenance.read_json(folder / "variants.json")
    seen = look_at_details(config, folder) if variants.pop(DETAILS, None) else {}
    for name, (method, settings) in variants.items():
        seen[name] = observe(of_recipe(method, config, settings), folder / name, [None])
    provenance.write_json(folder / f"rank{RANK}.json", seen)


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
