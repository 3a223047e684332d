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
    for name in ("probe", "advantages", "kl", "losses", "metrics", "bias", "controllers", "horizon")
]

# A paper by name and year, a place in one of the two papers, or our own.
SOURCE = re.compile(
    r"[A-Z][\w’'-]+(?: et al\.)?,? \(?(?:[A-Z]+ )?(?:19|20)\d\d\b"
    r"|\b(?:AGPO|R\+\+|REINFORCE\+\+)(?:'s)? (?:Eqs?\.|§|Table|Lemma|Theorem|Algorithm|App\.)"
    r"|§\d"
    r"|\bours\b"
)
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
    """True if a paragraph is a formula set apart: it has a Σ or an equals sign between spaces, and no full stop.

    Keyword arguments have no spaces around theirs, and a sentence that says "at G = 1" ends in a full stop.
    """
    paragraphs = [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text)]
    return any(re.search(r" = |Σ", part) and not part.endswith((".", ":", ";", "?")) for part in paragraphs)


def documented(thing):
    """Names of the parameters that a docstring describes, one or several before a colon, or borrows from another."""
    text = inspect.getdoc(thing) or ""
    listed = textwrap.dedent("\n".join(sections(text).get("Args", "").splitlines()[1:]))
    items = re.findall(r"^([*\w]+(?:, [*\w]+)*):", listed, flags=re.MULTILINE)
    names = {name.lstrip("*") for item in items for name in item.split(", ")}
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
    found = [] if SOURCE.search(text) else ["no source: name a paper and its year, an equation or section, or say ours"]
    if inspect.isclass(thing):
        return found
    parts = sections(text)
    if not has_equation(parts[""]):
        found.append("no equation: set one apart, before Args")
    missing = sorted(set(inspect.signature(thing).parameters) - documented(thing))
    if missing:
        found.append(f"not under Args: {', '.join(missing)}")
    if "Returns" not in parts:
        found.append("no Returns")
    return found


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
        rewards_P_G: rewards, finite.
        eps: ε_A, units of reward.

    Returns:
        advantages_P_G.
    """


def borrows(rewards_P_G, eps=1.0e-8, scale=1.0):
    """Scale them (Shao et al. 2024). Arguments as for `advantages.group_advantages`.

    B = scale A

    Args:
        scale: a factor, > 0.

    Returns:
        B_P_G.
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
        ("        eps: ε_A, units of reward.", "        epsilon: ε_A.", "not under Args: eps"),
        ("        eps: ε_A", "            eps: ε_A", "not under Args: eps"),  # a second line on the rewards
        ("    Args:", "    Rewards:", "not under Args: eps, rewards_P_G"),
        ("    Returns:", "    Gives:", "no Returns"),
    ],
)
def test_what_a_docstring_lacks_is_named(monkeypatch, before, after, fault):
    assert complete.__doc__.count(before) == 1
    monkeypatch.setattr(complete, "__doc__", complete.__doc__.replace(before, after))
    assert len(faults(complete)) == 1 and faults(complete)[0].startswith(fault)


def test_a_missing_docstring_is_named_also_where_python_writes_one():
    @dataclass
    class Empty:
        value: float = 0.0

    assert faults(Empty) == faults(lambda: None) == ["no docstring"]
