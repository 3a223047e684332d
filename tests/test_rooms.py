"""The rooms of the house: each imports from those below it alone, and no two modules import each other."""

import ast
from collections import defaultdict
from pathlib import Path

import agpo_core

PACKAGE = Path(agpo_core.__file__).parent
# From the ground up; "" is the root. A room may import from itself and from those before it.
ROOMS = (
    "", "theory", "grading", "sandbox", "tasks", "jobs", "rollouts", "evaluation", "training", "models", "experiments",
)  # fmt: skip


def modules() -> dict[str, Path]:
    """Dotted name below agpo_core -> file; a package is named by its folder."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """Module -> the modules it imports, anywhere in it; of a package what the names come from, where that is known."""
    known, found = modules(), defaultdict(set)
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: imports are absolute"
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [each if each.removeprefix("agpo_core.") in known else node.module for each in full]
            else:
                continue
            ours = {each.removeprefix("agpo_core").removeprefix(".") for each in wanted if each.startswith("agpo_core")}
            found[name] |= ours & set(known) - {name}
    return found


def room(name: str) -> str:
    head = name.partition(".")[0]
    return head if (PACKAGE / head).is_dir() else ""


def test_every_folder_of_code_is_a_room():
    assert {room(name) for name in modules()} == set(ROOMS)


def test_no_room_imports_from_one_above_it():
    facade = ""  # agpo_core/__init__.py offers the public names of the theory too
    upward = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name != facade and ROOMS.index(room(other)) > ROOMS.index(room(name))
    ]
    assert not upward


def test_grader_and_sandbox_stand_alone():
    for name, others in imports().items():
        if room(name) in ("grading", "sandbox"):
            assert {other for other in others if room(other) != room(name)} <= {"files"}, name


def test_no_two_modules_import_each_other():
    direct = imports()

    def reached(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            new = direct[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    assert not [name for name in list(direct) if name in reached(name)]
