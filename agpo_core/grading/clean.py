"""Cleaning: one spelling for what can be typed in many ways. Nothing here changes what an answer says.

Unicode is folded into LaTeX (½, ², π, ∞, ①, full-width forms), invisible characters are dropped, LaTeX's spacing and
its synonyms are folded into one form, and the wrappers that surround an answer (\\boxed, dollars, bold) are taken off.
"""

from __future__ import annotations

import re
import unicodedata

from agpo_core.grading.patterns import any_of, pattern

MAX_CHARS = 2000  # longer than any benchmark's gold by a factor of five; bounds the work of every later layer

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho _ sigma tau upsilon"
_GREEK += " phi chi psi omega"
_SYMBOLS = {
    "−": "-", "–": "-", "﹣": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/",
    "∕": "/", "⁄": "/", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "≤": r"\le ", "⩽": r"\le ",
    "≦": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≧": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "√": r"\sqrt ",
    "∛": r"\sqrt[3]", "°": r"^\circ ", "º": r"^\circ ", "℃": r"^\circ C", "≈": r"\approx ", "∅": r"\emptyset ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"', "∶": ":", "。": ".",
    "、": ",", "，": ",", "；": ";", "：": ":", "（": "(", "）": ")", "【": "[", "】": "]", "《": "", "》": "",
    "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "∖": r"\setminus ", "…": r"\ldots ", "％": "%", "﹪": "%", "￥": "¥",
}  # fmt: skip
_SYMBOLS |= {chr(0x3B1 + i): rf"\{name} " for i, name in enumerate(_GREEK.split()) if name != "_"}
_SYMBOLS |= {
    "Δ": r"\Delta ",
    "Ω": r"\Omega ",
    "Σ": r"\Sigma ",
    "Φ": r"\Phi ",
    "Γ": r"\Gamma ",
    "ϕ": r"\phi ",
    "\u2126": r"\Omega ",
}
_RUNS = pattern(f"[{''.join(_SUPERSCRIPTS)}]++|[{''.join(_SUBSCRIPTS)}]++")
_CIRCLED = pattern("[①-⑳]")

# Characters that are typed differently and mean the same: each digit, hyphen and blank becomes its ASCII character.
_DIGIT = pattern("[^\\D0-9]")
_TYPED = dict.fromkeys(map(ord, "‐‑‒–−﹣－⁃"), "-") | {i: " " for i in range(0x80, 0x3100) if chr(i).isspace()}
_TYPED |= dict.fromkeys([*range(0x200B, 0x2010), 0xFEFF, 0x2060])
_THIN = pattern("(?<=\\d)[\u00a0\u2009\u202f\u2007](?=\\d{3}(?!\\d))")


def fold_typed(text: str) -> str:
    """A text with ASCII digits, hyphens and blanks, without invisible characters and without blanks between thousands.

    >>> fold_typed("‑５"), fold_typed("12\u202f345")
    ('-5', '12345')
    """
    if text.isascii():
        return text
    return _DIGIT.sub(lambda digit: str(int(digit[0])), _THIN.sub("", text).translate(_TYPED))


# LaTeX commands that have one meaning here and several spellings.
_SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "leq": "le",
    "leqslant": "le",
    "leqq": "le", "geq": "ge", "geqslant": "ge", "geqq": "ge", "neq": "ne", "lvert": "vert", "rvert": "vert",
    "lbrace": "{", "rbrace": "}", "lbrack": "lbrack", "varnothing": "emptyset", "infin": "infty", "degree": "degree",
    "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta", "land": "wedge", "textdegree": "degree",
    "mathbf": "mathrm", "boldsymbol": "mathrm", "bm": "mathrm", "mathit": "mathrm", "mathsf": "mathrm",
    "mathtt": "mathrm", "textbf": "text", "textit": "text", "textrm": "text", "textsf": "text", "texttt": "text",
    "textnormal": "text", "mbox": "text", "emph": "text", "hbox": "text", "backslash": "setminus",
    "nicefrac": "frac", "sfrac": "frac", "lparen": "(", "rparen": ")", "upmu": "mu",
}  # fmt: skip
_DROPPED = {
    "left", "right", "displaystyle", "textstyle", "limits", "nolimits", "bigl", "bigr", "Bigl", "Bigr", "biggl",
    "biggr", "Biggl", "Biggr", "big", "Big", "bigg", "Bigg", "middle", "mathstrut", "nobreak", "allowbreak",
    "bf", "it", "sf", "tt", "tiny", "small", "normalsize", "large", "Large", "LARGE", "huge", "Huge", "bfseries",
    "boldmath",
}  # fmt: skip
_SPACES = {"quad", "qquad", "enspace", "thinspace", "space", "hfill", "newline"}
_COMMAND = pattern(r"\\([A-Za-z]++|[^A-Za-z])", re.S)


