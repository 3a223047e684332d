"""Finds a response's answer: the one that it states, or, where it states none, a value at its end.

The order of evidence is the same for all benchmarks:

    1. Only one part of the response is searched: what comes after `</think>`, inside the last `<answer>`, and before
       the next problem that a base model makes up.
    2. A statement is a \\boxed, a line with "####", or a sentence such as "the answer is ...". The last complete
       statement counts. One that denies its value or leaves it open gives an answer that equals nothing.
    3. Within a statement, what follows the last "=" counts; without "=", the first clause that says a value.
    4. Without a statement, the last value counts, if its sentence is finished and denies nothing.

The answer found is a piece of the response; the reading rules come after.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from agpo_core.grading.clean import fold_typed
from agpo_core.grading.language import denied_at, denies, leaves_open
from agpo_core.grading.numerals import DECIMAL, FRACTION, MIXED, POWER_OF_TEN, SIGN
from agpo_core.grading.patterns import any_of, pattern
from agpo_core.grading.words import CHINESE_NUMERAL

LONGEST = 200_000  # characters at a response's end in which the tags are searched
TAIL = 20_000  # characters at the end of the part that is left, in which an answer is searched
LONGEST_LINE = 1000  # characters of a statement
MOST = 20  # statements that are read, counted from the last

Reads = Callable[[str], bool]  # whether the profile's rules can read a piece


@dataclass(frozen=True)
class Statement:
    """A place where a response says its answer.

    Attributes:
        at: the index of its first character.
        kind: "box" (\\boxed), "cut" (a \\boxed that is not closed), "mark" (####), "cue" (a sentence), "open" (a
            sentence with "may be" or "could be") or "denied" (a statement that denies its value).
        body: what it says.
    """

    at: int
    kind: str
    body: str


# -- the part of a response that is searched

_NEXT = pattern(
    r"\n[ \t]{0,9}\n[ \t]{0,9}(?:#{1,6} |\*\*)?(?:Q|Question|Problem|Exercise|Human|User|Instruction|Input|问题"
    r"|题目) ?\d{0,3} ?[:：]"
    r"|\n[ \t]{0,9}(?:Human|User|Instruction): |<\|im_start\|>user"
)
_ANSWERED = pattern(
    r"\\boxed|answer(?: is\b|s are\b|\W{0,3}:)|####|答案 ?[是为:：]|故选|\d[^\n]{0,40}[.!。$)] ?\n", re.I
)


def statement_part(text: str) -> str:
    """The part of a response that is searched: after its thinking, inside its answer tags, before the next problem."""
    text = text[-LONGEST:]
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        return ""  # cut off while thinking
    if "<answer>" in text:
        text = text.rpartition("<answer>")[2].partition("</answer>")[0]
    answered = _ANSWERED.search(text)
    following = answered and _NEXT.search(text, answered.end() - 1)
    return text[: following.start()] if following else text


# Two asterisks for bold at the start or the end of a word; the power in 2**10 and in 2 ** 10 stays.
_BOLD = pattern(r"(?<![\w)\]}])\*\*(?=\S)|(?<=\S)\*\*(?![\w(\[{\\$-])")
_BLANKS = pattern(r"[^\S\n]++")
_LINES = pattern(r"\n{3,}+")


def end_of(text: str) -> str:
    """The end of a response without bold, each run of blanks replaced by one."""
    return _BOLD.sub("", _LINES.sub("\n\n", _BLANKS.sub(" ", fold_typed(text[-TAIL:]))))


# -- boxes

_BOX = pattern(r"\\(?:boxed|fbox)\s{0,9}(?=\{)|\\(?:boxed|fbox)\s{1,9}(?P<bare>[^\s{}$\\]{1,200})")
_JOIN = pattern(
    r"[\s$,;，；、.\\()\[\]]{0,20}(?:(?P<or>or|或|\\text\{ ?or ?\})|and|和|\\text\{ ?and ?\}|,)?[\s$,\\()\[\]]{0,9}"
    r"(?:[A-Za-z]_?\d? ?= ?)?[\s$]{0,9}"
)
_BULLET = pattern(r"[\s$.,;]{0,9}\n\s{0,9}(?:[-*•]|\d{1,2}[.)])\s{0,9}(?:\$?[A-Za-z] ?= ?)?\$?")
_BASE_BEHIND = pattern(r" ?_ ?(?:\{\d{1,2}\}|\d)")


def boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of every closed, outermost \\boxed, in one pass."""
    found, opened = [], []
    starts = {match.end(): match.start() for match in _BOX.finditer(text) if match["bare"] is None}
    i = 0
    while starts and i < len(text):
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


