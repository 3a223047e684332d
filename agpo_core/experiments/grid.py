"""A grid of runs, arms x seeds x supervised starts: trains what is missing, reuses what is finished.

A run that another experiment has finished with the same settings, and so the same hash, is read from its folder there.

    python -m agpo_core.experiments.grid record EXPERIMENT PROFILE --seeds 42 1337 2026
    python -m agpo_core.experiments.grid promote EXPERIMENT PROFILE

`record` trains a profile's grid with the seeds given and writes it to `outputs/reference/`, where it is committed;
`promote` writes the grid that was run last.

An *arm* is a method with settings of its own, shown as one row of a table. It is a recipe, or a control that isolates
one cause of a difference between recipes.
"""

import argparse
import itertools
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import httpx
import huggingface_hub

from agpo_core import paths, provenance
from agpo_core.config import FIELDS, ConfigError, TrainConfig
from agpo_core.experiments import estimate, profiles, records
from agpo_core.experiments.records import Results
from agpo_core.jobs import launch
from agpo_core.model_files import embedded_models, model_source, to_make
from agpo_core.recipes import KL_IN_REWARD, RECIPES, resolve
from agpo_core.settings import Above, AtLeast, Within, checked, unknown


@dataclass(frozen=True)
class Arm:
    """A row of the table.

    Attributes:
        method: a name in recipes.RECIPES.
        settings: what it changes in the method; they outrank the grid's parameters.
        follows: the arm that sets this one's horizon, at the same seed and start.
        matched: in what the two are equal: "updates", or "compute" (`estimate.forward_passes`).
    """

    name: str
    title: str
    method: str
    settings: dict = field(default_factory=dict)
    follows: str | None = None
    matched: str | None = None

    @property
    def adapts(self) -> list[str]:
        """What its controllers adapt: epsilon, tau, both or neither."""
        settings = RECIPES[self.method].settings
        moved = {"clip": "epsilon", "temperature": "tau"}
        return [value for key, value in moved.items() if settings.get(key) == "adaptive"]


def _methods(*names: str) -> list[Arm]:
    return [Arm(name, RECIPES[name].title, name) for name in names]


NEXT_TO_NOTHING = 1.0e-6  # a weight of the KL that does nothing; at 0 there is no reference, and the KL is not measured
KL_AS_LOSS = {"kl_estimator": "k3", "kl_placement": "loss"}
BATCH_MEAN = {"population": "sequences", "kl_estimator": "k2", "kl_placement": "loss"}  # the baseline's, for its mean
ARMS = {
    arm.name: arm
    for arm in (
        Arm("start", "supervised start", "grpo", {"horizon_unit": "updates", "horizon": 0.0}),
        Arm("grpo", "GRPO", "grpo"),
        Arm("grpo_ats", "GRPO + ATS", "grpo_ats"),
        Arm("agpo_no_ats", "AGPO (−ATS)", "agpo_no_ats"),
        Arm("agpo", "AGPO", "agpo"),
        Arm("grpo_matched_updates", "GRPO at AGPO's updates", "grpo", follows="agpo", matched="updates"),
        Arm("grpo_matched_compute", "GRPO at AGPO's compute", "grpo", follows="agpo", matched="compute"),
        Arm("grpo_narrow", "GRPO at ε = .05", "grpo", {"epsilon_base": 0.05}),
        Arm("agpo_relative_entropy", "AGPO with H/EMA(H)", "agpo", {"clip_entropy": "ratio_ema"}),
        Arm("grpo_no_kl", "GRPO, β ≈ 0", "grpo", {"beta": NEXT_TO_NOTHING}),
        Arm("agpo_no_kl", "AGPO, β ≈ 0", "agpo", {"beta": NEXT_TO_NOTHING}),
        Arm("grpo_k1_reward", "GRPO, k1 in the reward", "grpo", KL_IN_REWARD),
        Arm("reinforce_pp_k_k3_loss", "REINFORCE++ (k > 1), k3 as loss", "reinforce_pp_k", KL_AS_LOSS),
        *_methods(
            "agpo_no_dispersion", "agpo_no_skewness", "agpo_no_vote_entropy", "agpo_no_step_kl", "agpo_mad", "agpo_iqr",
            "agpo_official_code", "agpo_global", "agpo_part_probe", "agpo_free_probe", "dr_grpo", "rloo", "remax",
            "reinforce_pp", "reinforce_pp_k", "reinforce_pp_baseline", "ppo", "ppo_critic", "adaptive_kl_ppo", "dpo",
            "mixed_scaling",
        ),
        # Prompts or rollouts: as many rollouts an update, of more prompts (beyond_prompts_or_rollouts)
        Arm("grpo_2", "GRPO, G = 2", "grpo", {"group_size": 2}),
        Arm("grpo_4", "GRPO, G = 4", "grpo", {"group_size": 4}),
        Arm("baseline_2", "REINFORCE++-baseline, G = 2", "reinforce_pp_baseline", {"group_size": 2}),
        Arm("baseline_4", "REINFORCE++-baseline, G = 4", "reinforce_pp_baseline", {"group_size": 4}),
        Arm("batch_mean_1", "batch's mean, G = 1", "reinforce_pp", BATCH_MEAN),
        Arm("batch_mean_2", "batch's mean, G = 2", "reinforce_pp_k", {**BATCH_MEAN, "group_size": 2}),
        Arm("batch_mean_4", "batch's mean, G = 4", "reinforce_pp_k", {**BATCH_MEAN, "group_size": 4}),
        Arm("batch_mean_8", "batch's mean, G = 8", "reinforce_pp_k", BATCH_MEAN),
        # Normaliser and KL (beyond_normaliser_and_kl)
        Arm("grpo_k2_loss", "GRPO, k2 as loss", "grpo", {"kl_estimator": "k2"}),
        Arm("baseline_k3_loss", "REINFORCE++-baseline, k3 as loss", "reinforce_pp_baseline", {"kl_estimator": "k3"}),
        Arm("baseline_k1_reward", "REINFORCE++-baseline, k1 in the reward", "reinforce_pp_baseline", KL_IN_REWARD),
        # Runs that go wrong, each by one setting (learn_04_reading_a_run)
        Arm("agpo_high_rate", "AGPO, rate 1e-2", "agpo", {"learning_rate": 1.0e-2}),
        Arm("agpo_unsolved", "AGPO, unsolved task", "agpo", {"tasks": ["knights_4"]}),
    )
}  # fmt: skip


