"""Execute notebooks headless, with the parameters of a profile.

`python -m agpo_core.experiments.reproduce --profile tiny agpo_table1_main_results` checks the files in `params/` that
apply to the notebook under that profile (see `profiles`) before anything runs. It then gives the notebook its profile
and, where the notebook has a `run_mode`, the one that trains what is missing. The notebook merges its settings itself,
as it does under plain papermill. Papermill executes the notebook; what it prints is shown as it comes. The executed
notebook, an HTML copy and the `summary.txt` that the notebook writes are in `outputs/runs/<notebook>/<profile>/`.

`all` stands for every notebook. A line before each notebook says how long the rest takes at most. At the end
`outputs/report/index.html` shows all results on one page (see `report_page`).

A setting that is not known, or text where a number belongs, stops everything (exit status 2). A notebook that fails is
reported, the others still run, and the last line lists those that failed (exit status 1). Finished runs are reused, so
the same command goes on after an interrupt.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from agpo_core import paths
from agpo_core.config import ConfigError
from agpo_core.experiments import estimate, grid, html, profiles, published, report_page
from agpo_core.jobs.progress import duration

ALL = "all"  # stands for every notebook
UNTRAINED = 15.0  # seconds that a notebook's own cells take, about


def chosen(names: list[str]) -> list[str]:
    """The notebooks that names stand for, each once; `all` is every one, in the order of the table of items."""
    there = {file.stem for file in paths.notebooks().glob("*.ipynb")}
    listed = [item.notebook for item in published.items() if item.notebook in there]
    every = [*listed, *sorted(there - set(listed))]
    return list(dict.fromkeys(name for given in names for name in (every if given == ALL else [given])))


def seconds_left(notebooks: list[str], profile: str) -> float:
    """Seconds that notebooks take at most; a run that several of them show counts once."""
    counted, seconds = set(), 0.0
    for name in notebooks:
        settings = profiles.settings(name, profile)
        seconds += UNTRAINED
        if profiles.trains(name) and settings["run_mode"] != "plan":
            seconds += estimate.seconds_left(grid.plan(name, settings), settings, counted)
    return seconds


def load_parameters(notebook: str, profile: str) -> dict:
    """The parameters that a notebook is given: its profile, and a run_mode that trains what is missing.

    The settings are checked here, so that a bad one stops everything before the first notebook runs.

    Raises:
        FileNotFoundError: no such notebook; the message lists all notebooks.
        ConfigError: no such profile; a setting in its files is unknown, mistyped or out of range.
    """
    if not (paths.notebooks() / f"{notebook}.ipynb").is_file():
        known = sorted(file.stem for file in paths.notebooks().glob("*.ipynb"))
        raise FileNotFoundError(f"no notebook {notebook!r}: notebooks/ has {', '.join(known) or 'none'}.")
    settings = profiles.settings(notebook, profile)
    if profiles.trains(notebook):
        grid.plan(notebook, settings)
    told = {"profile": profile}
    if "run_mode" in settings:  # a profile that is too large to start by accident only plans
        told["run_mode"] = "plan" if settings["run_mode"] == "plan" else "train"
    return told


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
        # With this, other users of the machine cannot read what the kernel sends; without it, the kernel warns.
        config=Config(KernelManager={"transport_encryption": "auto"}),
        # An interrupted kernel reports on stderr that its socket is closed; what a cell raises comes another way.
        extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
        coalesce_streams=True,  # one output per cell in the document, however often a job reports
    )
    (folder / "notebook.html").write_text(html.page(executed, notebook), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Check all parameters, execute the notebooks in turn, print their tables.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Execute notebooks with a profile's parameters.")
    parser.add_argument("--profile", required=True, help="a name in params/, such as tiny")
    parser.add_argument("notebooks", nargs="+", help=f"names in notebooks/, without .ipynb; {ALL}: every one")
    args = parser.parse_args(argv)
    names = chosen(args.notebooks)
    try:
        parameters = {name: load_parameters(name, args.profile) for name in names}
    except (ConfigError, FileNotFoundError) as error:
        parser.error(str(error))

    seconds, failed, begun = {}, [], time.monotonic()
    for number, name in enumerate(names, start=1):
        left = duration(seconds_left(names[number - 1 :], args.profile))
        place = f"[{number} of {len(names)}] " if len(names) > 1 else ""
        spent = f"{duration(time.monotonic() - begun)} spent, " if number > 1 else ""
        print(f"{place}{name}, profile {args.profile}; {spent}at most about {left} left", flush=True)
        start = time.monotonic()
        try:
            execute(name, args.profile, parameters[name])
        except KeyboardInterrupt:
            print("\ninterrupted; run the same command to go on from here", file=sys.stderr)
            return 130  # the shell's exit status of an interrupted command
        except (papermill.PapermillExecutionError, DeadKernelError) as error:
            failed.append(name)
            document = _shown(_folder(name, args.profile) / "notebook.ipynb")
            print(f"{error}\n{name} failed; the cells that ran: {document}", file=sys.stderr)
        else:
            seconds[name] = time.monotonic() - start

    for name in seconds:
        _report(name, args.profile, seconds[name])
    print(f"report    {_shown(report_page.write(args.profile))}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