def _boxed(text: str) -> list[Statement]:
    """The boxes of a response; boxes with only "and", a comma or the next bullet between them are one statement."""
    found: list[Statement] = []
    groups: list[list[tuple[int, int, str]]] = []
    words: list[str] = []
    for box in boxes(text):
        between = text[groups[-1][-1][1] : box[0]] if groups else "\n"
        joined = (
            len(between) <= 40
            and between.strip(" $")
            and ("\n" not in between and _JOIN.fullmatch(between) or _BULLET.fullmatch(between))
        )
        if joined:
            groups[-1].append(box)
            words[-1] = r" \text{ or } " if _JOIN.fullmatch(between) and _JOIN.fullmatch(between)["or"] else words[-1]
        else:
            groups.append([box])
            words.append(", ")
    for group, joint in zip(groups, words, strict=True):
        start, end = group[0][0], group[-1][1]
        contents = list(dict.fromkeys(content.strip() for _, _, content in group))
        base = _BASE_BEHIND.match(text, end)  # a numeral's base may stand behind the box
        body = joint.join(contents) + (base[0] if base else "")
        found.append(Statement(start, "denied" if denied_at(text, start, end) else "box", body))
    opened = None
    for opened in _BOX.finditer(text):
        pass
    if opened and opened["bare"] is None and not any(one.at <= opened.start() < groups[-1][-1][1] for one in found):
        found.append(Statement(opened.start(), "cut", ""))  # the response ends inside a box
    return found


# -- sentences that say the answer

_LINKING = (
    r"(?P<link>is|are|was|were|equals|becomes|(?:comes|works) out to|(?:seems?|appears?|turns out|has|needs) to be"
    r"|(?:will|would|should|must|can|could|may|might)(?:n['’]t| ?not)? be)(?P<not>n['’]t\b| not\b)?"
)
_CUE = pattern(
    r"\b(?:answers?|correct (?:choice|option))\b(?:\s{1,3}(?:to|for|of|in)\b[^\n]{0,80}?|, [^,\n]{0,60},| ?\([^"
    r"()\n]{0,60}\)| (?:we|you|I|that|which)\b[^\n.:=]{0,40}?)?"
    rf"[\s\"'’)*_]{{0,4}}(?:, )?(?:(?:therefore|then|thus|hence|so|now) )?(?:{_LINKING}\b|[:=：]|-(?=\s)|(?=\n))"
    r"|(?:答案(?:应该|应)?(?P<zh>并?不是|可能|[是为选:：]|等于)|【答案】|(?<![^\s。.】])答[:：]|^A:(?=\s))",
    re.I | re.M,
)
_HEADING = pattern(r"\A[#\s*_]{0,12}(?:the |final |my )*+answers?[\s*_]{0,4}\Z", re.I)
_AFTER_LINK = pattern(r"(?:\s{0,3}[是为选:：]|\s{0,3}:|等于)++")
_MARK = pattern(r"####(?!#)[ \t]{0,9}(?P<line>[^\n]{0,1000})")
_HOPE = pattern(r"\.?\s{0,3}I hope (?:it|this) is correct", re.I)
_SENTENCE_END = pattern(r"(?<![a-zA-Z]\.[a-zA-Z])(?<!\bRs)(?<!\\)[.。!?！？](?=\s|\Z)|[。]|[;；](?=\s[A-Za-z]{2})")
_DISPLAY = pattern(r"\$\$.{1,600}?\$\$|\\\[.{1,600}?\\\]", re.S)
_INSTEAD = pattern(r",? but (?:rather )?|, (?:it is|it's) ")
_OPEN_LINK = pattern(r"can|could|may|might", re.I)