def arms_of(table) -> list[str]:
    """The arms in a table of results, in the order of ARMS."""
    present = set(table["arm"])
    return [name for name in ARMS if name in present]


# Parameters of the grid itself; every other parameter is a field of TrainConfig.
GRID = {
    "profile": str,
    "run_mode": Literal["replay", "train", "plan"],
    "methods": tuple[str, ...],  # names in ARMS
    "seeds": tuple[Annotated[int, Within("[0, 2**31)")], ...],
    "models": tuple[str, ...],  # supervised starts: embedded models, folders, hub ids
    "cross_starts": bool,  # every seed with every start; else seeds alternate over starts
    "launcher": Literal["python", "deepspeed"],
    "ranks": Annotated[int, AtLeast(1)],
    "hostfile": str | None,
    "parallel": Annotated[int, AtLeast(1)],  # jobs side by side
    "kept_samples": Annotated[int, AtLeast(0)],  # of a run's first and of its last update, in the record
    "master_port": Annotated[int, AtLeast(1, most=65_535)] | None,
    "memory_gb": Annotated[float, Above(0)],  # of a rank: its GPU's, or its share of the machine's; for `plan`
    "tokens_per_second": Annotated[float, Above(0)],  # of an arm without a probe; for `plan`
    "tokens_per_second_probe": Annotated[float, Above(0)],  # of an arm with a probe; for `plan`
}
KNOWN = [*GRID, *(name for name in FIELDS if name not in profiles.OF_THE_ARM)]
LAUNCH = ("launcher", "ranks", "hostfile", "parallel", "master_port")
# Parameters in which a grid may differ from its record and still be the same experiment.
FREE = {"run_mode", "methods", "seeds", "cross_starts", "data_dir", "memory_gb", "tokens_per_second",
        "tokens_per_second_probe", "kept_samples", *LAUNCH}  # fmt: skip
YOUNG = {"kept_samples"}  # parameters of the grid that older records do not state
INDEX = "grid.json"  # the parameters of the grid that was run last, beside its runs


@dataclass(frozen=True)
class PlannedRun:
    """One run of a grid. Until the run that it follows is finished, config and folder are None."""

    arm: Arm
    seed: int
    start: str
    config: TrainConfig | None
    folder: Path | None

    @property
    def finished(self) -> bool:
        return self.folder is not None and launch.is_finished(self.folder)


def parameters(notebook: str, namespace: dict) -> dict:
    """The settings in effect of a notebook with a grid: see `profiles.parameters`, which also sets its variables.

    Args:
        notebook: its name in `params/`.
        namespace: the notebook's `globals()`.
    Raises:
        ConfigError: a setting is unknown or mistyped, or there is no such profile. `plan` checks the ranges of runs.
    """
    params = profiles.parameters(notebook, namespace)
    check(params)
    return params


