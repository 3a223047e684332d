"""Decimal numbers in free text.

What is found is a plain decimal string, "1450000" or "-12.5": exact at any length, and never a float. It is the key
that `canonical` gives such a number, too.
"""

from __future__ import annotations

import re

# A sign counts at the start of a number alone, so that "5-3" holds 5 and 3; commas count where they part thousands.
_NUMBER = (
    r"(?P<sign>(?<![A-Za-z0-9)\]}%])[-−]\$?|\$[-−])?"
    r"(?P<digits>[0-9]+(?:,[0-9]{3})*(?![0-9])(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
)
_ANY = re.compile(_NUMBER)
# GSM8K's official mark (Cobbe et al. 2021), more lenient in what may stand around the number: no space, a dollar, bold.
MARKED = re.compile(rf"####[\s$*]*{_NUMBER}")


def last_number(text: str) -> str | None:
    """The last number of the text: the "flexible" reading of answers.

    It has no notion of an unfinished text: working that is cut off is read at its last number.
    """
    match = None
    for match in _ANY.finditer(text):
        pass
    return match and plain_decimal(match)


def plain_decimal(match: re.Match) -> str:
    """A matched number without separators, currency, leading and trailing zeros: 12.50 is 12.5, -0 is 0."""
    whole, _, decimals = match["digits"].replace(",", "").partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    value = f"{whole}.{decimals}" if decimals else whole
    return f"-{value}" if match["sign"] and value != "0" else value