def fold_unicode(text: str) -> str:
    """A text with LaTeX for Unicode's mathematical characters and ASCII for full-width forms, without invisible ones.

    Case: `(-∞,0)∪(0,1]`, `10；5`, `−10`, `12％`, `①③④`.
    """
    if text.isascii():
        return text
    text = fold_typed(text)
    text = _CIRCLED.sub(lambda m: rf"\textcircled{{{ord(m[0]) - 0x245F}}}", text)
    text = _RUNS.sub(_raised_or_lowered, text)
    out = []
    for char in text:
        if char.isascii():
            out.append(char)
        elif char in _SYMBOLS:
            out.append(_SYMBOLS[char])
        elif unicodedata.category(char) in ("Cf", "Cc", "Co", "Cs"):
            continue  # direction marks, zero-width joiners, surrogates: they are invisible, so no answer is in them
        else:
            out.append(_compatible(char))
    return "".join(out)


def _raised_or_lowered(match: re.Match) -> str:
    table, mark = (_SUPERSCRIPTS, "^") if match[0][0] in _SUPERSCRIPTS else (_SUBSCRIPTS, "_")
    return f"{mark}{{{''.join(table[c] for c in match[0])}}}"


def _compatible(char: str) -> str:
    """The compatibility form of a character; a vulgar fraction becomes \\frac, so that 1½ is a mixed number."""
    folded = unicodedata.normalize("NFKC", char)
    over, slash, under = folded.partition("⁄")
    return rf"\frac{{{over}}}{{{under}}}" if slash and under else folded


_COLOURED = pattern(r"\\textcolor ?\{[a-z]++\} ?\{|\\underline ?\{|\{ ?\\color ?\{[a-z]++\}")
_DECORATION = pattern(
    r"\\color ?\{[a-z]++\}|\\(?:tag|phantom|hspace|vspace)\*? ?\{[^{}]*+\}|\\(?:therefore|checkmark|blacksquare"
    r"|square)\b"
)
_PARTED = pattern(r"(?<=\d)(?:\{,\}|,\s{0,9}\\!|\\,|\\ )\s{0,9}(?=\d{3}(?!\d))")
_TIMES = pattern(r"(?<=\d) ?[xX] ?(?=10 ?\^)")  # 8.7 x 10^8
_TILDE = pattern(r"(?<!\\)~")
_OVER = pattern(r"\{([^{}]{1,99})\\over(?![A-Za-z])([^{}]{1,99})\}")
_WRAPPED_MATH = pattern(r"\\(?:text|mathrm) ?\{ ?\$([^$]{1,400})\$ ?\}")


def fold_latex(text: str) -> str:
    """A text with one command for LaTeX's synonyms, blanks for its spacing, and no thousands separators.

    Case: `10,\\!080`, `11,\\! 111,\\! 111,\\! 100`, `10{,}000`, `\\left(3,4\\right]`, `\\dfrac43`.
    """
    text = _PARTED.sub("", text) if "," in text or "\\ " in text else text
    text = text.replace("{:}", ":").replace("{,}", ",").replace("+/-", "\\pm ")
    text = _TIMES.sub(r"\\times ", text) if "10" in text else text
    if "\\" not in text:
        return text.replace("~", " ")
    text = _DECORATION.sub("", _COLOURED.sub("{", text)).replace("\\not=", "\\ne ").replace("\\not =", "\\ne ")
    text = _COMMAND.sub(_fold_command, text)
    if "\\over" in text:
        text = _OVER.sub(r"\\frac{\1}{\2}", text if _OVER.search(text) else f"{{{text}}}")
    return _WRAPPED_MATH.sub(r"{\1}", _TILDE.sub(" ", text))


def _fold_command(match: re.Match) -> str:
    name = match[1]
    if name in "!":
        return ""
    if name in ",;: >" or name in _SPACES:
        return " "
    if name in "()[]":  # display and inline delimiters
        return "$"
    if name in _DROPPED:
        return ""
    if name in ("{", "}", "\\", "%", "$", "_", "&", "#"):
        return match[0]
    name = _SYNONYMS.get(name, name)
    if name == "degree":
        return r"^\circ "
    if name == "vert":
        return "|"
    if name == "lbrack":
        return "["
    if name == "rbrack":
        return "]"
    return f"\\{name}"


