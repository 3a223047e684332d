"""A strict parser of mathematical expressions in LaTeX or plain text: it reads the whole string or nothing.

It yields a tree of tuples and computes nothing. Public LaTeX parsers stop at the first thing they do not know and
return what they have so far (`1,-2` becomes 1, `4.5 m` becomes 4.5 m or 4.5), so a grader built on them accepts half
answers. This parser accounts for every character, and refuses a string beyond its limits of depth and size.

Nodes: ("num", Fraction), ("sym", name), ("add", terms), ("mul", factors), ("pow", base, exponent), ("neg", x),
("div", a, b), ("pm", x, sign), ("call", name, arguments), ("unknown", name, arguments).
"""

from __future__ import annotations

import re
from fractions import Fraction

from agpo_core.grading.patterns import pattern

MAX_DEPTH, MAX_NODES = 40, 600
MAX_HEIGHT = 100  # of the tree, also of a long chain a/b/c/...; a walk through it takes Python frames for each level
MAX_DIGITS = 1200  # of one literal; no problem has an answer of 10^6 digits
MAX_EXPONENT = 400  # of scientific notation

Node = tuple


class Unreadable(ValueError):
    """The string is not an expression that this parser knows."""


FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "arcsin", "arccos", "arctan", "arccot",
    "ln",
    "log", "lg", "exp", "sqrt", "cbrt", "abs", "min", "max", "gcd", "lcm", "floor", "ceil", "factorial", "binom",
    "cis", "factorial2",
}  # fmt: skip
_ALIASES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "arctg": "arctan",
    "arcctg": "arccot",
    "cosec": "csc", "ceiling": "ceil", "binomial": "binom", "comb": "binom", "choose": "binom",
}  # fmt: skip
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_SYMBOLS = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "rho",
    "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma",
    "Upsilon", "Phi", "Psi", "Omega", "ell", "hbar", "partial", "triangle", "angle",
}  # fmt: skip
_ACCENTS = {"dot", "ddot", "hat", "bar", "vec", "tilde", "overline", "overrightarrow", "widehat", "underline"}
_WORDS = sorted(FUNCTIONS | set(_ALIASES) | {"pi", "infty", "infinity", "inf", "theta"}, key=len, reverse=True)
# a function's name may be joined to the one letter that it is applied to: cotx
_WORD = pattern(
    r"(?:np\.|math\.)?("
    + "|".join(_WORDS)
    + r"|log(?=\d{1,2} ?\())(?![a-z])|(arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|ln)(?=[a-z](?![a-z]))"
)
_PROSE = pattern(r"[a-z]{4}|[A-Za-z]{5}")  # abc is a product, and so is SRMC; "total" is a word
_NUMBER = pattern(r"(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,3}(?![\d.A-Za-z^]))?")
_DERIVATIVE = pattern(
    r"\\frac ?\{ ?(?:d|\\partial) ?(\^ ?\{?\d\}?)? ?((?:[^{}]|\{[^{}]*+\})*+)\} ?"
    r"\{ ?(?:d|\\partial) ?((?:[^{}]|\{[^{}]*+\})++)\}"
)
_REPEATING = pattern(r"(\d{0,99}+)\.(\d{0,99}+)\\(?:overline|dot|bar) ?\{?(\d++)\}?")
_COMMAND = pattern(r"\\([A-Za-z]++)")
_PRIMES = pattern(r"\{? ?((?:\\prime ?)++)\}?")
_QUOTES = pattern(r"'++")
_INTEGER = pattern(r"\d++")
_ROMAN = pattern(r"\{ *+([A-Za-z]++) *+\}")
_ACCENTED = pattern(r" ?\{ *+(\\?[A-Za-z]++|[A-Z ]{1,40}) *+\}| ?([A-Za-z])")
_SUBSCRIPT = pattern(r" ?\{((?:[^{}]|\{[^{}]*+\})*+)\}| ?(\\?[A-Za-z]++|\d)")
_SUBSCRIPT_MARKUP = pattern(r"\\(?:text|mathrm)\b|[ {}]")
_CALLED = pattern(r"\( *+(-?\d++(?:\.\d++)?) *+\)")
_BRACES = str.maketrans("", "", " {}")
_MULTIPLY = ("\\cdot", "\\times", "*", "\\ast", "\\div", "/", "\\bullet")


def parse(text: str) -> Node:
    """The tree of one expression.

    Raises:
        Unreadable: the string as a whole is not an expression, or it exceeds a limit.
    """
    reader = _Reader(text)
    node = reader.sum(0)
    reader.skip()
    if reader.at < len(text):
        raise Unreadable(f"unread from {text[reader.at : reader.at + 10]!r}")
    return node


