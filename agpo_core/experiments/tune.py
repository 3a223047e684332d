"""Choose each arm's learning rate on the dev split, with the same number of trials each.

    python -m agpo_core.experiments.tune EXPERIMENT PROFILE --rates 1.0e-4 2.0e-4 4.0e-4 --seeds 101 102

Trains every arm at every rate with seeds that the experiment does not report, without a look at test, and writes the
rate with the best mean score on dev into `params/PROFILE.yaml`, and all trials into the record. A control that follows
another arm's updates takes the rate of its method.
"""

import argparse
import re

import pandas as pd
import yaml

from agpo_core import paths, provenance
from agpo_core.experiments import grid, records
from agpo_core.training import launch

TRIALS = "learning_rates.csv"


def trials(experiment: str, profile: str, rates: list[float], seeds: list[int]) -> pd.DataFrame:
    """Train what is missing; one row for each arm x rate x seed, with the last score on dev."""
    params = yaml.safe_load((paths.params() / f"{profile}.yaml").read_text(encoding="utf-8"))
    arms = [name for name in params["methods"] if name != "start" and not grid.ARMS[name].follows]
    params |= {"run_mode": "train", "methods": arms, "seeds": seeds, "cross_starts": False}
    params |= {f"learning_rate_{name}": None for name in grid.ARMS if name != "start"}
    rows, folders = [], []
    for rate in rates:
        for job in grid.plan(experiment, {**params, "learning_rate": rate}):
            config = job.config.replace(test_problems=0)
            name = f"{job.arm.name}-s{job.seed}-{job.start}-{config.hash()}"
            folder = paths.runs() / experiment / f"{profile}-rates" / name
            folder.mkdir(parents=True, exist_ok=True)
            config.save(folder / "config.yaml")
            folders.append(folder)
            rows.append({"arm": job.arm.name, "rate": rate, "seed": job.seed, "start": job.start})
    missing = [folder for folder in folders if not launch.is_finished(folder)]
    names = ("launcher", "ranks", "hostfile", "parallel", "master_port")
    launch.launch(missing, **{name: params[name] for name in names})
    for row, folder in zip(rows, folders, strict=True):
        row["dev"] = round(provenance.read_json(folder / "eval.json")["dev"][-1]["macro"], 5)
        row["commit"] = provenance.read_json(folder / "run.json")["commit"]
    return pd.DataFrame(rows)


def choose(table: pd.DataFrame) -> dict[str, float]:
    """The rate with the best mean dev score of each arm; the lower rate where two are equal."""
    means = table.groupby(["arm", "rate"])["dev"].mean().reset_index()
    best = means.sort_values(["dev", "rate"], ascending=[False, True]).groupby("arm", sort=False)
    chosen = best["rate"].first().to_dict()
    for name, arm in grid.ARMS.items():
        if arm.follows and arm.method in chosen:
            chosen[name] = chosen[arm.method]
    return chosen


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Choose learning rates on the dev split.")
    parser.add_argument("experiment", help="the notebook's name")
    parser.add_argument("profile", help="a name in params/")
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    args = parser.parse_args(argv)
    table = trials(args.experiment, args.profile, args.rates, args.seeds)
    print(table.pivot_table(index="arm", columns="rate", values="dev", sort=False).round(4))
    record = records.folder(args.experiment, args.profile)
    record.mkdir(parents=True, exist_ok=True)
    table.to_csv(record / TRIALS, index=False)
    to = paths.params() / f"{args.profile}.yaml"
    to.write_text(with_rates(to.read_text(encoding="utf-8"), choose(table)), encoding="utf-8")
    print(f"The best of each arm stands in {to.relative_to(paths.root())}.")


def with_rates(text: str, rates: dict[str, float]) -> str:
    """A profile with each arm's learning rate set; comments stay."""
    for name, rate in rates.items():
        line = rf"^(learning_rate_{name}:) *\S+"
        if not re.search(line, text, flags=re.MULTILINE):
            raise ValueError(f"the profile has no line learning_rate_{name}: add it.")
        text = re.sub(line, rf"\g<1> {rate:.1e}", text, flags=re.MULTILINE)
    return text


if __name__ == "__main__":
    main()
