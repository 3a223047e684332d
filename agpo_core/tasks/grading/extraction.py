"""From a response to its answer: extraction rules, each with a name; a profile lists its own in order.

A rule that finds nothing passes the response on. What is found is a piece of the response; reading it comes after.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agpo_core.tasks.grading.clean import fold_unicode
from agpo_core.tasks.grading.numbers_in_text import MARKED, last_number, plain_decimal

TAIL = 20_000  # characters: an answer stands at the end, and an endless response costs no more than this

# A mark of bold at the head or the end of a word; the power in 2**10 and in 2 ** 10 stays.
_BOLD = re.compile(r"(?<![\w)\]}])\*\*(?=\S)|(?<=\S)\*\*(?![\w(\[{\\$-])")


def _end_of(text: str) -> str:
    """The end of a response without bold, with runs of blanks as one: patterns that allow blanks stay linear in it."""
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[^\S\n]+", " ", text[-TAIL:]))
    return _BOLD.sub("", text)


Extractor = Callable[[str], "list[str]"]  # response -> readings of its answer to try, best first

_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\(?:boxed|fbox)\s+(?P<bare>[^\s{}$\\]+)")
_JOIN = re.compile(
    r"[\s$,;，；、.\\()\[\]]*(?:and|or|或|和|\\text\{ ?(?:and|or) ?\}|,)?[\s$,\\()\[\]]*(?:[A-Za-z]_?\d? ?= ?)?[\s$]*"
)


def boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every closed, outermost \\boxed, in one pass."""
    found, opened = [], []
    starts = {match.end(): match.start() for match in _BOX.finditer(text) if match["bare"] is None}
    i = 0
    while i < len(text):
        char = text[i]
        if char == "\\" and text[i + 1 : i + 2] in ("{", "}", "\\"):
            i += 2
            continue
        if char == "{":
            opened.append(i)
        elif char == "}" and opened:
            opening = opened.pop()
            if opening in starts:
                while found and found[-1][0] > starts[opening]:  # a box inside this one
                    found.pop()
                found.append((starts[opening], i + 1, text[opening + 1 : i]))
        i += 1
    found += [(m.start(), m.end(), m["bare"]) for m in _BOX.finditer(text) if m["bare"] is not None]
    return sorted(found)


_CORRECTED = re.compile(r"(?:correct|right|final|actual) answer (?:is|should be):? ?\$?[-\d\\(]", re.I)


def boxed(text: str) -> list[str]:
    """The last \\boxed; with the boxes right before it where only "and" or a comma is between: x = [1] or x = [-2]."""
    text = _end_of(text)
    found = boxes(text)
    if not found:
        return []
    if re.search(r"(?:\bnot|n't)[\s$(:]*$", text[: found[-1][0]]):
        return [f"not {found[-1][2]}"]
    if _CORRECTED.search(text, found[-1][1]):
        return []  # the phrase says it
    group = [found[-1]]
    for box in reversed(found[:-1]):
        between = text[box[1] : group[0][0]]
        if len(between) > 40 or not _JOIN.fullmatch(between) or "\n" in between or not between.strip(" $"):
            break
        group.insert(0, box)
    contents = list(dict.fromkeys(content.strip() for _, _, content in group))
    base = re.match(r" ?_ ?(?:\{\d+\}|\d)", text[group[-1][1] :])  # a numeral's base may stand behind the box
    return [", ".join(contents) + (base[0] if base else "")]


_PHRASE = re.compile(
    r"answer(?:\s+to\s+[^\n.]{0,80}?)?\s*(?:is|are|:|=|would be|should be)\s*:?\s*"
    r"|^[#\s]*(?:the )?(?:final )?answer\s*\n\s*"  # a heading
    r"|(?:最终|最后|正确)?(?:的)?答案\s*(?:应该|应)?(?:[是为选：:]|等于)+\s*[:：]?\s*|故选\s*[:：]?\s*|^\s*选\s*",
    re.I | re.M,
)
_HOPE = re.compile(r"\.?\s*I hope (?:it|this) is correct.*", re.I | re.S)
_MATH_SPAN = re.compile(r"^(?:\$\$(.+?)\$\$|\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])", re.S)


