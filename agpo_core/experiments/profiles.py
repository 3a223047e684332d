"""A notebook's settings under a profile: `params/<profile>.yaml`, then `params/<notebook>.<profile>.yaml`."""

from pathlib import Path

from agpo_core import paths
from agpo_core.config import read_yaml


def profile_file(profile: str) -> Path:
    """The settings of trained runs that all notebooks share."""
    return paths.params() / f"{profile}.yaml"


def notebook_file(notebook: str, profile: str) -> Path:
    """What one notebook has otherwise, or alone; the file need not exist."""
    return paths.params() / f"{notebook}.{profile}.yaml"


def read(file: Path) -> dict:
    """The settings in a file; none where there is no file.

    Raises:
        ConfigError: see `config.read_yaml`.
    """
    return read_yaml(file) if file.is_file() else {}


def settings(notebook: str, profile: str) -> dict:
    """Those of the profile, and over them the notebook's own."""
    return read(profile_file(profile)) | read(notebook_file(notebook, profile))