def _refuse_unknown(names) -> None:
    for name in names:
        if name not in KNOWN:
            hint = unknown(name, KNOWN, "see grid.GRID and TrainConfig.")
            raise ConfigError(f"unknown parameter {name!r}: {hint}")


def check(params: dict) -> None:
    """Refuse unknown, missing and mistyped parameters of the grid; runs check their own."""
    _refuse_unknown(params)
    for name, kind in GRID.items():
        if name not in params and name not in YOUNG:
            raise ConfigError(f"parameter {name!r} is missing: every profile states it.")
        if name in params:
            checked(name, kind, params[name])
    if params.get("test_problems") == 0:
        raise ConfigError("test_problems is 0, and the tables show test scores: set it above 0.")
    for name in ("methods", "seeds", "models"):
        if not params[name] or len(set(params[name])) < len(params[name]):
            raise ConfigError(f"{name} must name at least one, each once; got {params[name]!r}.")
    for name in params["methods"]:
        if name not in ARMS:
            raise ConfigError(f"methods: unknown arm {name!r}; choose from {', '.join(ARMS)}.")
        leader = ARMS[name].follows
        if leader and leader not in params["methods"]:
            raise ConfigError(f"methods: {name} follows {leader}; add {leader}, or drop {name}.")
    profiles.refuse_unknown_tasks(params)


def plan(experiment: str, params: dict) -> list[PlannedRun]:
    """All runs of a grid, in the order in which they are started.

    A run's settings are the parameters, then the recipe of its method, then what its arm changes.

    Args:
        experiment: name of the folder under `outputs/runs/`: a notebook's name, or any other.
        params: the grid's parameters.
    Raises:
        ConfigError: a parameter is unknown, missing, mistyped or out of range.
    """
    check(params)
    pairs = _pairs(params["seeds"], params["models"], params["cross_starts"])
    jobs = {}
    for (i, (seed, model)), name in itertools.product(enumerate(pairs), params["methods"]):
        arm, start = ARMS[name], start_name(model)
        if name == "start" and not params.get("train_problems"):  # else a seed has training problems of its own
            if model in [former for _, former in pairs[:i]]:
                continue
            seed = 0  # a start is evaluated once: greedy answers need no seed, and samples are drawn once
        config = _resolve(arm, seed, model, params, jobs.get((arm.follows, seed, start)))
        folder = None
        if config is not None:
            folder = _folder(experiment, params["profile"], name, seed, start, config.hash())
        jobs[name, seed, start] = PlannedRun(arm, seed, start, config, folder)
    return list(jobs.values())


def start_name(model: str) -> str:
    """A short name of a supervised start: the last part of a folder or hub id."""
    return Path(str(model)).name


def _pairs(seeds: list, models: list, cross: bool) -> list[tuple]:
    if cross:
        return list(itertools.product(seeds, models))
    return list(zip(seeds, itertools.cycle(models), strict=False))


def _folder(experiment: str, profile: str, *run) -> Path:
    """The folder of a run: its own, or that of the same run in another experiment if only that one is finished."""
    own = paths.run_dir(experiment, profile, *run)
    others = [] if launch.is_finished(own) else sorted(paths.runs().glob(f"*/{profile}/{own.name}"))
    return next((folder for folder in others if launch.is_finished(folder)), own)


def _resolve(arm: Arm, seed: int, model: str, params: dict, leader: PlannedRun | None):
    settings = {name: value for name, value in params.items() if name in FIELDS}
    settings |= _as_many_rollouts(arm, params) | RECIPES[arm.method].settings | arm.settings
    config = resolve(arm.method, **settings, seed=seed, model=model)
    if not arm.follows:
        return config
    if leader is None or not leader.finished:
        return None
    return following(arm, config, leader.config, leader.folder)


def following(arm: Arm, config: TrainConfig, leader: TrainConfig, folder: Path) -> TrainConfig:
    """An arm's configuration with a horizon from the run that it follows: as many updates, or as much compute.

    Args:
        config: the arm's, with any horizon.
        leader, folder: configuration and folder of the finished run that it follows.
    """
    last = provenance.read_jsonl(folder / "metrics.jsonl")[-1]
    if arm.matched == "updates":
        return config.replace(horizon_unit="updates", horizon=float(last["update"]))
    spent = estimate.forward_passes(leader, last["tokens_train"], last["tokens_probe"])
    tokens = round(spent / estimate.forward_passes(config, 1, 0))
    return config.replace(horizon_unit="tokens", horizon=float(tokens))