_GOES_ON = re.compile(
    r"\s*(?:[;,；，、和或](?!\s*i\.\s?e)|[-+*/×÷:^%=<>~?|_]|\\(?:times|cdot|div|pm)|"
    r"(?:and|or|to|out|times|plus|minus|million|billion|thousand|hundred|squared|cubed|percent|but)\b)"
)
_HANGING = re.compile(r"(?:\band|\bor|[和或])\s*$")  # "$5 and $6": what lies between these dollars is no formula


def phrase(text: str) -> list[str]:
    """What follows the last "answer is", to the end of its sentence or line: whole first, then cut ever shorter."""
    tail = _end_of(text)
    match = None
    for match in _PHRASE.finditer(tail):
        pass
    if match is None:
        return []
    rest = _HOPE.sub("", tail[match.end() :], count=1).lstrip()
    hoped = bool(_HOPE.search(tail[match.end() :]))
    line = (
        rest.rstrip()
        if hoped
        else rest.partition("\n\n")[0]
        if rest.startswith(("$", "\\["))
        else rest.partition("\n")[0]
    )
    found = [line[:4000]]
    if "\n" in match[0] and (sentence := re.fullmatch(r".*\b(?:is|are|equals) (.+)", line)):  # below a heading
        found.append(sentence[1])
    if span := _MATH_SPAN.match(rest):
        inside = next(group for group in span.groups() if group)
        after = rest[span.end() :]
        if not _GOES_ON.match(after) and not _HANGING.search(inside):
            found.insert(0, inside)
    for pattern in (
        r"(?<![a-zA-Z]\.[a-zA-Z])[.。](?:\s|$)",
        r"[,，。；;]\s*(?=[A-Za-z\u4e00-\u9fff]{2}|i\.\s?e)",
        r"\s+(?:because|since|as|which|so|for)\b",
    ):
        if cut := re.search(pattern, line):
            found.append(line[: cut.start()])
    return list(dict.fromkeys(piece.strip() for piece in found if piece.strip()))


_NUMERAL = (
    r"\\d?t?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|\d+又\d+(?:/\d+|分之\d+)|\d+分之\d+|百分之[\d.零一二三四五六七八九十百点]+|"
    r"(?<![\d.])\d+\s*/\s*\d+(?![\d/])|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?(?:\s*\\?%|[万亿])?|\.\d+"
)
_QUANTITY = re.compile(rf"(?:(?<![\w)\]}}])[-−])?(?:\\?\$)?(?:{_NUMERAL})")

_Q = rf"\$?{_QUANTITY.pattern}"
_HEDGE = re.compile(
    r"(?:\b(?:not|never|between|n?either|(?:more|less|greater|fewer|other) than|at (?:least|most)|over|under|up to|"
    r"twice|half(?: of)?|double|triple|minus|negative|but)\b|n't|[<>≠≤≥]|"
    rf"不是|不等于|并非|大于|小于|超过|不到|至少|至多|最多|负)\s*(?:\w+\s+)?{_Q}|"
    rf"{_Q}\$?\s*(?:\b(?:or|to|and|plus|minus|times|x)\b|[+*×÷^:/-]|或者?|到|至|余|的|元|……)\s*{_Q}|"
    rf"{_Q} [a-z]{{2,12}} (?:and )?{_Q}|"
    rf"{_Q}\s*(?:\b(?:and a half|squared|cubed)\b|个?半|不到|多)"
)


def hedged(text: str) -> list[str]:
    """The phrase after the last "answer is", where it names two numbers or says what the answer is not.

    Case: "The answer is 5 or 6.", `答案是5或6`: found, and read by no rule for numbers.
    """
    if denied := re.search(r"(?:答案并?不是|answer (?:isn't|is not|cannot be) )[^\n]*", _end_of(text)):
        return [denied[0]]
    return [found[-1]] if (found := phrase(text)) and _HEDGE.search(fold_unicode(found[-1])) else []


