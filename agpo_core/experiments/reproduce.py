"""Execute notebooks headless, with the parameters of a profile.

`python -m agpo_core.experiments.reproduce --profile tiny agpo_table1_main_results` reads
`params/tiny.yaml`, then `params/agpo_table1_main_results.tiny.yaml` where there is one, checks both
against the notebook's own parameters before anything runs, and trains what is missing
(`run_mode: train`). A profile's settings are those of trained runs: a notebook without `methods` trains
nothing, and takes its own file alone. Papermill executes the notebook; what it prints is shown as it comes. The
executed notebook, an HTML copy and the `summary.txt` that the notebook writes lie in
`outputs/runs/<notebook>/<profile>/`.

A parameter that the notebook does not have, or text where it has a number, stops everything (exit
status 2). A notebook that fails is reported, and the others still run (exit status 1).
"""

import argparse
import ast
import difflib
import os
import sys
import time
from pathlib import Path

import nbconvert
import papermill
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from agpo_core import paths
from agpo_core.config import ConfigError
from agpo_core.experiments import profiles


def load_parameters(notebook: str, profile: str) -> dict:
    """The parameters of one notebook under one profile, checked against the notebook's own.

    Raises:
        FileNotFoundError: no such notebook or profile; the message lists those that there are.
        ConfigError: a key that the notebook does not have, or a value of another kind than its
            default there.
    """
    source = _existing(paths.notebooks(), f"{notebook}.ipynb", "notebook")
    of_runs = _existing(paths.params(), f"{profile}.yaml", "profile")

    defaults = {
        name: ast.literal_eval(parameter["default"])
        for name, parameter in papermill.inspect_notebook(str(source)).items()
    }
    trains = "methods" in defaults
    parameters = {} if trains or "profile" not in defaults else {"profile": profile}
    for file in [*([of_runs] if trains else []), profiles.notebook_file(notebook, profile)]:
        settings = profiles.read(file)
        for key, value in settings.items():
            _check(key, value, defaults, file)
        parameters |= settings
    for key in defaults.keys() - parameters.keys():
        if key.startswith("learning_rate_"):  # chosen for another profile: here the common rate holds
            parameters[key] = None
    # A profile that is too large to start by accident only plans.
    if "run_mode" in defaults and parameters.get("run_mode") != "plan":
        parameters["run_mode"] = "train"
    return parameters


def execute(notebook: str, profile: str, parameters: dict) -> None:
    """Execute one notebook and write `notebook.ipynb` and `notebook.html` into its folder.

    Raises:
        papermill.PapermillExecutionError: a cell failed; `notebook.ipynb` holds what ran.
        nbclient.exceptions.DeadKernelError: the kernel was killed.
    """
    folder = _folder(notebook, profile)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in ("notebook.html", "summary.txt"):
        (folder / stale).unlink(missing_ok=True)
    executed = papermill.execute_notebook(
        paths.notebooks() / f"{notebook}.ipynb",
        folder / "notebook.ipynb",
        parameters,
        kernel_name="python3",
        cwd=paths.notebooks(),
        progress_bar=False,
        stdout_file=sys.stdout,
        stderr_file=sys.stderr,
        # Other users of a shared machine cannot read what the kernel sends; without, it warns.
        config=Config(KernelManager={"transport_encryption": "auto"}),
        coalesce_streams=True,  # one output per cell in the document, however often a job reports
    )
    html, _ = nbconvert.HTMLExporter().from_notebook_node(executed, resources={"metadata": {"name": notebook}})
    (folder / "notebook.html").write_text(html, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Check all parameters, execute the notebooks in turn, print their tables.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Execute notebooks with a profile's parameters.")
    parser.add_argument("--profile", required=True, help="a name in params/, such as tiny")
    parser.add_argument("notebooks", nargs="+", help="names in notebooks/, without .ipynb")
    args = parser.parse_args(argv)
    try:
        parameters = {name: load_parameters(name, args.profile) for name in args.notebooks}
    except (ConfigError, FileNotFoundError) as error:
        parser.error(str(error))

    seconds, failed = {}, []
    for name in parameters:
        print(f"{name}, profile {args.profile}", flush=True)
        start = time.monotonic()
        try:
            execute(name, args.profile, parameters[name])
        except KeyboardInterrupt:
            print("\ninterrupted; the same command goes on from here", file=sys.stderr)
            return 130  # the shell's exit status of an interrupted command
        except (papermill.PapermillExecutionError, DeadKernelError) as error:
            failed.append(name)
            document = _shown(_folder(name, args.profile) / "notebook.ipynb")
            print(f"{error}\n{name} failed; what ran: {document}", file=sys.stderr)
        else:
            seconds[name] = time.monotonic() - start

    for name in seconds:
        _report(name, args.profile, seconds[name])
    return 1 if failed else 0


def _report(notebook: str, profile: str, seconds: float) -> None:
    """Print the measured table and where the documents lie."""
    folder = _folder(notebook, profile)
    summary = folder / "summary.txt"
    print(f"\n{notebook}, profile {profile}, executed in {seconds:.0f} s")
    if summary.is_file():
        print(f"\n{summary.read_text(encoding='utf-8').rstrip()}\n")
    print(f"notebook  {_shown(folder / 'notebook.ipynb')}")
    print(f"HTML      {_shown(folder / 'notebook.html')}")


def _folder(notebook: str, profile: str) -> Path:
    return paths.runs() / notebook / profile


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _existing(folder: Path, name: str, what: str) -> Path:
    if not (folder / name).is_file():
        # A file named <notebook>.<profile>.yaml is an override, not a profile.
        known = sorted(f.stem for f in folder.glob(f"*{Path(name).suffix}") if "." not in f.stem)
        raise FileNotFoundError(f"no {what} {Path(name).stem!r}: {folder.name}/ has {', '.join(known) or 'none'}.")
    return folder / name


def _check(key: str, value, defaults: dict, file: Path) -> None:
    """Refuse a key that the notebook lacks, and a value of another kind than its default there."""
    if key not in defaults:
        close = difflib.get_close_matches(key, defaults, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(defaults)}."
        raise ConfigError(f"{file.name}: the notebook has no parameter {key!r}: {hint}")
    default = defaults[key]
    pairs = [(value, default)]
    if isinstance(value, list) and isinstance(default, list) and default:
        pairs += [(item, default[0]) for item in value]
    for given, expected in pairs:
        if None in (given, expected) or _kind(given) == _kind(expected):
            continue
        message = f"{file.name}: {key} must be {_kind(expected)}, got {_kind(given)}, {given!r}"
        if (_kind(expected), _kind(given)) == ("a number", "text"):
            message += ": in YAML a float needs a dot, write 1.0e-6 and not 1e-6"
        raise ConfigError(f"{message}.")


def _kind(value) -> str:
    if isinstance(value, bool):
        return "true or false"
    for types, name in ((int | float, "a number"), (str, "text"), (list, "a list")):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


if __name__ == "__main__":
    sys.exit(main())