def _as_many_rollouts(arm: Arm, params: dict) -> dict:
    """The prompts per update of an arm that fixes its group size: so many that rollouts per update stay the same."""
    settings = RECIPES[arm.method].settings | arm.settings
    if "group_size" not in settings:
        return {}
    defaults = TrainConfig()
    P, G = (params.get(name, getattr(defaults, name)) for name in ("prompts_per_update", "group_size"))
    greedy = settings.get("advantage") == "greedy_baseline"
    return {"prompts_per_update": P * G // (settings["group_size"] + greedy)}


PLANNED = "This is a plan: nothing is run, and a notebook ends here. For results set run_mode to train or replay."


class Planned(Exception):
    """Ends a notebook after its plan: nothing was run that the cells below could show.

    JupyterLab shows the words below and runs no further cell. Papermill treats a SystemExit without a message as the
    end of a notebook, not as a failure: its exit status is 0.
    """

    def _render_traceback_(self) -> list[str]:  # what IPython shows of it
        return ["End of the plan."]


Planned.__name__ = "SystemExit"  # papermill checks the name; IPython would show a real SystemExit as an error


class GridInterrupted(KeyboardInterrupt):
    """An interrupt while runs were trained; a notebook shows its words and no traceback."""

    def _render_traceback_(self) -> list[str]:  # what IPython shows of it
        return [str(self)]


INTERRUPTED = "Interrupted. Run it again to go on from here: finished runs are reused, and the others are resumed."


def run(experiment: str, params: dict) -> Results:
    """Redraw the record, train what is missing, or plan, as `run_mode` says.

    replay  the record of this profile, its arms restricted to `methods`; nothing is trained
    train   every run of the grid that is not finished is started or resumed; then all are read
    plan    jobs, memory, tokens and hours are printed; the tables are empty, and a notebook ends (see `Planned`)

    Raises:
        ConfigError: see `plan`.
        FileNotFoundError: there is no record of this profile to replay.
        JobFailed: a run failed; finished ones are kept (see `jobs.launch`).
        GridInterrupted: from the keyboard; finished ones are kept, the others resumed by the next call.
    """
    jobs = plan(experiment, params)
    profile, methods = params["profile"], params["methods"]
    if params["run_mode"] == "plan":
        print(f"{estimate.describe(jobs, params)}\n\n{PLANNED}")
        return Results()
    if params["run_mode"] == "replay":
        record = records.load(experiment, profile)
        if record is None:
            raise FileNotFoundError(
                f"there is no record of {experiment} under profile {profile!r} to replay: set run_mode to train."
            )
        if changed := changes(params, record.meta["params"]):
            print(f"The record was made with {'; '.join(changed)}. To use your settings, set run_mode to train.")
        return record.only(methods)
    index = {"experiment": experiment, "profile": profile, "params": params}
    folder = paths.runs() / experiment / profile
    folder.mkdir(parents=True, exist_ok=True)
    provenance.write_json(folder / INDEX, index)
    _refuse_unknown_models({job.config.model for job in jobs if job.config and not job.finished})
    while missing := [job for job in jobs if job.config and not job.finished]:
        _launch(missing, params)
        jobs = plan(experiment, params)  # runs that follow others can now be resolved
    return records.read(experiment, profile, params, jobs)


def _refuse_unknown_models(models: set[str]) -> None:
    """Refuse a start that no run could load, before any is started.

    Raises:
        ConfigError: it is neither shipped nor a folder nor in the hub's cache, and the hub does not have it.
    """
    if commands := to_make(sorted(models)):
        raise ConfigError(f"models: some starts are not shipped and not made yet; this makes them: {commands}")
    for model in models:
        if Path(model_source(model)).is_dir():
            continue
        of_hub = model.count("/") < 2 and not model.startswith(("/", "~", "."))
        if of_hub and isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str):
            continue
        if not of_hub or "/" not in model:
            shipped = embedded_models()
            hint = unknown(model, shipped, f"choose from {', '.join(shipped)}.")
            raise ConfigError(f"models: {model!r} is no folder and no shipped model: {hint}")
        try:
            huggingface_hub.model_info(model, timeout=10)
        except (OSError, ValueError, httpx.HTTPError) as error:
            raise ConfigError(
                f"models: {model!r} is no folder, not in the hub's cache, and the hub does not give it "
                f"({type(error).__name__}): check its name, and the network."
            ) from error