def number_phrase(text: str) -> list[str]:
    """The first quantity after the last "answer is". Case: "The answer is 72, in total, so that is 3 each."."""
    found = phrase(text)
    if not found:
        return []
    match = _QUANTITY.search(fold_unicode(found[-1])) or _QUANTITY.search(fold_unicode(found[0]))
    return [*found, match[0]] if match else found


def hash_mark(text: str) -> list[str]:
    """The number after the first "####" that has one; its whole line where the number is a part of something else.

    Case: GSM8K `#### 18`; `#### 2/3` is not 2, and `#### 5 or 6` is no number.
    """
    match = MARKED.search(text)
    if match is None:
        return []
    after = text[match.end("digits") :].partition("\n")[0]
    if re.match(r"\.?\d|[\s$]*(?:[/:^*+=-]|\\|or\b|to\b|and\b)[\s$]*[\d.]", after):
        return [f"{match['sign'] or ''}{match['digits']}{after}"]
    return [plain_decimal(match)]


# What comes after the answer.
_CHECK = re.compile(r"\n[ \t]*(?:验算|检验|验证|[Cc]heck(?:ing)?|[Vv]erification) ?[:：].*", re.S)


def last_quantity(text: str) -> list[str]:
    """The last quantity of the response, fraction and percent sign included."""
    match = None
    for match in _QUANTITY.finditer(fold_unicode(_end_of(_CHECK.sub("", text)))):
        pass
    return [match[0]] if match else []


def last_amount(text: str) -> list[str]:
    """The last number of the response, with what scales it. Case: GSM8K `1,450,000` is "$1.45 million"."""
    tail = _CHECK.sub("", text[-TAIL:])
    number = last_number(tail)
    if number is None:
        return []
    scale = re.search(r"\d (thousand|million|billion)\b\D*$", tail)
    return [f"{number} {scale[1]}" if scale else number]


def marked_line(text: str) -> list[str]:
    """What follows the last "####" or "A:" at the head of a line."""
    match = None
    for match in re.finditer(r"(?:####|^A:)[ \t]*(\S[^\n]*)", _end_of(text), re.M):
        pass
    return [match[1].strip()] if match else []


_TOMBSTONE = re.compile(r"\$?\\(?:blacksquare|square|Box|qed)\b\$?")


def last_math(text: str) -> list[str]:
    """The last formula between dollars or brackets, where the last line holds one; else what is bold or code there."""
    lines = [line for line in _end_of(text).splitlines() if line.strip()]
    if not lines:
        return []
    marked = re.findall(r"\*\*([^*]+)\*\*|`([^`]+)`", text[-TAIL:].rstrip().rpartition("\n")[2])
    spans = re.findall(r"(?<!\\)\$([^$]+)(?<!\\)\$|\\\((.+?)\\\)", _TOMBSTONE.sub("", lines[-1]))
    if spans:
        return [next(group for group in spans[-1] if group)]
    if marked:
        return [marked[-1][0] or marked[-1][1]]
    alone = len(lines) == 1 and len(lines[0]) < 200 and (" " not in lines[0].strip() or re.search(r"[\d\\]", lines[0]))
    return [lines[0]] if alone else []


