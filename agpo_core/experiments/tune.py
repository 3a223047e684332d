"""Choose the learning rate that the arms of an experiment share, on the dev split.

    python -m agpo_core.experiments.tune EXPERIMENT PROFILE --rates 1.0e-4 2.0e-4 4.0e-4 --seeds 101 102

Trains every arm at every rate, with seeds that the experiment does not report and without evaluating on test. Writes
the rate with the best mean score on dev over all arms into `params/EXPERIMENT.PROFILE.yaml`, and all trials into the
record. Arms that are compared share a rate: a rate chosen for each arm from a few trials would mostly be noise.
"""

import argparse
import re

import pandas as pd

from agpo_core import paths, provenance
from agpo_core.experiments import grid, profiles, records
from agpo_core.jobs import launch

TRIALS = "learning_rates.csv"


def trials(experiment: str, profile: str, rates: list[float], seeds: list[int]) -> pd.DataFrame:
    """Train what is missing; one row for each arm x rate x seed, with the last score on dev.

    An arm that follows another takes its horizon from that arm's trial at the same rate and seed.
    """
    params = profiles.settings(experiment, profile)
    arms = [grid.ARMS[name] for name in params["methods"] if name != "start"]
    leading = [arm.name for arm in arms if not arm.follows]
    params |= {"run_mode": "train", "methods": leading, "seeds": seeds, "cross_starts": False}
    plans = {rate: grid.plan(experiment, params | {"learning_rate": rate}) for rate in rates}
    configs = {
        (job.arm.name, rate, job.seed, job.start): job.config.replace(test_problems=0)
        for rate, jobs in plans.items()
        for job in jobs
    }
    folders = _train(experiment, profile, configs, params)
    for arm in arms:
        for (name, *key), config in list(configs.items()):
            if arm.follows and name == arm.method:
                leader = arm.follows, *key
                configs[arm.name, *key] = grid.following(arm, config, configs[leader], folders[leader])
    folders = _train(experiment, profile, configs, params)
    rows = []
    for (name, rate, seed, start), folder in folders.items():
        dev = provenance.read_json(folder / "eval.json")["dev"][-1]["macro"]
        commit = provenance.read_json(folder / "run.json")["commit"]
        rows.append({"arm": name, "rate": rate, "seed": seed, "start": start, "dev": round(dev, 5), "commit": commit})
    return pd.DataFrame(rows)


def _train(experiment: str, profile: str, configs: dict, params: dict) -> dict:
    """Train the trials that are not finished, and return the folder of each."""
    folders = {}
    for key, config in configs.items():
        name, _, seed, start = key
        folder = paths.run_dir(experiment, f"{profile}-rates", name, seed, start, config.hash())
        folders[key] = folder
        folder.mkdir(parents=True, exist_ok=True)
        config.save(folder / "config.yaml")
    missing = [folder for folder in folders.values() if not launch.is_finished(folder)]
    launch.launch(missing, **{name: params[name] for name in grid.LAUNCH})
    return folders


def choose(table: pd.DataFrame) -> float:
    """The rate with the best mean dev score over all trials; the lower rate where two are equal."""
    means = table.groupby("rate")["dev"].mean()
    return float(means[means == means.max()].index.min())


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Choose the learning rate of an experiment on the dev split.")
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
    rate, to = choose(table), profiles.notebook_file(args.experiment, args.profile)
    text = to.read_text(encoding="utf-8") if to.is_file() else f"profile: {args.profile}\n"
    to.write_text(with_rate(text, rate), encoding="utf-8")
    print(f"The best rate, {rate:.1e}, is now in {to.relative_to(paths.root())}.")


def with_rate(text: str, rate: float) -> str:
    """The text of a settings file with its learning rate replaced, or added as the last line; comments stay."""
    written, found = re.subn(r"^(learning_rate:) *\S+", rf"\g<1> {rate:.1e}", text, flags=re.MULTILINE)
    return written if found else f"{text.rstrip()}\nlearning_rate: {rate:.1e}\n"


if __name__ == "__main__":
    main()
