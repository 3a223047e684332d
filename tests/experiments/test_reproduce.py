"""Notebooks are executed with checked parameters, and say where their results are."""

import re
import signal
import subprocess
import sys
import textwrap
import time

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import html, reproduce

PARAMETERS = """
    # Parameters: None says "as the profile has it", params/
    profile = "smoke"
    run_mode = "replay"
    rate = None
"""
BASE = "profile: null\nrun_mode: replay\nrate: 0.5\n"
WRITE_SUMMARY = """
    import os, pathlib
    from agpo_core import paths
    from agpo_core.experiments import profiles
    paths.root = lambda: pathlib.Path(os.environ["AGPO_OUTPUTS"]).parent
    profiles.parameters("table", globals())
    print("update 1 of 1")
    folder = pathlib.Path(os.environ["AGPO_OUTPUTS"], "runs", "table", profile)
    (folder / "summary.txt").write_text(f"{run_mode} {rate:.1f} {pathlib.Path.cwd().name}")
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with the notebook `table` and the profiles that a test writes."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path / "outputs"))
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(reproduce.report_page, "write", lambda profile: tmp_path / profile / "index.html")
    write_notebook(tmp_path, "table", WRITE_SUMMARY)
    return tmp_path


def write_notebook(repository, name, code, parameters=PARAMETERS):
    write_params(repository, f"{name}.base", BASE)
    parameters, body = (nbformat.v4.new_code_cell(textwrap.dedent(text).strip()) for text in (parameters, code))
    parameters.metadata.tags = ["parameters"]
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=[parameters, body], metadata=kernel)
    nbformat.write(notebook, repository / "notebooks" / f"{name}.ipynb")


def write_params(repository, name, text):
    (repository / "params" / f"{name}.yaml").write_text(text)


def test_a_notebook_is_executed_in_train_mode_and_its_table_printed(repository, capfd):
    write_params(repository, "tiny", "profile: tiny\nrun_mode: replay\nrate: 1.0e-6")
    write_params(repository, "table.tiny", "profile: tiny\nrate: 2.0")

    assert reproduce.main(["--profile", "tiny", "table"]) == 0

    printed = capfd.readouterr().out
    assert printed.index("update 1 of 1") < printed.index("train 2.0 notebooks")
    folder = repository / "outputs" / "runs" / "table" / "tiny"
    assert (folder / "summary.txt").read_text() == "train 2.0 notebooks"
    for document in ("notebook.ipynb", "notebook.html"):
        assert document in printed.split("train 2.0 notebooks")[1]
    assert "update 1 of 1" in (folder / "notebook.html").read_text()


def test_notebooks_that_fail_are_reported_and_the_others_still_run(repository, capfd):
    write_notebook(repository, "broken", 'raise RuntimeError("the job failed")')
    write_notebook(repository, "killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    write_params(repository, "tiny", "profile: tiny")
    stale = repository / "outputs" / "runs" / "broken" / "tiny" / "summary.txt"
    stale.parent.mkdir(parents=True)
    stale.write_text("numbers of an earlier run")

    assert reproduce.main(["--profile", "tiny", "broken", "killed", "table"]) == 1

    printed = capfd.readouterr()
    assert "RuntimeError: the job failed" in printed.err and "Kernel died" in printed.err
    assert "broken failed" in printed.err and (stale.parent / "notebook.ipynb").is_file()
    assert printed.err.endswith("failed: broken, killed\n")
    assert "earlier run" not in printed.out and not stale.exists()
    assert "train 0.5 notebooks" in printed.out


def test_a_notebook_that_ends_after_its_plan_did_not_fail(repository, capfd):
    write_params(repository, "paper", "run_mode: plan")
    write_params(repository, "table.paper", "run_mode: plan")
    body = "from agpo_core.experiments import grid\nprint('planned')\nraise grid.Planned\nprint('a table of nothing')"
    write_notebook(repository, "table", body)
    assert reproduce.main(["--profile", "paper", "table"]) == 0
    shown = capfd.readouterr()
    assert "planned" in shown.out and "of nothing" not in shown.out and "failed" not in shown.err


def test_all_is_every_notebook_once_those_of_the_papers_in_their_order(repository):
    for name in ("zz_mine", "agpo_table1_main_results", "learn_01_group_advantages"):
        write_notebook(repository, name, "pass")
    every = ["learn_01_group_advantages", "agpo_table1_main_results", "table", "zz_mine"]
    assert reproduce.chosen(["all"]) == every
    assert reproduce.chosen(["table", "all", "table"]) == ["table", *every[:2], "zz_mine"]


def test_a_line_before_each_notebook_says_how_long_the_rest_takes(repository, monkeypatch, capsys):
    write_params(repository, "tiny", "profile: tiny")
    write_notebook(repository, "zz_mine", "pass")
    monkeypatch.setattr(reproduce, "execute", lambda *arguments: None)
    assert reproduce.main(["--profile", "tiny", "all"]) == 0
    printed = capsys.readouterr().out
    assert "[1 of 2] table, profile tiny; at most about 30 s left" in printed
    assert "[2 of 2] zz_mine, profile tiny; 0 s spent, at most about 15 s left" in printed
    assert printed.splitlines()[-1].startswith("report    ")


def test_a_run_that_two_notebooks_show_is_counted_once(monkeypatch, tmp_path):
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    alone = reproduce.seconds_left(["methods_overview"], "smoke")
    assert reproduce.seconds_left(["methods_overview"] * 2, "smoke") == alone + reproduce.UNTRAINED


def test_an_interrupt_ends_everything_and_says_how_to_go_on(repository, capsys, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "execute", interrupt)
    write_params(repository, "tiny", "profile: tiny")
    assert reproduce.main(["--profile", "tiny", "table"]) == 130
    assert "run the same command to go on" in capsys.readouterr().err


@pytest.mark.slow
def test_after_an_interrupt_from_the_keyboard_no_traceback_is_shown(repository):
    started = repository / "started"
    write_notebook(repository, "long", f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(900)")
    write_params(repository, "tiny", "")
    words = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a background shell ignores it
    words += (
        f"; from agpo_core import paths; import pathlib, sys; paths.root = lambda: pathlib.Path({str(repository)!r})"
    )
    words += "; from agpo_core.experiments import reproduce; sys.exit(reproduce.main(['--profile', 'tiny', 'long']))"
    process = subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.PIPE, text=True)
    while not started.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "run the same command to go on" in said and "Traceback" not in said


def test_an_html_copy_draws_its_equations_and_fetches_nothing():
    text = "An *inline* $x_i^2$ and\n\n$$\\hat\\sigma=\\sqrt{\\tfrac1G} \\tag{1}$$\n\n```\na $b$\n```"
    cells = [nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell("x = 1")]
    page = html.page(nbformat.v4.new_notebook(cells=cells), "a title")
    assert page.count("<math") == 2 and "(1)" in page and "a $b$" in page and "<title>a title</title>" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|import\(""", page)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ratte: 1.0", r"table.tiny.yaml: unknown parameter 'ratte': did you mean 'rate'"),
        ("xyz: 1.0", r"table.tiny.yaml: unknown parameter 'xyz': there are profile, run_mode, rate"),
        ("rate: 1e-6", r"table.tiny.yaml: rate must be a number, got the text '1e-6'.*write 1\.0e-6"),
        ("rate: true", "rate must be float, got True"),
        ("rate: [0.1]", r"rate must be float, got \[0.1\]"),
        ("profile: tiny\nrun_mode: 3", "run_mode must be str, got 3"),
        ("- rate", "tiny.yaml must hold lines of the form `key: value`"),
        ("rate: [1.0", "tiny.yaml"),
    ],
)
def test_a_bad_file_stops_everything_before_the_first_notebook_runs(repository, capsys, text, message):
    write_params(repository, "tiny", "")
    write_params(repository, "table.tiny", text)
    write_notebook(repository, "first", "raise RuntimeError('it ran')")
    with pytest.raises(SystemExit, match="2"):
        reproduce.main(["--profile", "tiny", "first", "table"])
    assert re.search(message, capsys.readouterr().err)