def _cued(text: str) -> list[Statement]:
    found: list[Statement] = []
    for match in list(_CUE.finditer(text))[-2 * MOST :]:
        start = match.end()
        if match[0][-1:].isalnum() and match["link"] is None and match["zh"] is None:  # the line ends after "answer"
            line = text.rfind("\n", 0, match.start()) + 1
            if not _HEADING.fullmatch(text[line:start]):
                continue
        if after := _AFTER_LINK.match(text, start):
            start = after.end()
        body = _line_from(text, start)
        if (
            match["not"]
            or match["zh"] in ("不是", "并不是")
            or "not" in (match["link"] or "")
            or "n't" in (match["link"] or "")
        ):
            kind = "denied"
            if instead := _INSTEAD.search(body):  # not B but C
                kind, body = "cue", body[instead.end() :]
        else:
            kind = "open" if match["zh"] == "可能" or (match["link"] and _OPEN_LINK.match(match["link"])) else "cue"
        if body:
            found.append(Statement(start, kind, body))
    return found


def _line_from(text: str, start: int) -> str:
    """The text from `start` to the end of its line (blank lines are skipped), or to the end of a displayed formula."""
    rest = text[start : start + LONGEST_LINE]
    rest = rest.lstrip(" *_\"'").lstrip("\n ")
    if display := _DISPLAY.match(rest):
        end = rest.find("\n", display.end())
        return rest[: end if end >= 0 else len(rest)].strip()
    line = rest.partition("\n")[0]
    if hope := _HOPE.search(rest):
        line = rest[: hope.start()]
    return line.strip()


def _marked(text: str) -> list[Statement]:
    return [
        Statement(match.start("line"), "mark", match["line"].strip())
        for match in list(_MARK.finditer(text))[-2 * MOST :]
    ]


def statements(text: str) -> list[Statement]:
    """All statements of the end of a response, in order; of a sentence with a box, the box is the statement."""
    boxed = _boxed(text)
    cued = _cued(text)
    found = list(boxed)
    for cue in cued:
        if not any(cue.at <= box.at < cue.at + len(cue.body) + 2 for box in boxed):
            found.append(cue)
    for mark in _marked(text):
        if not any(mark.at <= other.at <= mark.at + len(mark.body) + 1 for other in found):
            found.append(mark)
    return sorted(found, key=lambda one: one.at)


# -- what a sentence says

