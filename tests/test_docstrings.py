"""Every public name of the papers' modules says what it computes, of what, and where it comes from."""

import doctest
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass

import pytest

import agpo_core

MODULES = [
    importlib.import_module(f"agpo_core.{name}")
    for name in (
        "probe",
        "advantages",
        "kl",
        "losses",
        "metrics",
        "theory.bias",
        "theory.binary_groups",
        "theory.group_means",
        "controllers",
        "horizon",
    )
]

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
# A paper by name and year, a place in one of the two papers, or, in brackets, our own.
SOURCE = re.compile(
    rf"\b(?!(?:{MONTHS})\b)[A-Z][\w’'-]+(?: et al\.)?,? \(?(?:[A-Z]+ )?(?:19|20)\d\d\b"
    r"|\b(?:AGPO|R\+\+) (?:Eqs?\.|§|Table|App\.)"
    r"|\(ours\b"
)
SHAPE = re.compile(r"\b(?:shapes?|scalars?|numbers?)\b")
ARGUMENTS_AS_FOR = re.compile(r"Arguments\s+as\s+for\s+`([\w.]+)`")


def public_names():
    """{dotted name: object} of what `agpo_core` exports and of what its modules define without underscore."""
    found = {f"agpo_core.{name}": getattr(agpo_core, name) for name in agpo_core.__all__}
    for module in MODULES:
        for name, thing in vars(module).items():
            is_ours = getattr(thing, "__module__", None) == module.__name__
            if is_ours and not name.startswith("_") and (inspect.isclass(thing) or callable(thing)):
                found[f"{module.__name__}.{name}"] = thing
    unique = {id(thing): (name, thing) for name, thing in found.items()}
    return dict(sorted(unique.values()))


NAMES = public_names()
FUNCTIONS = {name: thing for name, thing in NAMES.items() if not inspect.isclass(thing)}


def sections(docstring):
    """Cut a docstring at its headings: {"": what stands before them, "Args": ..., ...}."""
    parts, heading = {"": []}, ""
    for line in docstring.splitlines():
        if re.fullmatch(r"\w+:", line):
            heading = line[:-1]
        parts.setdefault(heading, []).append(line)
    return {heading: "\n".join(lines) for heading, lines in parts.items()}


def has_equation(text):
    """True if a line is a formula: one term, perhaps after a label, then an equals sign between spaces, no full stop.

    Keyword arguments have no spaces around theirs, and what stands before the sign in a sentence is several words.
    """
    for line in map(str.strip, text.splitlines()):
        left, sign, right = line.partition(" = ")
        while re.search(r"[(\[][^()\[\]]* [^()\[\]]*$", left) and " = " in right:  # the sign in E[A | r = 1]
            more, _, right = right.partition(" = ")
            left += " = " + more
        term = re.sub(r"^\w+: +", "", re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", left).strip())
        if sign and right and re.fullmatch(r"\S+", term) and not line.endswith((".", ":", ";", "?")):
            return True
    return False


def entries(thing):
    """What a docstring says of each parameter under Args: {name: text}."""
    listed = sections(inspect.getdoc(thing) or "").get("Args", "").splitlines()[1:]
    found, names = {}, []
    for line in textwrap.dedent("\n".join(listed)).splitlines():
        item = re.match(r"([*\w]+(?:, [*\w]+)*):(.*)", line)
        if item:
            names, line = [name.lstrip("*") for name in item[1].split(", ")], item[2]
        for name in names:
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def documented(thing):
    """Names of the parameters that a docstring describes, one or several before a colon, or borrows from another."""
    text = inspect.getdoc(thing) or ""
    names = set(entries(thing))
    other = ARGUMENTS_AS_FOR.search(text)
    if other:
        module_name, _, name = other[1].rpartition(".")
        module = importlib.import_module(f"agpo_core.{module_name}" if module_name else thing.__module__)
        names |= documented(getattr(module, name))
    return names


def faults(thing):
    """What the docstring of a public class or function lacks, in words."""
    text = inspect.getdoc(thing)
    # A dataclass without a docstring is given its signature for one.
    if not text or text.startswith(f"{thing.__name__}("):
        return ["no docstring"]
    found = []
    if not SOURCE.search(text):
        found.append("no source: name a paper and its year, an equation or section of AGPO or R++, or (ours)")
    if inspect.isclass(thing):
        return found + faults_of_methods(thing)
    parts = sections(text)
    if not has_equation(parts[""]):
        found.append("no equation: set one apart, before Args")
    missing = sorted(set(inspect.signature(thing).parameters) - documented(thing))
    if missing:
        found.append(f"not under Args: {', '.join(missing)}")
    said, parameters = entries(thing), inspect.signature(thing).parameters
    stale = sorted(set(said) - set(parameters))
    if stale:
        found.append(f"under Args, but no parameter: {', '.join(stale)}")
    empty = sorted(name for name in said if not said[name])
    if empty:
        found.append(f"empty under Args: {', '.join(empty)}")
    shapeless = sorted(name for name, text in said.items() if is_tensor(parameters.get(name), text) and not (
        re.search(r"(_[A-Z0-9])+$", name) or SHAPE.search(text)
    ))  # fmt: skip
    if shapeless:
        found.append(f"no shape under Args: {', '.join(shapeless)}")
    if not "".join(parts.get("Returns", "").splitlines()[1:]).strip():
        found.append("no Returns")
    if ">>>" not in text:
        found.append("no Example")
    return found


def is_tensor(parameter, text):
    """True if a parameter holds tensors, by its annotation or by what is said of it."""
    annotation = "" if parameter is None else str(parameter.annotation)
    return "Tensor" in annotation or bool(re.search(r"\btensors?\b|\b(?:float|int)(?:32|64)\b", text))


def faults_of_methods(cls):
    """Public methods and properties that a class defines without a docstring whose first line is a sentence."""
    own = {name: thing for name, thing in vars(cls).items() if not name.startswith("_")}
    methods = {
        name: thing
        for name, thing in own.items()
        if inspect.isfunction(thing) or isinstance(thing, (classmethod, staticmethod, property))
    }
    silent = [name for name in methods if not re.match(r"[A-Z].*[.;:]", (inspect.getdoc(methods[name]) or "")[:120])]
    return [f"no docstring: {', '.join(silent)}"] if silent else []


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_equation_arguments_result_and_source(name):
    assert faults(NAMES[name]) == []


def test_all_public_names_are_found():
    # A search that finds nothing would let every docstring pass.
    assert len(FUNCTIONS) >= 40 and len(NAMES) - len(FUNCTIONS) >= 10
    for name in ("pass_at_k", "group_advantages", "k3", "vote_entropy", "AdaptiveKL"):
        assert any(found.endswith(f".{name}") for found in NAMES), name
    for module in MODULES:
        assert any(thing.__module__ == module.__name__ for thing in NAMES.values()), module.__name__


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module):
    found = doctest.testmod(module)
    assert found.failed == 0 and found.attempted > 0