def test_a_notebook_is_told_its_profile_and_to_train_and_nothing_else(repository):
    write_params(repository, "tiny", "rate: 7.0")
    write_params(repository, "table.tiny", "rate: 1")  # a whole number is a number
    assert reproduce.load_parameters("table", "tiny") == {"profile": "tiny", "run_mode": "train"}
    write_params(repository, "table.tiny", "run_mode: plan")
    assert reproduce.load_parameters("table", "tiny") == {"profile": "tiny", "run_mode": "plan"}
    write_params(repository, "table.tiny", "")
    write_params(repository, "table.base", "profile: null\nrate: 0.5")
    assert reproduce.load_parameters("table", "tiny") == {"profile": "tiny"}


@pytest.mark.parametrize(
    ("profile", "notebook", "message"),
    [
        ("tinny", "table", "no profile 'tinny': params/ has tiny"),
        ("tiny", "tabel", "no notebook 'tabel': notebooks/ has table"),
    ],
)
def test_what_is_not_there_is_named_beside_what_is(repository, capsys, profile, notebook, message):
    write_params(repository, "tiny", "rate: 1.0")
    write_params(repository, "table.tiny", "rate: 2.0")
    with pytest.raises(SystemExit, match="2"):
        reproduce.main(["--profile", profile, notebook])
    assert f"{message}.\n" in capsys.readouterr().err