_BOLD = pattern(r"(\*\*|__|\*|`)(.{1,2000})\1", re.S)
_BOXED = pattern(r"\\(?:boxed|fbox|framebox)\s{0,9}\{")
_LEAD = pattern(
    rf"(?:{any_of('so thus therefore hence')}|(?:the )?(?:final |correct )?answer)\s{{0,9}}(?:(?:is|are)\b|="
    rf"|:)?\s{{0,9}}:?(?:\s++|(?<=:)|(?<=r)(?=\d))"
    r"|(?:最终|最后)?答案\s{0,9}[应是为选:]{0,3}\s{0,9}|(?:故?选(?:项|择)?|故|所以|因此)\s{0,9}[是为选]?\s{0,9}:?\s{0,9}"
    r"|(?:约等于|约为|大约|约|\\approx(?![a-z]))\s{0,9}|= ?(?!=)",
    re.I,
)
_TEXT_LEAD = pattern(r"\\text ?\{ ?(?:the )?(?:final )?answer(?: is|:| is:)? ?\} ?(?==?[^=])=? ?", re.I)
_INLINE_DOLLAR = pattern(r"(?<!\\)\$")
_FULL_STOP = pattern(r"[^.]\.\Z")
_HALF_DAY = pattern(r"\b[ap]\.\s?m\.\Z", re.I)
_HANGING = pattern(r"(?:(?<![,;:])[,;:]++|(?<!\\)\\)\Z")


def unwrap(text: str) -> str:
    """An answer without what surrounds it: \\boxed, dollars, bold, an introduction, a full stop.

    Case: AMC-23 `\\boxed{27}`, GaokaoMath `$[0,2]$`, GaokaoMath-QA `选D`, `\\text{Answer: }42`.
    """
    text = text.strip()
    for _ in range(8):  # each pass takes one layer off
        before = text
        text = text.strip().strip("\u3000")
        if text.startswith("$") and text.endswith("$") and len(text) > 1:
            inner = text.strip("$")
            if not _INLINE_DOLLAR.search(inner):
                text = inner
        elif (boxed := _BOXED.match(text)) and closing_brace(text, boxed.end() - 1) == len(text) - 1:
            text = text[boxed.end() : -1]
        elif match := _BOLD.fullmatch(text):
            text = match[2]
        elif text.startswith("**") or text.endswith("**"):  # the other mark of the pair stood before or after
            text = text.removeprefix("**").removesuffix("**")
        elif text.startswith("{") and closing_brace(text, 0) == len(text) - 1:
            text = text[1:-1]
        if lead := _LEAD.match(text) or _TEXT_LEAD.match(text):
            text = text[lead.end() :]
        if _FULL_STOP.search(text) and not _HALF_DAY.search(text):
            text = text[:-1]
        text = _HANGING.sub("", text.strip())
        if text == before:
            break
    return text


def closing_brace(text: str, opening: int) -> int:
    """The index of the brace that closes the one at `opening`; -1 when none does. Escaped braces count as text."""
    depth, i = 0, opening
    while i < len(text):
        char = text[i]
        if char == "\\":
            i += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return i
        i += 1
    return -1


def clean(text: str) -> str | None:
    """The answer in one spelling; None when it is empty or too long to be an answer."""
    if len(text) > MAX_CHARS:
        return None
    text = fold_latex(fold_unicode(text))
    return unwrap(" ".join(text.split())) or None


_OPEN, _CLOSE = "([{", ")]}"


def split_top(text: str, separators: str) -> list[str]:
    """Split at separators that stand outside every bracket. Brackets need not match in kind: (3,4] is one piece."""
    pieces, depth, start, i = [], 0, 0, 0
    while i < len(text):
        char = text[i]
        if char == "\\":
            if text.startswith(("\\begin", "\\langle"), i):
                depth += 1
            elif text.startswith(("\\end", "\\rangle"), i):
                depth -= 1
            elif i + 1 < len(text) and text[i + 1] in "{}":
                depth += 1 if text[i + 1] == "{" else -1
            i += 2
            continue
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif depth == 0 and char in separators:
            pieces.append(text[start:i])
            start = i + 1
        i += 1
    pieces.append(text[start:])
    return pieces


_SET = pattern(r"\\\{(.{0,2000})\\\}", re.S)
_CONDITION = pattern(r"\||\\mid|:")


def braced(text: str) -> str | None:
    """The inside of \\{ ... \\} where that is the whole string; None otherwise, and for a set given by a condition."""
    match = _SET.fullmatch(text)
    if not match or "\\{" in match[1] or _CONDITION.search(match[1]):
        return None
    return match[1]
