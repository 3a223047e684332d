"""Find a model's files and tell models apart by their content, without torch and without loading a model."""

import functools
import hashlib
import json
import re
from pathlib import Path

from agpo_core import paths

# Files of a folder that make a model what it is: weights, configuration, tokenizer, adapters.
MODEL_FILES = (
    "config.json", "generation_config.json", "adapter_*", "*.safetensors", "*.safetensors.index.json",
    "pytorch_model*", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model",
    "chat_template*", "additional_chat_templates/*",
)  # fmt: skip


def embedded_models() -> list[str]:
    """Names of the tiny models that the package ships."""
    return sorted(path.parent.name for path in paths.models().glob("*/config.json"))


def model_source(name: str) -> str:
    """Where a model lies: in the package, in a folder (absolute, or relative to the repository), else on the hub.

    A name that begins with `outputs/` is looked for in the folder that AGPO_OUTPUTS names, too.
    """
    if name in embedded_models():
        return str(paths.models() / name)
    folders = [paths.root() / name]
    if name.startswith("outputs/"):
        folders.append(paths.outputs() / name.removeprefix("outputs/"))
    return next((str(folder) for folder in folders if folder.is_dir()), name)


MAKERS = {  # beginning of a start's name: its module
    "preferences": "reward_start", "products": "tool_start", "format": "format_start",
}  # fmt: skip


def to_make(names) -> str:
    """The commands that make starts which are not there yet; "" if none is missing, or no command makes it.

    Example:
        >>> to_make(["tiny-qwen2-a", "outputs/models/preferences-98", "outputs/models/preferences-99"])
        'python -m agpo_core.models.reward_start --seeds 98 99'
    """
    seeds = {}
    for name in names:
        found = re.fullmatch(r"outputs/models/([a-z]+)(-[a-z]+)?-(\d+)", name)
        if found and found[1] in MAKERS and not Path(model_source(name)).is_dir():
            quick = " --quick" if found[2] == "-quick" else ""
            seeds.setdefault(f"python -m agpo_core.models.{MAKERS[found[1]]}{quick} --seeds", {})[found[3]] = None
    return "; ".join(f"{command} {' '.join(of)}" for command, of in seeds.items())


def model_fingerprint(source: str) -> str | None:
    """Twenty hex digits that identify a model by its files: any other file or byte gives other digits.

    The digest covers the folder's weights, configuration and tokenizer, and the base model of an adapter. For a hub id
    it covers the snapshot in the local cache. It does not depend on where the folder lies or when it was written.

    Args:
        source: an embedded model's name, a folder, or a hub id.
    Returns:
        The digest; None for a hub id that is not in the local cache.
    """
    source = model_source(source)
    folder = Path(source) if Path(source).is_dir() else _cached_snapshot(source)
    if folder is None:
        return None
    parts = _digests(folder)
    if (base := _base_of_adapter(folder)) is not None:
        whole = Path(model_source(base)) if Path(model_source(base)).is_dir() else _cached_snapshot(base)
        # Not the base of the base: an adapter on an adapter is refused when it is loaded.
        parts.append(["base model", whole and _digests(whole)])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def base_source(name: str) -> str:
    """Where a model's full weights lie; for a folder with an adapter, where those of its base model lie."""
    source = model_source(name)
    return model_source(_base_of_adapter(Path(source)) or source)


def _digests(folder: Path) -> list[list[str]]:
    files = sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()})
    return [[path.relative_to(folder).as_posix(), _file_digest(path)] for path in files]


def _cached_snapshot(hub_id: str) -> Path | None:
    """The folder of a hub model in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for name in ("config.json", "adapter_config.json"):
        try:
            found = try_to_load_from_cache(hub_id, name)
        except HFValidationError:  # no hub id at all
            return None
        if isinstance(found, str):
            return Path(found).parent
    return None


def _base_of_adapter(folder: Path) -> str | None:
    """The base model that an adapter's folder names; None where it holds no adapter, or names none."""
    try:
        settings = json.loads((folder / "adapter_config.json").read_bytes())
    except (OSError, ValueError):
        return None
    base = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    return base if isinstance(base, str) and model_source(base) != str(folder) else None


def _file_digest(path: Path) -> str:
    """The digest of a file's content, computed once as long as the file stays as it is."""
    stat = path.stat()
    return _content_digest(path.resolve(), stat.st_size, stat.st_mtime_ns)


@functools.cache
def _content_digest(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
