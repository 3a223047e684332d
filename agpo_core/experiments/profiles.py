"""The settings of a notebook or an experiment under a profile, merged from the files in `params/`.

    it trains a grid of runs   base.yaml           < PROFILE.yaml < NAME.PROFILE.yaml
    it trains nothing          NAME.base.yaml                     < NAME.PROFILE.yaml

The base file names every setting, with its default. Each later file holds what differs, and outranks those before it;
NAME.PROFILE.yaml need not exist. A notebook merges the files itself, so that a run is the same however the profile is
named: in the notebook's own cell, by `papermill -p profile paper`, by `papermill -f params/paper.yaml`, or by
`python -m agpo_core.experiments.reproduce --profile paper`. What a cell assigns outranks the files:

1. In the notebook's own parameter cell None means "as the profile has it". Settings that may be null are not listed in
   that cell.
2. The cell that papermill injects outranks the notebook's own cell. Two things in it do not count as edits:
   - `-f params/paper.yaml` injects the profile's whole file. A value that equals the file's keeps the file's rank: as
     an injected value it would outrank NAME.paper.yaml.
   - Where the injected cell names a profile, the own cell's `run_mode` gives way to that of the files.
"""

import ast
import math
import re
import textwrap
from pathlib import Path

from agpo_core import paths
from agpo_core.config import FIELDS, KINDS, ConfigError, TrainConfig, read_yaml
from agpo_core.model_files import embedded_models, model_source
from agpo_core.settings import checked, optional, unknown
from agpo_core.tasks import TASKS

BASE = "base"  # the file of defaults; no profile
OF_THE_ARM = ("method", "seed", "model", "clip", "temperature")  # set by arm, seed and start, and by no file
PARAMETERS = "# Parameters"  # all of the first line of papermill's cell, and the beginning of a notebook's own


def profile_file(profile: str) -> Path:
    """The settings of trained runs that all notebooks share."""
    return paths.params() / f"{profile}.yaml"


def notebook_file(notebook: str, profile: str) -> Path:
    """The settings that one notebook changes or adds; the file need not exist."""
    return paths.params() / f"{notebook}.{profile}.yaml"


def names() -> list[str]:
    """The names of all profiles."""
    return sorted(f.stem for f in paths.params().glob("*.yaml") if "." not in f.stem and f.stem != BASE)


def base_file(notebook: str) -> Path:
    """The file that names every setting: a notebook's own, or that of all grids."""
    own = notebook_file(notebook, BASE)
    return own if own.is_file() else profile_file(BASE)


def trains(notebook: str) -> bool:
    """Whether the notebook has a grid of runs; if not, all its parameters are its own."""
    return base_file(notebook) == profile_file(BASE)


def read(file: Path) -> dict:
    """The settings in a file; none where there is no file.

    Raises:
        ConfigError: see `config.read_yaml`.
    """
    return read_yaml(file) if file.is_file() else {}


def settings(notebook: str, profile: str) -> dict:
    """All settings of a notebook or experiment under a profile, as the files say.

    Raises:
        ConfigError: no such profile; in a file an unknown name, or a value of another kind than the default.
    """
    if not isinstance(profile, str) or profile not in names():
        raise ConfigError(f"no profile {profile!r}: params/ has {', '.join(names()) or 'none'}.")
    base = read(base_file(notebook))
    laid = dict(base)
    for file in [*([profile_file(profile)] if trains(notebook) else []), notebook_file(notebook, profile)]:
        changes = read(file)
        _check(changes, base, trains(notebook), f"{file.name}: ")
        laid |= changes
    return laid | {"profile": profile}


def parameters(notebook: str, namespace: dict, **least: float) -> dict:
    """A notebook's settings in effect: those of the files, and what its parameter cells assign (see above).

    The notebook's variables are set to them, so that its cells read the settings by their names.

    Args:
        notebook: its name in `params/`.
        namespace: the notebook's `globals()`.
        least: the smallest number that a setting, or each of its items, may be; the ranges of `TrainConfig` are always
            checked.
    Raises:
        ConfigError: an unknown name, a value of another kind than the default or out of range, no such profile.
    """
    base, grid = read(base_file(notebook)), trains(notebook)
    given = _given(namespace, [*base, *(_fields() if grid else [])])
    given = {name: value for name, value in given.items() if value is not None or _may_be_none(name, base)}
    _check(given, base, grid, "")
    params = settings(notebook, given.get("profile")) | given
    if not grid:
        _check_ranges(params, least)
    namespace |= params
    return params


def show(notebook: str, params: dict) -> None:
    """Print all settings in effect, each with its comment; a star marks those that differ from the base file."""
    file = base_file(notebook)
    base, said = read(file), _comments(file.read_text(encoding="utf-8"))
    print(f"* differs from params/{file.name}")
    for name, value in params.items():
        star = " " if name in base and base[name] == value else "*"
        text = f"{star} {name:24} {literal(value)}"
        if about := said.get(name):
            text = f"{text:45}  # {about}"
        print(textwrap.fill(text, 118, subsequent_indent=" " * 27, break_long_words=False, break_on_hyphens=False))