# -- the search itself


def complete(rewards_P_G, eps=1.0e-8):
    """Normalise rewards.

    A[p, g] = (r[p, g] - mean) / (std + eps)                                      (AGPO Eq. 1)

    Args:
        rewards_P_G: rewards, float32 or float64, finite.
        eps: ε_A, units of reward.

    Returns:
        advantages_P_G.

    Example:
        >>> 1 + 1
        2
    """


def borrows(rewards_P_G, eps=1.0e-8, scale=1.0):
    """Scale them (Shao et al. 2024). Arguments as for `advantages.group_advantages`.

    B = scale A

    Args:
        scale: a factor, > 0.

    Returns:
        B_P_G.

    Example:
        >>> 1 + 1
        2
    """


def test_a_complete_docstring_has_no_fault_whether_it_lists_or_borrows_arguments():
    assert faults(complete) == faults(borrows) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("(AGPO Eq. 1)", "(see the paper, 2024)", "no source"),
        (
            "A[p, g] = (r[p, g] - mean) / (std + eps)                                      (AGPO Eq. 1)",
            "Zero where G = 1, unless mode='std' (AGPO Eq. 1).",
            "no equation",
        ),
        ("(AGPO Eq. 1)", "(not ours)", "no source"),
        ("(AGPO Eq. 1)", "(since March 2024)", "no source"),
        ("(AGPO Eq. 1)", "(as of May, 2024)", "no source"),
        ("(AGPO Eq. 1)", "(§4)", "no source"),
        ("A[p, g] = (r[p, g] - mean) / (std + eps) ", "Zero where G = 1, unless mode='std' ", "no equation"),
        ("A[p, g] = (r[p, g] - mean) / (std + eps) ", "the sum Σ r, by its std ", "no equation"),
        ("        eps: ε_A", "            eps: ε_A", "not under Args: eps"),  # a second line on the rewards
        ("    Args:", "    Rewards:", "not under Args: eps, rewards_P_G"),
        ("        eps: ε_A, units of reward.", "        eps:", "empty under Args: eps"),
        ("        eps: ε_A", "        scale: a factor.\n        eps: ε_A", "under Args, but no parameter: scale"),
        ("eps: ε_A, units of reward.", "eps: ε_A, a tensor.", "no shape under Args: eps"),
        ("    Returns:", "    Gives:", "no Returns"),
        ("        advantages_P_G.", "", "no Returns"),
        ("        >>> 1 + 1", "        1 + 1", "no Example"),
    ],
)
def test_what_a_docstring_lacks_is_named(monkeypatch, before, after, fault):
    assert complete.__doc__.count(before) == 1
    monkeypatch.setattr(complete, "__doc__", complete.__doc__.replace(before, after))
    assert len(faults(complete)) == 1 and faults(complete)[0].startswith(fault)


def test_an_argument_under_another_name_is_both_missing_and_stale(monkeypatch):
    monkeypatch.setattr(complete, "__doc__", complete.__doc__.replace("        eps: ε_A", "        epsilon: ε_A"))
    assert faults(complete) == ["not under Args: eps", "under Args, but no parameter: epsilon"]


def test_public_methods_without_a_docstring_are_named():
    class Controller:
        """A controller (ours)."""

        def update(self, state):
            return state

        @property
        def spent(self):
            return 0

        @classmethod
        def mean(cls):
            """Average them."""

        def _private(self):
            return None

    assert faults(Controller) == ["no docstring: update, spent"]


def test_a_missing_docstring_is_named_also_where_python_writes_one():
    @dataclass
    class Empty:
        value: float = 0.0

    assert faults(Empty) == faults(lambda: None) == ["no docstring"]