# at the start of a clause that says when or how, not what the answer is
_PREPOSITIONS = """
after over in within during for with if when by at on since before of from until given through
"""
# between "the answer is" and the answer
_INTRODUCTIONS = """
clearly simply therefore thus then hence just exactly precisely only now given_by equal_to found_to_be that there_are
there_is it_is approximately about obviously indeed also equals is are
"""
# no sentence ends in these
_WANT_MORE = """
the a an of to and or but so is are was be as by for with from in on at than then that which if when because he she it
they we i
"""
_SCALE_WORDS = any_of("hundred thousand million billion trillion dozen")
_ZH = f"[{CHINESE_NUMERAL}]"
_QUANTITY = pattern(
    rf"(?:{SIGN}|(?<![\w)\]}}])-)?(?:\\?\$|[€£¥₹])?(?<![\d.])(?:{MIXED}|{FRACTION}|百分之[\d.{CHINESE_NUMERAL}点]{{1,9}}"
    rf"|{DECIMAL}{POWER_OF_TEN}?)(?: ?\\?%|[万亿]|[kKMB]\b| (?:{_SCALE_WORDS})\b| and a half\b)?"
)
_CHINESE_QUANTITY = pattern(
    rf"{_ZH}{{1,12}}分之{_ZH}{{1,12}}|百分之{_ZH}{{1,9}}|{_ZH}{{1,20}}(?:点{_ZH}{{1,9}})?(?![分点])"
)
_LAST_EQUALS = pattern(r"(?<![<>=!:])=(?!=)|≈|\\approx(?![a-z])")
_CLAUSE = pattern(r"[,，;；](?!\d{3}(?!\d))|[(（]| (?:because|since|as|which|so|for|that is|i\.e\.)(?= )")
_ADJUNCT = pattern(
    rf"(?:{any_of(_PREPOSITIONS)})\b|如果|当|若|因为|由于|经过|共?用了?",
    re.I,
)
_TAIL_ADJUNCT = pattern(r" (?:in|after|within|over|for|during|per|by|than|of|from|out of|at|on|each|every) ", re.I)
_ADVERBS = pattern(
    rf"(?:[\s,:]|\b(?:{any_of(_INTRODUCTIONS)})\b)++",
    re.I,
)
_COPULA = pattern(r"(?<![A-Za-z])(?:is|are|equals|equal to|was|be|gives|get|becomes|为|是|等于)(?![A-Za-z])")
_BETWEEN = pattern(
    r"(?: ?[A-Za-z]{1,12})?\$?\s{0,2}(?:\b(?:or|to|and|plus|minus|times|x|by)\b|[+*×÷^:/~]|-|或者?|到|至|余|的|元|……"
    r"|\\times|\\cdot)\s{0,2}\$?"
    r"|\$?(?: [a-z]{1,12})? (?:and )?\$?"
)
_CHANGED = pattern(
    r"\$?\s{0,2}(?:squared|cubed|factorial|个?半|不到|多(?!少)|or (?:more|less|fewer)|以上|以下"
    r"|\^|\*\*|:\d|[+*/×÷](?=[\s\d$]))"
)
_MATH_SPAN = pattern(
    r"\$\$([^$]{1,600})\$\$|\$((?:[^$\\]|\\.){1,600}+)\$|\\\((.{1,600}?)\\\)|\\\[(.{1,600}?)\\\]", re.S
)
_GOES_ON = pattern(
    r"\s{0,3}(?:[;,；，、和或](?!\s{0,3}(?:i\.\s?e|which|where|so|since|as|because|when|for))|[-+*/×÷:^%=<>~?|_]|\\"
    r"(?:times|cdot|div|pm)"
    rf"|(?:{any_of('and or to out times plus minus million billion thousand hundred squared cubed percent but')})\b)"
)
_HANGING = pattern(r"(?:\b(?:and|or)|[和或])\s{0,3}\Z")  # "$5 and $6": what lies between these dollars is no formula
_CUTS = (
    pattern(r"[,，。；;]\s{0,3}(?=[A-Za-z\u4e00-\u9fff]{2}|i\.\s?e)"),
    pattern(r"\s{1,3}(?:because|since|as|which|so|for|i\.e\.)(?=\s)"),
    pattern(r"\s{1,3}\("),
)


def sentence_of(body: str) -> str:
    """A statement's first sentence. Case: "18. First 2 eggs" gives "18"; "1.5" and "4:30 p.m." stay whole."""
    for match in _SENTENCE_END.finditer(body):
        inside = body.count("$", 0, match.start()) - body.count("\\$", 0, match.start())
        if not (match[0] in "!;?" and inside % 2) and match.start():
            return body[: match.start()]
    return body


_NO_NUMERAL = pattern(r"[一两千万百十](?:[共样定起直]|\Z)")  # 一共, 一样 are no numbers


def quantities(text: str) -> list[re.Match]:
    """The numbers of a text with their signs, currencies and scales; Chinese numerals where it has no digits."""
    found = list(_QUANTITY.finditer(text))
    return found or [match for match in _CHINESE_QUANTITY.finditer(text) if not _NO_NUMERAL.match(text, match.start())]


