"""Check settings against the types beside their fields: each type says what values are allowed.

    top_p: Annotated[float, Within("(0, 1]")] = 0.95
    dispersion: Literal["std", "mad", "iqr"] = "std"
    weights: tuple[Annotated[float, AtLeast(0)], ...] = (1.0, 1.0, 0.1)

This one validator checks runs (`config.TrainConfig`), grids and evaluations. Every message names the setting, the
values that it may have, and the value that it had.
"""

import dataclasses
import difflib
import functools
import math
import reprlib
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# Beyond these limits a run would not fit into any machine, or its numbers would leave the range of float32; no run that
# makes sense comes near them. A setting whose own range ends earlier says so.
HIGHEST = 1.0e12
LEAST = 1.0e-30  # smallest size of a number other than 0: float32 ends at 1e-38, which products reach sooner
ENTRIES = 1000  # most entries of a list

short = reprlib.Repr()  # prints a value in a message; only the beginning of a huge or deeply nested one
short.maxstring = short.maxother = short.maxlong = 80


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message names it and the remedy."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the line, without frames of the library."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class AtLeast:
    """Numbers of `low` or more."""

    low: float
    most: float = HIGHEST

    def rule(self, number: float) -> str | None:
        """What a number outside the range would have to be; None for a number inside it."""
        if number > self.most:
            return f"at most {self.most:g}"
        return None if number >= self.low else "0 or more" if self.low == 0 else f"at least {self.low:g}"


@dataclass(frozen=True)
class Above:
    """Numbers above `low`."""

    low: float
    most: float = HIGHEST

    def rule(self, number: float) -> str | None:
        """See `AtLeast.rule`."""
        if number > self.most:
            return f"at most {self.most:g}"
        return None if number > self.low else f"above {self.low:g}"


@dataclass(frozen=True)
class Within:
    """Numbers in an interval, as mathematics writes it: "[0, 1)" holds 0 and not 1."""

    interval: str

    @functools.cached_property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end; an end may be written as a power, 2**31."""
        powers = (end.partition("**") for end in self.interval[1:-1].split(","))
        low, high = (float(base) ** float(power or 1) for base, _, power in powers)
        return low, high

    def rule(self, number: float) -> str | None:
        """See `AtLeast.rule`."""
        low, high = self.ends
        above = number > low or (number == low and self.interval[0] == "[")
        below = number < high or (number == high and self.interval[-1] == "]")
        return None if above and below else f"in {self.interval}"


@dataclass(frozen=True)
class OneOf:
    """One of the texts of a table that stands elsewhere; texts that stand beside the field are a Literal instead."""

    choices: tuple[str, ...]


class AnyText:
    """Text for a model: it may hold line breaks, and be empty."""


def settle(settings) -> None:
    """Check every field of a frozen dataclass and convert it to its type: a whole number to a float, a list to a tuple.

    Raises:
        ConfigError: a value is of another type, or out of its range.
    """
    for name, kind in kinds(type(settings)).items():
        object.__setattr__(settings, name, checked(name, kind, getattr(settings, name)))


@functools.cache
def kinds(settings: type) -> dict[str, object]:
    """The fields of a dataclass of settings and their types, with the ranges beside them."""
    hints = typing.get_type_hints(settings, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(settings)}


def choices(kind) -> tuple[str, ...]:
    """The texts that a setting of this type may be; empty where its type lists none."""
    plain, marks, _ = _taken_apart(kind)
    if typing.get_origin(plain) is Literal:
        return typing.get_args(plain)
    return next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())


def optional(kind) -> bool:
    """Whether a setting of this type may be None."""
    return _taken_apart(kind)[2]


def checked(name: str, kind, value):
    """A value converted to a setting's type, or an error that names the setting.

    Args:
        name: of the setting.
        kind: bool, int, float or str, a Literal of texts, a tuple of one of these; Annotated with a range; or None.
        value: what was given.
    Returns:
        The value; a list becomes a tuple, and a whole number a float where a float is wanted.
    Raises:
        ConfigError: it is of another type, or out of range.
    """
    plain, marks, may_be_none = _taken_apart(kind)
    if value is None and may_be_none:
        return None
    or_null = ", or null" * may_be_none
    if typing.get_origin(plain) is tuple:
        item = typing.get_args(plain)[0]
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{name} must be a list of {_taken_apart(item)[0].__name__}, got {short.repr(value)}.")
        if len(value) > ENTRIES:
            raise ConfigError(f"{name} must have at most {ENTRIES} entries, got {len(value)}.")
        return tuple(checked(name, item, each) for each in value)
    allowed = choices(kind)
    value = _as(name, str if allowed else plain, value, AnyText in marks)
    if allowed and value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {short.repr(value)}.")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        rules = [mark.rule(value) for mark in marks if hasattr(mark, "rule")]
        if abs(value) > HIGHEST and not any(isinstance(mark, (AtLeast, Above)) for mark in marks):
            rules.append(f"at most {HIGHEST:g}")
        if 0 < abs(value) < LEAST:
            rules.append(f"0, or at least {LEAST:g}")
        for rule in filter(None, rules):
            raise ConfigError(f"{name} must be {rule}{or_null}; got {short.repr(value)}.")
    return value


def unknown(name, known: Iterable[str], see: str) -> str:
    """The end of a message about an unknown name: the known name that may have been meant, or else `see`."""
    close = difflib.get_close_matches(str(name)[:80], list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else see


def _taken_apart(kind) -> tuple[object, tuple, bool]:
    """A type without its marks and without None; the marks; whether it may be None."""
    may_be_none = False
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
        may_be_none = True
    if typing.get_origin(kind) is typing.Annotated:
        plain, *marks = typing.get_args(kind)
        return plain, tuple(marks), may_be_none
    return kind, (), may_be_none


def _as(name: str, kind: type, value, any_text: bool):
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if kind is float and isinstance(value, str):
        raise ConfigError(
            f"{name} must be a number, got the text {short.repr(value)}: in YAML a float needs a dot, write 1.0e-6 "
            "and not 1e-6."
        )
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ConfigError(f"{name} must be {kind.__name__}, got {short.repr(value)}.")
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, got {short.repr(value)}.")
    if kind is str and any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{name} must be a text without lone surrogates, got {ascii(value[:80])}.")
    if kind is str and not any_text and not (value.isprintable() and value.strip()):
        raise ConfigError(f"{name} must be a text of printable characters, got {short.repr(value)}.")
    return value
