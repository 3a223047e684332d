"""The first layer: one spelling for what can be typed in many ways. Nothing here changes what an answer says.

Unicode is folded into LaTeX (½, ², π, ∞, ①, full-width forms), invisible characters are dropped, LaTeX's spacing and
its synonyms are folded into one form, and the wrappers that surround an answer (\\boxed, dollars, bold) are taken off.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARS = 4000  # longer than any benchmark's gold by a factor of ten; bounds the work of every later layer

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma_f sigma tau "
    "upsilon phi chi psi omega"
).split()
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
for _i, _name in enumerate(_GREEK):
    if not _name.endswith("_f"):
        _SYMBOLS.setdefault(chr(0x3B1 + _i), rf"\{_name} ")
_SYMBOLS |= {"Δ": r"\Delta ", "Ω": r"\Omega ", "Σ": r"\Sigma ", "Φ": r"\Phi ", "Γ": r"\Gamma ", "ϕ": r"\phi "}
_RUNS = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+|[{''.join(_SUBSCRIPTS)}]+")
_CIRCLED = re.compile("[①-⑳]")

# LaTeX commands with one meaning here and several spellings. A command's name ends where its letters do.
_SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "leq": "le",
    "leqslant": "le",
    "leqq": "le", "geq": "ge", "geqslant": "ge", "geqq": "ge", "neq": "ne", "lvert": "vert", "rvert": "vert",
    "lbrace": "{", "rbrace": "}", "lbrack": "lbrack", "varnothing": "emptyset", "infin": "infty", "degree": "degree",
    "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta", "land": "wedge", "textdegree": "degree",
    "mathbf": "mathrm", "boldsymbol": "mathrm", "bm": "mathrm", "mathit": "mathrm", "mathsf": "mathrm",
    "mathtt": "mathrm", "textbf": "text", "textit": "text", "textrm": "text", "textsf": "text", "texttt": "text",
    "textnormal": "text", "mbox": "text", "emph": "text", "hbox": "text", "backslash": "setminus",
}  # fmt: skip
_DROPPED = {
    "left", "right", "displaystyle", "textstyle", "limits", "nolimits", "bigl", "bigr", "Bigl", "Bigr", "biggl",
    "biggr", "Biggl", "Biggr", "big", "Big", "bigg", "Bigg", "middle", "mathstrut", "nobreak", "allowbreak",
}  # fmt: skip
_SPACES = {"quad", "qquad", "enspace", "thinspace", "space", "hfill", "newline"}
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])", re.S)


def fold_unicode(text: str) -> str:
    """Unicode's mathematical characters as LaTeX, full-width forms as ASCII, invisible characters dropped.

    Case: `(-∞,0)∪(0,1]`, `10；5`, `−10`, `12％`, `①③④`.
    """
    if text.isascii():
        return text
    text = _CIRCLED.sub(lambda m: rf"\textcircled{{{ord(m[0]) - 0x245F}}}", text)
    text = _RUNS.sub(_raised_or_lowered, text)
    out = []
    for char in text:
        if char.isascii():
            out.append(char)
        elif char in _SYMBOLS:
            out.append(_SYMBOLS[char])
        elif unicodedata.category(char) in ("Cf", "Cc", "Co", "Cs"):
            continue  # direction marks, zero-width joiners, surrogates: invisible, so they carry no answer
        elif unicodedata.category(char) == "Nd":
            out.append(str(unicodedata.decimal(char)))
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


_COLOURED = re.compile(r"\\textcolor ?\{[a-z]+\} ?\{|\\underline ?\{|\{ ?\\color ?\{[a-z]+\}")
_DECORATION = re.compile(
    r"\\color ?\{[a-z]+\}|\\(?:tag|phantom|hspace|vspace)\*? ?\{[^{}]*\}|\\(?:therefore|checkmark|blacksquare|square)\b"
)


def fold_latex(text: str) -> str:
    """LaTeX's synonyms as one command, its spacing as a space, its thousands separators gone.

    Case: `10,\\!080`, `11,\\! 111,\\! 111,\\! 100`, `10{,}000`, `\\left(3,4\\right]`, `\\dfrac43`.
    """
    text = re.sub(r"(?<=\d)(?:\{,\}|,\s*\\!|\\,)\s*(?=\d{3}(?!\d))", "", text)
    text = text.replace("{:}", ":").replace("{,}", ",")
    text = re.sub(r"(?<=\d) ?[xX] ?(?=10 ?\^)", r"\\times ", text)  # 8.7 x 10^8
    if "\\" not in text:
        return text.replace("~", " ")
    text = _DECORATION.sub("", _COLOURED.sub("{", text)).replace("\\not=", "\\ne ").replace("\\not =", "\\ne ")
    text = _COMMAND.sub(_fold_command, text)
    return re.sub(r"(?<!\\)~", " ", text)


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


_BOLD = re.compile(r"^(\*\*|__|\*|`)(.+)\1$", re.S)
_BOXED = re.compile(r"^\\(?:boxed|fbox|framebox)\s*\{")
_LEADS = re.compile(
    r"^(?:(?:so|thus|therefore|hence|answer|final answer|the answer|the final answer|"
    r"答案|最终答案|最后答案|故|所以|因此)"
    r"\s*(?:is|are|应?[是为选]|=|:)?\s*:?\s+|(?:the )?(?:final )?answer(?: is)?\s*:?\s*|"
    r"(?:故?选(?:项|择)?|故?答案|最终答案)\s*[是为选]?\s*:?\s*|(?:约|大约|约为|约等于|\\approx)\s*)+",
    re.I,
)


def unwrap(text: str) -> str:
    """An answer without what surrounds it: \\boxed, dollars, bold, an introduction, a full stop.

    Case: AMC-23 `\\boxed{27}`, GaokaoMath `$[0,2]$`, GaokaoMath-QA `选D`.
    """
    text = text.strip()
    for _ in range(8):  # each pass takes one layer off
        before = text
        text = text.strip().strip("\u3000")
        if text.startswith("$") and text.endswith("$") and len(text) > 1:
            inner = text.strip("$")
            if not re.search(r"(?<!\\)\$", inner):
                text = inner
        elif _BOXED.match(text) and closing_brace(text, text.index("{")) == len(text) - 1:
            text = text[text.index("{") + 1 : -1]
        elif match := _BOLD.match(text):
            text = match[2]
        elif text.startswith("**") or text.endswith("**"):  # the other mark of the pair stood before or after
            text = text.removeprefix("**").removesuffix("**")
        elif text.startswith("{") and closing_brace(text, 0) == len(text) - 1:
            text = text[1:-1]
        text = re.sub(r"^= ?(?=[^=])", "", _LEADS.sub("", text, count=1))
        if re.search(r"[^.]\.$", text) and not re.search(r"\b[ap]\.\s?m\.$", text, re.I):
            text = text[:-1]
        text = re.sub(r"[,;:]+$|(?<!\\)\\$", "", text.strip())
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
    text = unwrap(re.sub(r"\s+", " ", text))
    return text or None


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


def braced(text: str) -> str | None:
    """The inside of \\{ ... \\} that is the whole string, unless it is a set by condition."""
    match = re.fullmatch(r"\\\{(.*)\\\}", text, re.S)
    if not match or "\\{" in match[1] or re.search(r"\||\\mid|:", match[1]):
        return None
    return match[1]