class _Reader:
    """A recursive-descent parser; `bars` is 1 inside an absolute value whose bar is open, else 0."""

    def __init__(self, text: str):
        self.text, self.at, self.bars = text, 0, 0
        self.heights: dict[int, tuple[int, Node]] = {}  # by id; keeping the node keeps its id from reuse

    # -- scanning

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1

    def peek(self, *tokens: str) -> str | None:
        """The first of the tokens that stands here; a token such as \\in does not match the start of \\infty."""
        self.skip()
        for token in tokens:
            if self.text.startswith(token, self.at):
                end = self.at + len(token)
                if not (token[0] == "\\" and token[-1].isalpha() and self.text[end : end + 1].isalpha()):
                    return token
        return None

    def take(self, *tokens: str) -> str | None:
        token = self.peek(*tokens)
        self.at += len(token or "")
        return token

    def need(self, token: str) -> None:
        if self.take(token) is None:
            raise Unreadable(f"no {token!r} at {self.at}")

    def command(self) -> str | None:
        """The name of the LaTeX command that stands here."""
        self.skip()
        match = _COMMAND.match(self.text, self.at)
        return match[1] if match else None

    def match(self, token) -> re.Match | None:
        """What a pattern matches here; the reader moves past it."""
        self.skip()
        found = token.match(self.text, self.at)
        self.at += len(found[0]) if found else 0
        return found

    def node(self, *parts) -> Node:
        below = [part for part in parts if isinstance(part, tuple)]
        below += [inner for part in below if id(part) not in self.heights for inner in part]
        height = 1 + max((self.heights[id(part)][0] for part in below if id(part) in self.heights), default=0)
        self.heights[id(parts)] = height, parts
        if height > MAX_HEIGHT or len(self.heights) > MAX_NODES:
            raise Unreadable("too large")
        return parts

    # -- grammar, from the loosest binding to the tightest

    def sum(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable("too deep")
        terms = []
        sign = self.take("+", "-", "\\pm", "\\mp")
        while True:
            term = self.product(depth + 1)
            if sign == "-":
                term = self.node("neg", term)
            elif sign in ("\\pm", "\\mp"):
                term = self.node("pm", term, 1 if sign == "\\pm" else -1)
            terms.append(term)
            sign = self.take("+", "-", "\\pm", "\\mp")
            if sign is None:
                return terms[0] if len(terms) == 1 else self.node("add", tuple(terms))

    def product(self, depth: int) -> Node:
        node = self.signed(depth)
        while True:
            operator = self.take(*_MULTIPLY)
            if operator in ("/", "\\div"):
                node = self.node("div", node, self.signed(depth))
            elif operator:
                if operator == "*" and self.peek("*"):  # Python's power, as in OCW's golds
                    self.at += 1
                    node = self.node("pow", node, self.signed(depth))
                else:
                    node = self.node("mul", (node, self.signed(depth)))
            elif self.starts_factor():
                self.refuse_two_numbers()
                node = self.node("mul", (node, self.power(depth)))
            else:
                return node

    def refuse_two_numbers(self) -> None:
        """Refuse two numbers side by side: `3 4` is no product; nor is `3 4/5`, unless a rule read a mixed number."""
        before = self.text[max(0, self.at - 9) : self.at].rstrip()
        if self.text[self.at].isdigit() and before and (before[-1].isdigit() or before[-1] == "."):
            raise Unreadable("two numbers side by side")

    def starts_factor(self) -> bool:
        self.skip()
        if self.at >= len(self.text):
            return False
        char = self.text[self.at]
        if char == "|":
            return self.bars == 0
        if char == "\\":
            name = self.command()
            return name is not None and name not in {
                "cdot",
                "times",
                "div",
                "pm",
                "mp",
                "rfloor",
                "rceil",
                "end",
                "vert",
            }
        return (char.isascii() and char.isalnum()) or char in "({[."

    def signed(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable("too deep")
        if self.take("-"):
            return self.node("neg", self.signed(depth + 1))
        if self.take("+"):
            return self.signed(depth + 1)
        return self.power(depth)

    def power(self, depth: int) -> Node:
        base = self.atom(depth + 1)
        while True:
            if self.take("!"):
                base = self.node("call", "factorial2" if self.take("!") else "factorial", (base,))
            elif self.peek("^"):
                self.at += 1
                if self.take("\\circ", "{\\circ}", "{ \\circ }", "{\\circ }", "{ \\circ}"):
                    base = self.node("mul", (base, ("sym", "°")))
                elif primes := self.match(_PRIMES):
                    base = self.primed(base, primes[1].count("\\prime"))
                else:
                    base = self.node("pow", base, self.exponent(depth + 1))
            elif self.peek("**"):
                self.at += 2
                base = self.node("pow", base, self.signed(depth + 1))
            elif primes := self.match(_QUOTES):
                base = self.primed(base, len(primes[0]))
            else:
                return base

    def primed(self, base: Node, count: int) -> Node:
        if base[0] != "sym":
            raise Unreadable("a prime on what is no name")
        return ("sym", base[1] + "'" * count)

    def exponent(self, depth: int) -> Node:
        if self.take("-"):
            return self.node("neg", self.exponent(depth + 1))
        if self.peek("{", "("):
            return self.atom(depth)
        if number := self.match(_INTEGER):
            return self.number(number[0])
        return self.atom(depth)

    def group(self, depth: int) -> Node:
        """An argument of a command: a braced expression or one character (`\\frac43`, `\\frac 59`)."""
        self.skip()
        if self.peek("{"):
            return self.atom(depth)
        if self.at < len(self.text) and self.text[self.at].isdigit():
            self.at += 1
            return self.number(self.text[self.at - 1])
        return self.atom(depth)

    def number(self, literal: str) -> Node:
        if len(literal) > MAX_DIGITS:
            raise Unreadable("a number of too many digits")
        digits, _, exponent = literal.lower().partition("e")
        if exponent[:1] in ("+", "-") and len(exponent) == 2 and digits.isdigit() and digits != "1":
            # 2e-1 is twice the constant e, minus one; in 6.6e-34 and 1e-5, e stands for a power of ten
            return self.node("add", (("mul", (("num", Fraction(digits)), ("sym", "e"))), ("num", Fraction(exponent))))
        if exponent and abs(int(exponent)) > MAX_EXPONENT:
            raise Unreadable("an exponent of too many digits")
        return self.node("num", Fraction(literal))

    def atom(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable("too deep")
        self.skip()
        if self.at >= len(self.text):
            raise Unreadable("ends too early")
        if repeating := self.match(_REPEATING):
            return self.repeating(*repeating.groups())
        if number := self.match(_NUMBER):
            return self.number(number[0])
        char = self.text[self.at]
        if char in "({[":
            return self.bracketed(char, depth)
        if char == "|":
            return self.absolute("|", depth)
        if char == "\\":
            return self.commanded(depth)
        if word := self.match(_WORD):
            return self.word(word[1] or word[2], depth)
        if char.isascii() and char.isalpha():
            if _PROSE.match(self.text, self.at):
                raise Unreadable("a word")
            self.at += 1
            return self.named(char, depth)
        raise Unreadable(f"unknown {char!r}")

    def repeating(self, whole: str, fixed: str, block: str) -> Node:
        """A repeating decimal as a fraction: 0.1\\overline{6} is 1/6."""
        if len(whole + fixed + block) > MAX_DIGITS:
            raise Unreadable("a number of too many digits")
        scale = 10 ** len(fixed)
        value = Fraction(int(whole + fixed or "0"), scale) + Fraction(int(block), scale * (10 ** len(block) - 1))
        return self.node("num", value)

    def bracketed(self, opening: str, depth: int) -> Node:
        closing = {"(": ")", "{": "}", "[": "]"}[opening]
        self.at += 1
        bars, self.bars = self.bars, 0
        node = self.sum(depth + 1)
        if opening == "{" and self.take("\\choose"):
            node = self.node("call", "binom", (node, self.sum(depth + 1)))
        self.need(closing)
        self.bars = bars
        return node

    def absolute(self, bar: str, depth: int) -> Node:
        self.at += len(bar)
        bars, self.bars = self.bars, 1
        node = self.sum(depth + 1)
        self.need(bar)
        self.bars = bars
        return self.node("call", "abs", (node,))

    def word(self, name: str, depth: int) -> Node:
        """A function or constant spelled out without a backslash, as programs and chat models write them."""
        name = _ALIASES.get(name, name)
        if name == "log" and (base := self.match(_INTEGER)):  # log2(5)
            return self.node("call", "log", (self.argument(name, depth)[0], self.number(base[0])))
        if name in FUNCTIONS:
            return self.applied(name, depth)
        return self.named({"infty": "infinity", "inf": "infinity"}.get(name, name), depth)

    def commanded(self, depth: int) -> Node:
        if derivative := self.match(_DERIVATIVE):
            order, of, by = derivative.groups()
            if not of.strip():
                raise Unreadable("a derivative to carry out")
            return self.node("sym", f"d{order or ''}{of}/d{by}".translate(_BRACES))
        name = self.command()
        if name is None:
            raise Unreadable("an unknown command")
        self.at += 1 + len(name)
        if name == "frac":
            return self.node("div", self.group(depth + 1), self.group(depth + 1))
        if name == "binom":
            return self.node("call", "binom", (self.group(depth + 1), self.group(depth + 1)))
        if name == "sqrt":
            return self.root(depth)
        if name in ("lfloor", "lceil"):
            inner = self.sum(depth + 1)
            self.need("\\rfloor" if name == "lfloor" else "\\rceil")
            return self.node("call", name[1:], (inner,))
        if name in ("mathrm", "text", "operatorname", "mathbb", "mathcal"):
            return self.roman(name, depth)
        if name in _ACCENTS:
            return self.accented(name, depth)
        if name == "circ":
            return self.node("sym", "°")
        if name == "infty":
            return self.node("sym", "infinity")
        if name == "pi" or name in _SYMBOLS:
            return self.named(name, depth)
        name = _ALIASES.get(name, name)
        if name in FUNCTIONS:
            return self.applied(name, depth)
        raise Unreadable(f"unknown command {name}")

    def root(self, depth: int) -> Node:
        self.skip()
        index = None
        if self.take("["):
            index = self.sum(depth + 1)
            self.need("]")
        self.skip()
        if number := self.match(_INTEGER):
            inner = self.number(number[0])
        else:
            inner = self.atom(depth + 1)
        return self.node("call", "root", (inner, index or ("num", Fraction(2))))

    def roman(self, command: str, depth: int) -> Node:
        """The content of \\mathrm{e} or \\operatorname{arcsin}: one letter or the name of a function, nothing else."""
        match = self.match(_ROMAN)
        if match is None:
            if self.peek("{") and command == "mathrm":
                return self.bracketed("{", depth)  # \\mathbf{\\frac{3}{4}}
            raise Unreadable("text inside an expression")
        name = _ALIASES.get(match[1], match[1])
        if name in FUNCTIONS:
            return self.applied(name, depth)
        if len(name) == 1:
            return self.named(name, depth)
        raise Unreadable("text inside an expression")

    def accented(self, accent: str, depth: int) -> Node:
        match = self.match(_ACCENTED)
        if match is None:
            raise Unreadable("an accent on an expression")
        base = (match[1] or match[2]).lstrip("\\").replace(" ", "")
        return self.named(f"{accent} {base}", depth)

    def named(self, name: str, depth: int) -> Node:
        """A name with its subscript; a name with a number in parentheses is the value of an unknown function."""
        if self.peek("_"):
            self.at += 1
            match = self.match(_SUBSCRIPT)
            if match is None:
                raise Unreadable("a subscript that cannot be read")
            subscript = match[1] or match[2] or ""
            name += "_" + _SUBSCRIPT_MARKUP.sub("", subscript)
        # I(0) is the value of I at 0. As a product it would be 0 and so equal every other answer of value 0.
        called = self.match(_CALLED)
        if called and name not in ("pi", "e", "i"):
            return self.node("unknown", name, (("num", Fraction(called[1])),))
        if called:
            return self.node("mul", (("sym", name), ("num", Fraction(called[1]))))
        return self.node("sym", name)

    def applied(self, name: str, depth: int) -> Node:
        if name == "sqrt":
            return self.root(depth)
        if name == "log" and self.peek("_"):
            self.at += 1
            base = self.group(depth + 1)
            return self.node("call", "log", (self.argument(name, depth)[0], base))
        power = None
        if self.peek("^"):
            self.at += 1
            power = self.exponent(depth + 1)
            if power in (("neg", ("num", Fraction(1))), ("num", Fraction(-1))) and name in _INVERSES:
                name, power = _INVERSES[name], None
        arguments = self.argument(name, depth)
        node = self.node("call", name, arguments)
        return node if power is None else self.node("pow", node, power)

    def argument(self, name: str, depth: int) -> tuple[Node, ...]:
        """A function's arguments: what is in brackets, or the product up to the next sign, slash or function."""
        self.skip()
        bracket = self.peek("(", "{", "[", "\\{")
        if bracket is not None:
            closing = {"(": ")", "{": "}", "[": "]", "\\{": "\\}"}[bracket]
            self.at += len(bracket)
            bars, self.bars = self.bars, 0
            arguments = [self.sum(depth + 1)]
            while self.take(","):
                arguments.append(self.sum(depth + 1))
            self.need(closing)
            self.bars = bars
            return tuple(arguments)
        if self.take("-"):
            factors = [self.node("neg", self.power(depth + 1))]
        else:
            factors = [self.power(depth + 1)]
        while self.starts_factor() and not self.peek("(", "{", "[", "|") and self.command() not in FUNCTIONS:
            if _WORD.match(self.text, self.at) and not self.peek("pi", "theta"):
                break
            self.refuse_two_numbers()
            factors.append(self.power(depth + 1))
        return (factors[0] if len(factors) == 1 else self.node("mul", tuple(factors)),)