def _launch(jobs: list[PlannedRun], params: dict) -> None:
    from agpo_core.experiments.plots.live import Curves  # the plots know the grid

    for job in jobs:
        job.folder.mkdir(parents=True, exist_ok=True)
        job.config.save(job.folder / "config.yaml")
    curves = Curves({job.folder: (job.arm.name, job.arm.title) for job in jobs})
    try:
        launch.launch([job.folder for job in jobs], **{name: params[name] for name in LAUNCH}, watch=curves)
    except KeyboardInterrupt:
        raise GridInterrupted(INTERRUPTED) from None
    finally:
        curves(last=True)
    unfinished = [job.folder.name for job in jobs if not job.finished]
    if unfinished:
        raise RuntimeError(f"runs did not finish: {', '.join(unfinished)}; see their train.log.")


def changes(params: dict, recorded: dict) -> list[str]:
    """The parameters that make a grid another experiment than the recorded one, as text."""
    recorded = TrainConfig().to_dict() | recorded  # a setting added since the record was made had its default
    return [
        f"{name} {recorded.get(name)!r}, not {value!r}"
        for name, value in params.items()
        if name not in FREE and recorded.get(name) != value
    ]


RUN_FILES = ("run.json", "metrics.jsonl", "eval.json")  # and config.yaml, without folders of this machine


def promote(experiment: str, profile: str, runs_to: str | None = None) -> Path:
    """Write the grid that was run last to `outputs/reference/`.

    Args:
        experiment, profile: name the grid.
        runs_to: a folder in `outputs/reference/` that also receives the files of each run; for grids of few runs.
    Raises:
        FileNotFoundError: no grid of this name was run.
        ValueError: a run is unfinished, or was made from uncommitted changes.
    """
    index = paths.runs() / experiment / profile / INDEX
    if not index.is_file():
        raise FileNotFoundError(f"{experiment} was not run under profile {profile!r}: train first.")
    params = provenance.read_json(index)["params"]
    jobs = plan(experiment, params)
    unfinished = [f"{job.arm.name}-s{job.seed}-{job.start}" for job in jobs if not job.finished]
    if unfinished:
        raise ValueError(f"not finished: {', '.join(unfinished)}. Run the grid again, then promote.")
    results = records.read(experiment, profile, params, jobs)
    dirty = [
        f"{run['arm']}-s{run['seed']}-{run['start']} ({run['commit']})"
        for run in results.meta["runs"]
        if run["commit"] == "unknown" or run["commit"].endswith("-dirty")
    ]
    if dirty:
        raise ValueError(f"not made from a commit: {', '.join(dirty)}. Commit, delete these runs, run again.")
    to = records.folder(experiment, profile)
    records.save(results, to)
    for job in jobs if runs_to else []:
        folder = paths.reference() / runs_to / f"{job.arm.name}-s{job.seed}-{job.start}"
        folder.mkdir(parents=True, exist_ok=True)
        for name in RUN_FILES:
            if (job.folder / name).exists():  # a start has no updates, so no metrics
                shutil.copy(job.folder / name, folder / name)
        settings = {name: records.without_folders(value) for name, value in job.config.to_dict().items()}
        TrainConfig.from_dict(settings).save(folder / "config.yaml")
    return to


def record(experiment: str, profile: str, changed: dict, runs_to: str | None = None) -> Path:
    """Train a profile's grid with some parameters changed, and promote it; finished runs are reused."""
    run(experiment, profiles.settings(experiment, profile) | changed | {"run_mode": "train"})
    return promote(experiment, profile, runs_to)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make a record: finished runs in outputs/reference/.")
    parser.add_argument("command", choices=["record", "promote"])
    parser.add_argument("experiment", help="its name in params/ and, where there is one, its notebook's")
    parser.add_argument("profile", help="a name in params/")
    parser.add_argument("--seeds", type=int, nargs="+", help="of `record`: instead of the profile's")
    parser.add_argument("--data-dir", help="of `record`: instead of the profile's")
    parser.add_argument("--runs-to", help="a folder in outputs/reference/ that receives each run's files")
    args = parser.parse_args(argv)
    changed = {name: value for name in ("seeds", "data_dir") if (value := getattr(args, name))}
    if changed and args.command == "promote":
        parser.error(f"{', '.join(changed)}: only for record; promote takes the grid as it was run.")
    try:
        if args.command == "record":
            to = record(args.experiment, args.profile, changed, args.runs_to)
        else:
            to = promote(args.experiment, args.profile, args.runs_to)
    except (FileNotFoundError, ValueError, RuntimeError) as error:  # RuntimeError: a job failed, a folder is in use
        parser.error(str(error))
    except GridInterrupted as interrupt:
        parser.exit(130, f"\n{interrupt}\n")  # the shell's exit status of an interrupted command
    print(f"{to.relative_to(paths.root())}: {', '.join(sorted(p.name for p in to.iterdir()))}")


if __name__ == "__main__":
    main()
