"""Where the project's folders are, whatever the working directory.

The package is installed editable, so the repository is the folder above it. Runs write to `outputs/`, or to the folder
named by the environment variable AGPO_OUTPUTS. What is committed (reference, params, notebooks) stays in the
repository.
"""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def root() -> Path:
    """The repository.

    Raises:
        FileNotFoundError: the package was installed as a copy, outside a checkout.
    """
    folder = _PACKAGE.parent
    if not (folder / "pyproject.toml").is_file():
        raise FileNotFoundError(
            f"{folder} is not a checkout of this repository: install the package from one, with `pip install -e .`."
        )
    return folder


def outputs() -> Path:
    """Everything that is written: AGPO_OUTPUTS where it is set, else `outputs/`."""
    override = os.environ.get("AGPO_OUTPUTS")
    return Path(override).expanduser().resolve() if override else root() / "outputs"


def runs() -> Path:
    """All run folders."""
    return outputs() / "runs"


def run_dir(experiment: str, profile: str, arm: str, seed: int, start: str, config_hash: str) -> Path:
    """The folder of one run; its hash keeps runs with different settings apart."""
    return runs() / experiment / profile / f"{arm}-s{seed}-{start}-{config_hash}"


def reference() -> Path:
    """Recorded results: committed, so AGPO_OUTPUTS does not move them."""
    return root() / "outputs" / "reference"


def params() -> Path:
    """The profiles, one YAML file each."""
    return root() / "params"


def notebooks() -> Path:
    """The notebooks."""
    return root() / "notebooks"


def models() -> Path:
    """The embedded tiny models, shipped inside the package."""
    return _PACKAGE / "models"