def number_in(body: str, reads: Reads) -> tuple[str | None, bool]:
    """The number that a statement says, and whether it says any; "5 or 6" says two, so the number is None.

    Case: "The answer is $20 - $2 = $18", "in 3 days she earns $18", `答：小明有12个苹果，比小红多3个`.
    """
    body = sentence_of(body)
    tail = body
    for match in _LAST_EQUALS.finditer(body):
        tail = body[match.end() :]
    for piece in (body, tail):
        piece = (
            piece.strip().removesuffix("$")
            if piece.count("$") == 1 and not piece.lstrip(" -").startswith(("$", "\\$"))
            else piece
        )
        if reads(piece):
            return piece.strip(), True
    if denies(tail[:40]) and not quantities(tail.partition(",")[0]):
        return None, False
    clauses = [clause for clause in _CLAUSE.split(tail) if quantities(clause)]
    plain = [clause for clause in clauses if not _ADJUNCT.match(clause.strip(" $")) and not denies(clause)] or clauses
    if not plain:
        return None, False
    clause = plain[0]
    for lead in (clause, _ADVERBS.sub("", clause, count=1) if _ADVERBS.match(clause) else clause):
        if reads(lead):
            return lead.strip(), True
    return _last_of(clause, reads), True


def _last_of(clause: str, reads: Reads) -> str | None:
    """The last number of a clause, before its adverbial phrases; None where it is one of several or denied."""
    found = quantities(clause)
    kept = found[:1]
    for match in found[1:]:
        between = clause[kept[-1].end() : match.start()]
        if _BETWEEN.fullmatch(between) and not _COPULA.search(between):
            return None
        if _TAIL_ADJUNCT.search(between + " "):
            break
        kept.append(match)
    chosen = kept[-1]
    if (
        _HANGING.search(clause)
        or denied_at(clause, chosen.start(), chosen.end())
        or _CHANGED.match(clause, chosen.end())
    ):
        return None
    piece = chosen[0].strip()
    return piece if reads(piece) else None


def formula_in(body: str, reads: Reads) -> tuple[str | None, bool]:
    """The formula that a statement says, and whether it says any; the whole statement is tried, then shorter pieces.

    Case: "given by $84/2 = 42$", "The value of $x$ is 42", "$\\\\frac12$, i.e. 0.5", "4:30 p.m."
    """
    whole, sentence = body, sentence_of(body)
    tried = [sentence] if not _HOPE.search(body) else [body]
    if (span := _MATH_SPAN.match(body)) and not _GOES_ON.match(body, span.end()):
        inside = next(group for group in span.groups() if group)
        if not _HANGING.search(inside):
            tried.insert(0, inside)
    if whole != sentence and "$" in sentence and sentence.count("$") % 2:
        tried.insert(0, whole)
    tried += [sentence[: cut.start()] for cut in (found.search(sentence) for found in _CUTS) if cut]
    if (adverbs := _ADVERBS.match(sentence)) and adverbs.end() < len(sentence):
        tried += [sentence[adverbs.end() :]] + [
            sentence[adverbs.end() : cut.start()] for cut in (f.search(sentence, adverbs.end()) for f in _CUTS) if cut
        ]
    said = None
    for said in _COPULA.finditer(sentence):
        pass
    if said:
        tried.append(sentence[said.end() :])
    for piece in tried:
        if (piece := piece.strip()) and reads(piece):
            return piece, True
    spans = [next(filter(None, match.groups())) for match in _MATH_SPAN.finditer(sentence)]
    numbers = quantities(sentence)
    if denies(sentence) or leaves_open(sentence):
        return None, bool(spans or numbers)
    spanned = _MATH_SPAN.search(sentence)
    if (
        len(spans) == 1
        and reads(spans[0])
        and not _GOES_ON.match(sentence, spanned.end())
        and _WORDS_ONLY.fullmatch(_MATH_SPAN.sub("", sentence))
    ):
        return spans[0], True
    if (
        not spans
        and len(numbers) == 1
        and _WORDS_ONLY.fullmatch(sentence[: numbers[0].start()])
        and _WORDS_ONLY.fullmatch(sentence[numbers[0].end() :])
    ):
        return (numbers[0][0], True) if reads(numbers[0][0]) else (None, True)
    return None, bool(spans or numbers)