# Several letters are taken whole, and read by profiles that know of several. An A before a word may be an article.
_LETTERS = (
    r"[(\[]?\s*[(\[]?(?P<letters>"
    r"[A-H](?:[A-H]|[\])}$\"”\\]{0,3} ?(?:[,;、，和与&/|或]|,? ?and\b|,? ?or\b(?: maybe)?)? ?"
    r"(?:[(\[$\"“]|\\\(|\\(?:text|textbf|mathrm)\{){0,2}[A-H](?![a-z']| (?:is|was|are)\b))*)"
    r"(?![A-Za-z'])(?<!A(?= (?!because|since|as|is|and|or|for|with|by|due|so|but|from|given|in\b|if|when)[a-z]))"
)
_LETTER_PHRASES = (
    re.compile(r"(?:[Aa]nswers?|ANSWER|[Cc]hoice|[Oo]ption|答案|(?<!不)选项?)[^A-Za-z\n不]{0,12}"
               r"(?:is|are|should be|:|是|为|选|应为)*\s*[^A-Za-z\n不]{0,8}"
               rf"(?:option|choice|选项)?\s*\$?(?:\\(?:text|textbf|mathrm|boxed)\{{)*{_LETTERS}(?! ?[不错])"),
    re.compile(rf"(?<!不)故?选[^A-Za-z\n不]{{0,4}}{_LETTERS}(?! ?[不错])"),
)  # fmt: skip


def letter_phrase(text: str) -> list[str]:
    """The letters after the last "answer is" or 故选."""
    tail, best = _end_of(text), None
    for pattern in _LETTER_PHRASES:
        for match in pattern.finditer(tail):
            if best is None or match.start("letters") > best.start("letters"):
                best = match
    if best is None:  # "a function" is no letter
        lowered = re.findall(r"(?:answer|option|choice) is:? ?(?:\(([a-h])\)|([a-h])(?:[).]|$))", tail, re.M)
        return ["".join(lowered[-1]).upper()] if lowered else []
    return [best["letters"]]


def last_letter(text: str) -> list[str]:
    """A letter that is the last line or heads an option there: "C", "(C)", "C. 42"; in bold or brackets at the end; the
    first line.
    """
    lines = [line.strip() for line in _end_of(text).splitlines() if line.strip()] or [""]
    alone = r"[(\[]*([A-H])[)\].:]*"
    match = re.fullmatch(alone, lines[-1]) or re.match(r"^[(\[]?([A-H])[)\].:]\s+\S", lines[-1])
    if match:
        return [match[1]]
    if len(lines) == 1 and re.fullmatch(r"[A-H](?:[,、和与 ]*[A-H])+", lines[0]):
        return lines
    found = re.findall(r"\(([A-H])\)|\*\*\(?([A-H])\)?\.?\*\*", text[-400:])
    if found:
        return ["".join(found[-1])]
    match = re.fullmatch(alone, lines[0])
    return [match[1]] if match else []


_NEXT = re.compile(
    r"\n[ \t]*(?:#+ |\*\*)?(?:Q|Question|Problem|Exercise|Human|User|Instruction|Input|问题|题目) ?\d{0,3} ?[:：]|"
    r"<\|im_start\|>user"
)
_ANSWERED = re.compile(r"\\boxed|answer(?: is\b|s are\b|\W{0,3}:)|####|答案 ?[是为:：]|故选", re.I)


def until_next_problem(text: str) -> str:
    """A response as far as it is about its own problem: base models go on with one that they make up."""
    answered = _ANSWERED.search(text)
    match = answered and _NEXT.search(text, answered.end())
    return text[: match.start()] if match else text


def conclusion(text: str) -> list[str]:
    """The block of roles: after the last <answer> or "CONCLUSION:", else the whole."""
    tail = _end_of(text)
    if "<answer>" in tail:
        return [tail.rpartition("<answer>")[2].partition("</answer>")[0].strip()]
    match = None
    for match in re.finditer(r"conclusion\W*:", tail, re.I):
        pass
    return [tail[match.end() :].strip() if match else tail.strip()]


EXTRACTORS: dict[str, Extractor] = {
    "boxed": boxed, "phrase": phrase, "number_phrase": number_phrase, "last_quantity": last_quantity,
    "marked_line": marked_line, "last_math": last_math, "letter_phrase": letter_phrase, "last_letter": last_letter,
    "conclusion": conclusion, "everything": lambda text: [text], "hash_mark": hash_mark, "hedged": hedged,
    "last_amount": last_amount,
}  # fmt: skip