def literal(value) -> str:
    """A value as it is written in a notebook: double quotes, small numbers as 1.0e-6."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:e}".split("e")
        digits = mantissa.rstrip("0")
        return f"{digits}{'0' * digits.endswith('.')}e{int(exponent)}"
    return repr(value)


def _comments(text: str) -> dict[str, str]:
    """What a file says beside each of its names."""
    return dict(re.findall(r"^(\w+):.*?  +# (.*)$", text, re.MULTILINE))


def _given(namespace: dict, known: list[str]) -> dict:
    """The edits in the parameter cells: the notebook's own cell, and the one that papermill injects.

    Only the last run of each cell counts, and the cell that ran later outranks the other. Values are read from the
    cells' source, because the variables may hold what `parameters` set under another profile. Where the kernel keeps no
    history, as under nbval, the variables of known names are used.
    """
    cells = {}
    if not any(namespace.get("In", [])):
        return {name: namespace[name] for name in known if name in namespace}
    for cell in namespace.get("In", []):
        if cell.startswith(PARAMETERS):
            injected = cell.partition("\n")[0].strip() == PARAMETERS
            cells.pop(injected, None)  # what ran again moves to the end
            cells[injected] = _assigned(cell, namespace)
    given = {}
    for injected, assigned in cells.items():
        if injected:
            profile = assigned.get("profile", given.get("profile"))
            handed = read(profile_file(profile)) if profile in names() else {}
            if handed and handed.keys() <= assigned.keys():
                assigned = {k: v for k, v in assigned.items() if k == "profile" or k not in handed or v != handed[k]}
            if "profile" in assigned:
                given.pop("run_mode", None)
        given |= assigned
    return given


def _assigned(cell: str, namespace: dict) -> dict:
    """The names that a cell assigns, with their values; a value that is not a literal is read from the variable."""
    found = {}
    for statement in ast.parse(cell).body:
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        for target in filter(None, targets):
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    try:
                        found[node.id] = ast.literal_eval(statement.value if node is target else target)
                    except (ValueError, AttributeError):
                        found[node.id] = namespace.get(node.id)
    return found


def _may_be_none(name: str, base: dict) -> bool:
    return (name in KINDS and optional(KINDS[name])) or (name in base and base[name] is None and name != "profile")


def _fields() -> list[str]:
    """The fields of `TrainConfig` that a grid may set."""
    return [name for name in FIELDS if name not in OF_THE_ARM]


def _check(given: dict, base: dict, grid: bool, place: str) -> None:
    """Refuse a name that is not known, and a value of another kind than its default.

    Args:
        grid: whether the fields of `TrainConfig` are settings too.
        place: what the message begins with.
    """
    fields = _fields() if grid else []
    for name, value in given.items():
        if name not in base and name not in fields:
            hint = unknown(name, [*base, *fields], f"there are {', '.join(base)}.")
            raise ConfigError(f"{place}unknown parameter {name!r}: {hint}")
        kind = KINDS[name] if grid and name in KINDS else _kind(base[name])
        if value is None and not _may_be_none(name, base):
            raise ConfigError(f"{place}{name} must not be null: write {literal(base.get(name))}, say.")
        if isinstance(value, tuple):
            raise ConfigError(f"{place}{name} must be a list, got the tuple {value!r}: write square brackets.")
        if value is not None and kind is not None:
            checked(f"{place}{name}", kind, value)


def _kind(default):
    """The type of a setting whose default is this one, for `settings.checked`; None where any value may stand."""
    if isinstance(default, list):
        return tuple[_kind(default[0]), ...] if default else None
    return None if default is None else type(default)


def _check_ranges(params: dict, least: dict) -> None:
    """Refuse values that are outside the range of `TrainConfig`, below `least`, not finite, repeated or missing."""
    TrainConfig.from_dict({name: value for name, value in params.items() if name in FIELDS})
    refuse_unknown_tasks(params)
    _refuse_unknown_model(params)
    for name, value in params.items():
        numbers = value if isinstance(value, list) else [value]
        if not numbers:
            raise ConfigError(f"{name} is empty: give at least one.")
        for number in numbers:
            if isinstance(number, (int, float)) and not math.isfinite(number):
                raise ConfigError(f"{name} must be finite; got {number!r}.")
            if name in least and number < least[name]:
                raise ConfigError(f"{name} must be at least {least[name]}; got {number!r}.")
        if name not in FIELDS and len(set(numbers)) < len(numbers):
            raise ConfigError(f"{name} must hold each value once; got {literal(value)}.")


def _refuse_unknown_model(params: dict) -> None:
    """Refuse a start that is not on this machine: a lesson downloads nothing."""
    if "model" in params:
        if not Path(model_source(params["model"])).is_dir():
            shipped = ", ".join(embedded_models())
            raise ConfigError(f"model: {params['model']!r} is no folder and no shipped start: choose from {shipped}.")


def refuse_unknown_tasks(params: dict) -> None:
    """Refuse an unknown task in every setting that names tasks.

    Raises:
        ConfigError: the message names the setting, and suggests a task.
    """
    for setting in ("tasks", "test_tasks", "decontaminate"):
        for name in params.get(setting, []):
            name = str(name).partition(":")[0]  # decontaminate may name a split
            if name not in TASKS:
                hint = unknown(name, TASKS, f"choose from {', '.join(TASKS)}.")
                raise ConfigError(f"{setting}: unknown task {name!r}: {hint}")