_WORDS_ONLY = pattern(r"[A-Za-z\u4e00-\u9fff\s,.'’:*]*+")

# -- letters

_LETTER_GROUP = (
    r"[A-H](?:(?:[\])}$\"”'\\]{0,3} ?(?:[,;、，和与&/|或]|,? ?and\b|,? ?or\b(?: maybe)?)? ?(?:[(\[$\"“]|\\\(|\\"
    r"(?:text|textbf|mathrm|mathbf)\{){0,2})"
    r"[A-H](?![a-z']| (?:is|was|are)\b| ?[不错]))*+"
)
_ARTICLE = any_of("because since as is and or for with by due so but from given in if when while not")
_LETTERS = rf"(?P<letters>{_LETTER_GROUP})(?![A-Za-z]|'[a-z])(?<!A(?= (?!(?:{_ARTICLE})\b)[a-z]))"
_DRESS = (
    r"(?:(?:probably|clearly|definitely|simply|likely|therefore|thus) )?"
    r"(?:[\s(\[{$\"“‘'*:]|\\\(|\\(?:text|textbf|mathrm|mathbf|boxed)\{){0,6}+(?:(?:option|choice|选项?)[\s(\[$]{0,3})?"
)
_LETTER_FIRST = pattern(_DRESS + _LETTERS)
_LOWER = pattern(r"[\s\"']{0,3}(?:\((?P<a>[a-h])\)|(?P<b>[a-h])[).]?(?=\s{0,3}\Z))")
_NAMED_LETTER = pattern(
    rf"(?:(?:leaving|leaves|left with|option|choice|is|are|be|thus|therefore|选项?|是)[\s($*:]{{1,3}}|选){_LETTERS}"
    rf"(?! ?[不错])",
    re.I,
)
_CHOSEN = pattern(
    rf"(?P<zh>(?<![不未])(?:故|应|所以|本题|则)?选(?:择|项)?[是为]?[项:：\s(（]{{0,4}}|正确的(?:选项)?[是为])"
    rf"{_LETTERS}(?! ?[不错缺])"
    rf"|(?P<zh2>(?:选项)?[(（]?(?P<l2>[A-H])[)）]?(?:选?项)?(?:是?正确|对|符合|成立))"
    rf"|\b(?:choice|option) \(?(?P<l3>[A-H])\)? (?:is|must be|seems)(?: the)? (?:correct|right|best)"
    rf"|(?<![A-Za-z])(?P<l6>[A-H]) is (?:the )?(?:correct|right|best|only)"
    rf"|\bis (?:option|choice|answer) \(?(?P<l5>[A-H])\)?(?![A-Za-z])"
    rf"|\b(?:this is|thus|so|hence|therefore|leaving|choose|pick|select|matches|be|becomes)(?: option| choice"
    rf"| answer)? \(?(?P<l4>[A-H])\)?(?=[\s.:]{{0,3}}(?:\Z|\n|\. ))",
    re.I,
)


def letters_in(body: str, reads: Reads) -> tuple[str | None, bool]:
    """The letters that a statement says, and whether it says any. Case: "D, not B"; "42, which is option D"."""
    sentence = body if _LETTER_FIRST.match(body) else sentence_of(body)
    if match := _LETTER_FIRST.match(sentence):
        return match["letters"], True
    if match := _LOWER.match(sentence):
        return (match["a"] or match["b"]).upper(), True
    chosen = None
    for match in _NAMED_LETTER.finditer(sentence):
        if not denied_at(sentence, match.start(), match.end()) and match["letters"][0].isupper():
            chosen = match["letters"]
    return chosen, chosen is not None


def _chosen(text: str) -> list[Statement]:
    """Sentences that choose a letter without the word "answer": 故选B, "Choice A is correct", "This is option (B)."."""
    found = []
    for match in list(_CHOSEN.finditer(text))[-2 * MOST :]:
        letter = match["letters"] or match["l2"] or match["l3"] or match["l4"] or match["l5"] or match["l6"]
        if letter[0].isupper() and "或" not in match[0]:
            found.append(
                Statement(match.start(), "denied" if denied_at(text, match.start(), match.start()) else "cue", letter)
            )
    return found


