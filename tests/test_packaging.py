"""The pins agree wherever they stand, the locks name no machine, the commands do what they say."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = {
    "cpu": sum((EXTRAS[name] for name in ("train", "notebooks", "dev")), PROJECT["dependencies"]),
    "small": [pin for pin in EXTRAS["small"] if pin not in EXTRAS["dev"]],  # on top of cpu
    "gpu": PROJECT["dependencies"] + sum(EXTRAS.values(), []),
}


def pins(lines):
    """{name: set of specifiers}, whatever the markers; comments and pip's options are left out."""
    found = {}
    for line in lines:
        if line and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            found.setdefault(name, set()).add(str(requirement.specifier))
    return found


def lock(name):
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def test_every_requirement_is_pinned_exactly():
    for name, specifiers in pins(LOCKS["gpu"]).items():
        assert all(re.fullmatch(r"==[\d.]+", s) for s in specifiers), f"{name}: {specifiers}"


def test_environment_and_pyproject_agree_on_every_pin():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = environment["dependencies"][-1]["pip"]
    assert pins(pip) == pins(LOCKS["gpu"])
    assert "--constraint requirements/gpu.txt" in pip


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_every_pin_of_pyproject(name):
    locked = pins(lock(name).splitlines())
    for package, specifiers in pins(LOCKS[name]).items():
        assert locked.get(package) == specifiers, f"{package}: run `make lock`"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_local_version_hash_or_host(name):
    locked = pins(lock(name).splitlines())
    assert not [package for package, found in locked.items() if any("+" in s for s in found)]
    assert not re.search(r"--hash|--\w*index|--find-links|://", lock(name))


@pytest.mark.parametrize("name", ["cpu", "small"])
def test_the_cpu_locks_hold_no_cuda_wheel(name):
    locked = pins(lock(name).splitlines())
    assert not [package for package in locked if package.startswith(("cuda", "nvidia", "triton"))]


def test_importing_the_package_needs_torch_alone():
    others = "accelerate datasets deepspeed matplotlib pandas scipy seaborn transformers trl yaml"
    code = f"import sys, agpo_core; print(sorted(set({others.split()}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_an_empty_environment_gets_torch_alone_and_runs_the_readme(tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    clone = shutil.copytree(ROOT / "agpo_core", tmp_path / "clone" / "agpo_core")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone.parent)
    installed = subprocess.run([python, "-m", "pip", "install", clone.parent], capture_output=True, text=True)
    if "No matching distribution" in installed.stderr:
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    example = re.search(r"```python\n(import torch\nfrom agpo_core.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    subprocess.run([python, "-I", "-c", example[1]], cwd=tmp_path, check=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    names = {canonicalize_name(package["name"]) for package in json.loads(listed.stdout)}
    others = pins(EXTRAS["train"] + EXTRAS["notebooks"] + EXTRAS["dev"] + EXTRAS["gpu"])
    assert {"agpo-core", "torch"} <= names and not names & set(others), names & set(others)


def test_make_help_describes_every_target():
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    help_text = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    described = re.findall(r"^make ([a-z-]+) +\w", help_text, re.MULTILINE)
    assert described == targets.split()


def test_continuous_integration_runs_make_test_and_keeps_its_exit_status(tmp_path):
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "$PWD: make $*"\nexit 3\n')
    make.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run([ROOT / ".ci" / "run"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (3, f"{ROOT}: make test\n")