# -- the answer of a response


def answer(text: str, kind: str, otherwise: str, reads: Reads) -> str | None:
    """The answer of a response; None where there is none.

    Args:
        text: a response.
        kind: what an answer is: "number", "formula" or "letters".
        otherwise: the name of the rule in `LAST` that finds the answer where nothing states it.
        reads: whether the profile's rules can read a piece.
    """
    part = statement_part(text)
    tail = end_of(part)
    found = statements(tail)
    if kind == "letters":
        found = sorted([*found, *_chosen(tail)], key=lambda one: one.at)
    inside = {"number": number_in, "formula": formula_in, "letters": letters_in}[kind]
    boxed = any(one.kind == "box" for one in found)
    for one in found[: -MOST - 1 : -1]:
        said, spoke = _said(one, kind, inside, reads, boxed)
        if said is not None:
            return said
        if spoke:
            return f"not {one.body}" if one.kind in ("denied", "open") else one.body
    return LAST[otherwise](_CHECK.sub("", fold_typed(part[-TAIL:])), reads)


_HEADED = pattern(r"\d{1,2}[.)]\s{1,3}[A-Za-z*]|Step\b|[A-Za-z]", re.I)
_SAYS_VALUE = pattern(r"[\d\\$]")


def _said(one: Statement, kind: str, inside, reads: Reads, boxed: bool) -> tuple[str | None, bool]:
    """What a statement says (None: nothing that can be read), and whether the search ends with it all the same."""
    if one.kind == "denied":
        return None, kind == "letters" or bool(_SAYS_VALUE.search(one.body))
    if one.kind == "cut":
        return None, True
    if one.kind == "box":
        if kind == "letters":
            return (one.body, True) if reads(one.body) else (None, len(set(_CAPITALS.findall(one.body))) > 1)
        return (one.body if reads(one.body) or one.body else None), True
    if one.kind == "mark" and _HEADED.match(one.body):
        return None, False
    said, spoke = inside(one.body, reads)
    if one.kind == "open":
        return None, spoke
    if said is not None and boxed and kind == "formula" and not _SAYS_VALUE.search(said):
        return None, False  # words after a box, as in "the answer is clear"
    return said, spoke


_CAPITALS = pattern(r"(?<![A-Za-z\\])[A-H](?![a-z])")
# a check or an explanation that comes after the answer
_CHECK = pattern(
    r"\n[ \t]{0,9}(?:验算|检验|验证|解析|说明|check(?:ing)?|verification|explanation|reason(?:ing)?|note) ?[:：]"
    r"(?s:.*+)",
    re.I,
)
_UNFINISHED = pattern(
    rf"(?:\b(?:{any_of(_WANT_MORE)})|[=+*/×÷,(^-])\s{{0,3}}\Z",
    re.I,
)
_FINISHED = pattern(r"[.!?。！？)\]}$`*✓√\d%°]\s{0,3}\Z")
_TOMBSTONE = pattern(r"\$?\\(?:blacksquare|square|Box|qed)\b\$?")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in _BOLD.sub("", text).splitlines() if line.strip()]


def _cut_off(line: str, end: int) -> bool:
    """Whether a line stops in mid-sentence: after a word that needs another, or, without a closing mark, more than four
    words after `end`.
    """
    if _UNFINISHED.search(line):
        return True
    return not _FINISHED.search(line) and len(line[end:].split()) > 4


def last_number(text: str, reads: Reads) -> str | None:
    """The last number of a response, with its scale. Case: GSM8K `1,450,000` is "$1.45 million"."""
    lines = _lines(text)
    if lines and _UNFINISHED.search(lines[-1]):
        return None
    for line in reversed(lines):
        sentences = [piece for piece in _SENTENCE_SPLIT.split(line) if piece.strip()]
        for sentence in reversed(sentences):
            if found := quantities(sentence):
                last = found[-1]
                if (
                    line == lines[-1]
                    and sentence is sentences[-1]
                    and _cut_off(line, line.rfind(last[0]) + len(last[0]))
                ):
                    return None
                if denied_at(sentence, last.start(), last.end()):
                    return None
                before = sentence[found[-2].end() : last.start()] if len(found) > 1 else ""
                if _BETWEEN.fullmatch(before) and ("or" in before or "或" in before):
                    return None
                return last[0].strip() if reads(last[0].strip()) else None
    return None


_SENTENCE_SPLIT = pattern(r"(?<=[.!?])\s{1,3}(?=[A-Z$\\*(])|(?<=[。！？])")


_EMPHASIS = pattern(r"\*\*([^*]{1,400})\*\*|`([^`]{1,400})`|[\"“]([^\"“”]{1,60})[\"”]")


def last_math(text: str, reads: Reads) -> str | None:
    """The last formula of the last line, between dollars or brackets; else the last bold, code or quoted text there;
    else the whole of a response that is one short line.
    """
    lines = _lines(text)
    if not lines:
        return None
    line = _TOMBSTONE.sub("", lines[-1][-2 * LONGEST_LINE :])
    spans = list(_MATH_SPAN.finditer(line))
    marked = _EMPHASIS.findall(text.rstrip().rpartition("\n")[2])
    if not spans and marked:
        found = next(filter(None, marked[-1]))
        start, end = line.rfind(found), line.rfind(found) + len(found)
    elif spans:
        found, start, end = next(filter(None, spans[-1].groups())), spans[-1].start(), spans[-1].end()
    elif len(lines) == 1 and len(line) < 200 and (" " not in line or _SAYS_VALUE.search(line)):
        found, start, end = line, 0, len(line)
    else:
        return None
    if _cut_off(line, end) or denied_at(line, start, end) or (spans and leaves_open(line)):
        return None
    return found if reads(found) else None


def last_math_or_number(text: str, reads: Reads) -> str | None:
    """The last formula, else the last number."""
    return last_math(text, reads) or last_number(text, reads)


_ALONE = pattern(r"[(（\[*\s]{0,4}([A-H])[)）\].:*\s]{0,4}")
_HEADS = pattern(r"[(\[]?([A-H])[)\].:]\s{1,3}\S")
_ENDS = pattern(r"[:：=] ?\(?([A-H])\)?\.?\Z")
_ROW = pattern(r"[A-H](?:[,、和与 ]{0,3}[A-H])++")
_BRACKETED = pattern(r"\(([A-H])\)|\*\*\(?([A-H])\)?\.?\*\*")


def last_letter(text: str, reads: Reads) -> str | None:
    """The letter that the last line consists of, or that starts an option there: "C", "(C)", "C. 42". Otherwise the
    one letter in brackets in the last line; otherwise the letter that the first line consists of.
    """
    lines = _lines(text) or [""]
    if (
        match := _ALONE.fullmatch(lines[-1])
        or _HEADS.match(lines[-1])
        or _ENDS.search(lines[-1], max(0, len(lines[-1]) - 9))
    ):
        return match[1]
    if len(lines) == 1 and _ROW.fullmatch(lines[0]):
        return lines[0]
    found = {match[1] or match[2] for match in _BRACKETED.finditer(lines[-1])}
    if found:
        return found.pop() if len(found) == 1 and not denies(lines[-1]) else None
    match = _ALONE.fullmatch(lines[0])
    return match[1] if match else None


_CONCLUSION = pattern(r"conclusion\W{0,9}:", re.I)


def conclusion(text: str) -> str:
    """The block of roles: what follows the last <answer> or "CONCLUSION:", or else the whole response."""
    tail = end_of(statement_part(text))
    start = 0
    for match in _CONCLUSION.finditer(tail):
        start = match.end()
    return tail[start:].strip()


LAST: dict[str, Callable[[str, Reads], str | None]] = {
    "last_number": last_number, "last_math": last_math, "last_math_or_number": last_math_or_number,
    "last_letter": last_letter,
}  # fmt: skip
