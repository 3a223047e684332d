"""The key of an expression: two expressions share it exactly when they are the same number or function.

A constant is computed exactly, as a rational number, where that is possible; otherwise to 120 digits, of which 45 make
the key. An expression with variables is computed at fixed points (the identity test of Schwartz and Zippel, applied
beyond polynomials), and its key is a digest of those values. So two answers are equal when their keys are equal, which
makes the relation symmetric and transitive and gives every answer a vote of its own.

No computation here can run on without end: exact numbers are bounded in bits, and the others have a fixed precision. An
expression that leaves these bounds has no value (`Unbounded`). Neither has a sum with a term too small to show in 45
digits, such as 2^100000 + 1. Other numbers that agree to 45 digits would be taken as equal, but no answer that a model
can find comes so close by chance.
"""

from __future__ import annotations

import hashlib
import math
import threading
from fractions import Fraction
from functools import lru_cache

from mpmath import MPContext

from agpo_core.grading.latex import Node, Unreadable

DIGITS, KEY_DIGITS = 120, 45
EXACT_BITS = 100_000  # 4048! has 43,000 bits; a larger rational is computed to 120 digits
MAX_INTEGER = 5000  # the largest integer with an exact factorial; binomials go to twice that
WORK = 3_000_000  # bits of exact arithmetic for one answer: some tenths of a second
NEGLIGIBLE = 95  # a sum this many digits below its largest term counts as zero: its terms cancelled
INTEGER_NAMES = frozenset()  # variables taken as integers, for which (-1)^n is cos(n pi) and sqrt(1/n) is 1/sqrt(n)
WHOLE = (6, 7, 10, 11, 13, 15, 18, 19, 22, 26, 31)  # their values: even and odd, so that (-1)^n is not -1; no squares
# Points of both signs, near and far, so that |x| differs from x, |x-20| from 20-x, and a root's domain shows.
POINTS = 7
# A few points may all lie on one piece of a piecewise function, so these are computed at more points. No expression
# without them has as many values, and so none shares their keys.
PIECEWISE = frozenset({"min", "max", "floor", "ceil", "gcd", "lcm"})
PIECEWISE_POINTS = 40
CONSTANTS = frozenset({"pi", "e", "i", "°", "infinity"})

_local = threading.local()  # one mpmath context a thread: its functions change the precision while they run


class Unbounded(Unreadable):
    """The value does not exist, or it is beyond the bounds of this module."""


def _mp() -> MPContext:
    if not hasattr(_local, "mp"):
        _local.mp = MPContext()
        _local.mp.dps = DIGITS
        _local.tiny = _local.mp.mpf(10) ** -NEGLIGIBLE
        _local.lost = _local.mp.mpf(10) ** (2 - KEY_DIGITS)
    return _local.mp


def free_names(node: Node) -> frozenset[str]:
    """The variables of an expression, and "i" where it contains the imaginary unit."""
    if node[0] == "sym":
        return frozenset() if node[1] in CONSTANTS - {"i"} else frozenset((node[1],))
    if node[0] == "unknown":
        return frozenset((f"{node[1]}()",))
    names: frozenset[str] = frozenset()
    for part in node[1:]:
        if isinstance(part, tuple):
            names |= free_names(part) if part and isinstance(part[0], str) else _free_in(part)
    return names


def _free_in(parts: tuple) -> frozenset[str]:
    return frozenset().union(*(free_names(part) for part in parts)) if parts else frozenset()


def has_sign_choice(node: Node) -> bool:
    """Whether the expression contains a plus-minus sign."""
    if node[0] == "pm":
        return True
    return any(
        has_sign_choice(part) if part and isinstance(part[0], str) else any(has_sign_choice(p) for p in part)
        for part in node[1:]
        if isinstance(part, tuple)
    )


def calls(node: Node, functions: frozenset[str]) -> bool:
    """Whether the expression applies one of these functions."""
    if node[0] == "call" and node[1] in functions:
        return True
    return any(
        calls(part, functions) if part and isinstance(part[0], str) else any(calls(p, functions) for p in part)
        for part in node[1:]
        if isinstance(part, tuple)
    )


def allow() -> None:
    """Begin a new answer: reset the count of exact arithmetic, of which all keys of one answer share `WORK` bits."""
    _local.work = 0


def key(node: Node, sign: int = 1) -> str:
    """The expression's key; `sign` (+1 or -1) is what a plus-minus stands for.

    Raises:
        Unbounded: the expression has no value, or none within the bounds.
    """
    if not free_names(node) - {"i"}:
        return number_key(evaluate(node, sign=sign))
    values = sample(node, sign)
    defined = [value for value in values if value is not None]
    if len({_digits(value) for value in defined}) == 1 and len(defined) == len(values):
        return number_key(defined[0])  # the variables cancel: sin^2 + cos^2
    return f"f:{_digest(values)}"


def equation_key(left: Node, right: Node, sign: int = 1) -> str:
    """One key for an equation and all its multiples, in whatever order its terms stand.

    Case: `2x+y+1=0` is `y=-2x-1`, and `5x-7y+11z-4=0` is not `5x-7y+11z+4=0`.
    """
    numerator, _ = over_one_line(("add", (left, ("neg", right))))
    values = sample(numerator, sign)
    scale = next((value for value in values if value is not None and value != 0), None)
    if scale is None:
        raise Unbounded("the equation says nothing")
    return f"eq:{_digest([None if value is None else divide(value, scale) for value in values])}"


def over_one_line(node: Node) -> tuple[Node, Node]:
    """Numerator and denominator of an expression: an equation then equals its form without fractions."""
    one = ("num", Fraction(1))
    kind = node[0]
    if kind == "div":
        (a, b), (c, d) = over_one_line(node[1]), over_one_line(node[2])
        return ("mul", (a, d)), ("mul", (b, c))
    if kind in ("neg", "pm"):
        top, bottom = over_one_line(node[1])
        return (kind, top, *node[2:]), bottom
    if kind == "mul":
        pairs = [over_one_line(factor) for factor in node[1]]
        return ("mul", tuple(p[0] for p in pairs)), ("mul", tuple(p[1] for p in pairs))
    if kind == "add":
        top, bottom = over_one_line(node[1][0])
        for term in node[1][1:]:
            over, under = over_one_line(term)
            if not free_names(under):  # a constant denominator needs no common one
                top = ("add", (top, ("mul", (bottom, ("div", over, under)))))
            elif under == bottom:
                top = ("add", (top, over))
            elif not free_names(bottom):
                top, bottom = ("add", (("mul", (("div", top, bottom), under)), over)), under
            else:
                top, bottom = ("add", (("mul", (top, under)), ("mul", (over, bottom)))), ("mul", (bottom, under))
        return top, bottom
    return node, one


def sample(node: Node, sign: int = 1) -> list:
    """The expression's values at the fixed points, with None where it is not a real number.

    An expression that is real at fewer than two points, or that contains the imaginary unit, is computed as complex.

    Raises:
        Unbounded: the expression has a value at fewer than two points.
    """
    names = free_names(node)
    count = PIECEWISE_POINTS if calls(node, PIECEWISE) else POINTS
    for real in (True, False):
        if real and "i" in names:
            continue
        values = []
        for point in range(count):
            try:
                values.append(evaluate(node, point, sign, real))
            except Unbounded:
                values.append(None)
        if sum(value is not None for value in values) >= 2:
            return values
    raise Unbounded("undefined at the sample points")


@lru_cache(maxsize=4096)
def coordinate(name: str, point: int) -> Fraction:
    """The value of a variable at a fixed point; it is the same on every machine and in every answer."""
    hashed = int.from_bytes(hashlib.sha256(f"{name}@{point}".encode()).digest()[:6], "big")
    if name in INTEGER_NAMES:
        return Fraction(WHOLE[hashed % len(WHOLE)])
    low, width = ((1, 35), (38, 70), (120, 200), (40, 80), (1, 35), (1100, 900), (1100, 900))[point % POINTS]
    value = Fraction(2 * (low + hashed % width) + 1, 74)  # an even denominator: (-1)^n is no real number there
    negative = point % POINTS in (3, 6) or (point % POINTS == 4 and hashed >> 20 & 1)
    return -value if negative else value


def evaluate(node: Node, point: int | None = None, sign: int = 1, real: bool = False):
    """The expression's value: a Fraction where it is exact, else a real or complex number of 120 digits.

    Args:
        node: an expression.
        point: the index of the fixed point, from 0; None for an expression without variables.
        sign: +1 or -1, what a plus-minus stands for.
        real: whether roots and logarithms that contain a variable must be real.

    Raises:
        Unbounded: no value, or none within the bounds.
    """
    kind = node[0]
    if kind == "num":
        return node[1]
    if kind == "sym":
        return _symbol(node[1], point)
    if kind == "unknown":
        argument = number_key(evaluate(node[2][0], point, sign, real))
        return coordinate(f"{node[1]}({argument})", point or 0)
    if kind == "neg":
        return -evaluate(node[1], point, sign, real)
    if kind == "pm":
        value = evaluate(node[1], point, sign, real)
        return value if node[2] * sign > 0 else -value
    if kind == "add":
        terms = [evaluate(term, point, sign, real) for term in node[1]]
        total = add(terms)
        if point is None and _hidden(terms, total):
            raise Unbounded("a term too small beside the others to show in the key")
        return total
    if kind == "mul":
        value = Fraction(1)
        for factor in node[1]:
            value = multiply(value, evaluate(factor, point, sign, real))
        return value
    if kind == "div":
        return divide(evaluate(node[1], point, sign, real), evaluate(node[2], point, sign, real))
    real = real and bool(free_names(node))  # sqrt(-6) alone is imaginary; sqrt(x) ends at zero
    if kind == "pow":
        return _power(evaluate(node[1], point, sign, real), evaluate(node[2], point, sign, real), real)
    if kind == "call":
        return _call(node[1], [evaluate(argument, point, sign, real) for argument in node[2]], real)
    raise Unbounded(f"no value for {kind}")


def _symbol(name: str, point: int | None):
    mp = _mp()
    if name == "pi":
        return +mp.pi
    if name == "e":
        return +mp.e
    if name == "i":
        return mp.mpc(0, 1)
    if name == "°":
        return mp.pi / 180
    if name == "infinity" or point is None:
        raise Unbounded(f"{name} is no number")
    return coordinate(name, point)


# -- arithmetic: exact where possible, else to 120 digits, where parts that cancelled count as zero


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _exact(*operands) -> bool:
    """Whether an operation on these can be exact: all are rationals and they have few enough bits together."""
    bits = 0
    for operand in operands:
        if not isinstance(operand, Fraction):
            return False
        bits += _bits(operand)
    if bits > EXACT_BITS:
        return False
    if bits > 2048:
        _local.work = getattr(_local, "work", 0) + bits
        if _local.work > WORK:
            raise Unbounded("too much exact arithmetic")
    return True


def _charged(whole: int) -> Fraction:
    """A whole number as a Fraction; its bits are added to the work counted for this answer."""
    value = Fraction(whole)
    _exact(value)
    return value


def as_float(value):
    """A Fraction as a real of 120 digits; anything else as it is."""
    if not isinstance(value, Fraction):
        return value
    mp = _mp()
    return mp.mpf(value.numerator) / mp.mpf(value.denominator)


def _settle(value, scale):
    """The value without a real or imaginary part that is negligible at the scale of its computation."""
    mp = _mp()
    limit = scale * _local.tiny
    if isinstance(value, mp.mpc):
        re, im = value.real, value.imag
        if abs(im) <= limit:
            return _settle(re, scale)
        return mp.mpc(0, im) if abs(re) <= limit else value
    if not mp.isfinite(value):
        raise Unbounded("infinite")
    return Fraction(0) if abs(value) <= limit else value


def add(terms: list):
    if _exact(*terms):
        return sum(terms, Fraction(0))
    terms = [as_float(term) for term in terms]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return _settle(total, max(abs(term) for term in terms))


def _hidden(terms: list, total) -> bool:
    """Whether a sum that is not exact has a term too small to show in its key. (One point of a function may have.)"""
    if isinstance(total, Fraction):
        return False
    limit = abs(total) * _local.lost
    return any(0 < abs(as_float(term)) < limit for term in terms)


def multiply(a, b):
    if _exact(a, b):
        return a * b
    if a == 0 or b == 0:
        return Fraction(0)
    product = as_float(a) * as_float(b)
    return _settle(product, abs(product))


def divide(a, b):
    if b == 0:
        raise Unbounded("division by zero")
    if _exact(a, b):
        return a / b
    if a == 0:
        return Fraction(0)
    quotient = as_float(a) / as_float(b)
    return _settle(quotient, abs(quotient))


def _power(base, exponent, real: bool):
    if base == 0:
        if isinstance(exponent, Fraction) and exponent > 0:
            return Fraction(0)
        raise Unbounded("a power of zero")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        return _integer_power(base, exponent.numerator)
    if isinstance(exponent, Fraction) and isinstance(base, Fraction) and base > 0:
        root = _exact_root(base, exponent.denominator)
        if root is not None:
            return _integer_power(root, exponent.numerator)
    mp = _mp()
    base, exact = as_float(base), exponent
    if isinstance(base, mp.mpf) and base < 0:
        if isinstance(exact, Fraction) and exact.denominator % 2:  # (-8)^(1/3) is -2, as taught in schools
            value = _power(-base, exact, real)
            return -value if exact.numerator % 2 else value
        if real:
            raise Unbounded("an even root of a negative number")
    logarithm = mp.log(base) * as_float(exponent)
    return _exponential(logarithm)


def _integer_power(base, exponent: int):
    if isinstance(base, Fraction):
        if base in (1, -1):
            return base ** (exponent % 2 + 2)
        if _bits(base) * abs(exponent) <= EXACT_BITS and _exact(base):
            return base**exponent
    mp = _mp()
    base = as_float(base)
    if abs(exponent) > 2**40 or abs(exponent * mp.log(abs(base))) > 10**12:
        raise Unbounded("a power too large")
    value = base**exponent
    return _settle(value, abs(value))


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The exact root of a positive rational; None where it is irrational or too large to compute."""
    if degree > 64 or _bits(value) > 4096:
        return None
    top, bottom = _integer_root(value.numerator, degree), _integer_root(value.denominator, degree)
    return Fraction(top, bottom) if top is not None and bottom is not None else None


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    low, high = 1, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < value:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == value else None


def _exponential(value):
    mp = _mp()
    value = as_float(value)
    re, im = (value.real, value.imag) if isinstance(value, mp.mpc) else (value, 0)
    if abs(re) > 10**12 or abs(im) > 10**12:
        raise Unbounded("an exponent too large")
    result = mp.exp(value)
    return _settle(result, abs(result))


def _call(name: str, arguments: list, real: bool):
    if name == "root":
        return _root(*arguments, real)
    if (
        name in ("abs", "floor", "ceil", "factorial", "factorial2", "exp", "cbrt", "cis", "ln", "lg")
        and len(arguments) != 1
    ):
        raise Unbounded(f"{name} takes one argument")
    if name == "abs":
        return abs(arguments[0])
    if name == "exp":
        return _exponential(arguments[0])
    if name == "cbrt":
        return _root(arguments[0], Fraction(3), real)
    if name in ("ln", "log", "lg"):
        base = arguments[1] if len(arguments) == 2 else Fraction(10) if name == "lg" else None
        value = _logarithm(arguments[0], real)
        return value if base is None else divide(value, _logarithm(base, real))
    if name == "cis":
        return _exponential(multiply(_symbol("i", None), arguments[0]))
    if name == "factorial":
        return _factorial(arguments[0])
    if name == "factorial2":
        return _double_factorial(arguments[0])
    if name in ("floor", "ceil"):
        return _rounded(arguments[0], name)
    if name in ("binom", "min", "max", "gcd", "lcm"):
        return _several(name, arguments)
    return _trigonometric(name, arguments)


def _root(value, degree, real: bool):
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 1 <= degree <= 1000:
        raise Unbounded("a root of no whole degree")
    return _power(value, 1 / degree, real)


def _logarithm(value, real: bool):
    mp = _mp()
    if value == 1:
        return Fraction(0)
    if value == 0:
        raise Unbounded("the logarithm of zero")
    value = as_float(value)
    if real and (isinstance(value, mp.mpc) or value < 0):
        raise Unbounded("the logarithm of a negative number")
    return _settle(mp.log(value), mp.mpf(1))


def _whole(value) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1:
        raise Unbounded("not a whole number")
    return value.numerator


def _factorial(value):
    if isinstance(value, Fraction) and value.denominator == 1 and 0 <= value <= MAX_INTEGER:
        return _charged(math.factorial(value.numerator))
    mp = _mp()
    value = as_float(value)
    if isinstance(value, mp.mpc) or not -1 < value < 10**6:
        raise Unbounded("a factorial too large")
    return mp.gamma(value + 1)


def _double_factorial(value):
    whole = _whole(value)
    if not 0 <= whole <= MAX_INTEGER:
        raise Unbounded("a factorial too large")
    return _charged(math.prod(range(whole, 0, -2)))


def _rounded(value, name: str):
    if isinstance(value, Fraction):
        return Fraction(math.floor(value) if name == "floor" else math.ceil(value))
    mp = _mp()
    if isinstance(value, mp.mpc) or abs(value) > mp.mpf(10) ** 40:
        raise Unbounded("cannot be rounded")
    nearest = mp.nint(value)
    if abs(value - nearest) < mp.mpf(10) ** -60:
        return Fraction(int(nearest))
    return Fraction(int(mp.floor(value) if name == "floor" else mp.ceil(value)))


def _several(name: str, arguments: list):
    if name == "binom":
        if len(arguments) != 2:
            raise Unbounded("a binomial takes two arguments")
        top, bottom = arguments
        if all(isinstance(a, Fraction) and a.denominator == 1 and 0 <= a <= 2 * MAX_INTEGER for a in arguments):
            return _charged(math.comb(top.numerator, bottom.numerator))
        if isinstance(bottom, Fraction) and bottom.denominator == 1 and 0 <= bottom <= 50:  # a polynomial in `top`
            value = Fraction(1)
            for i in range(bottom.numerator):
                value = divide(multiply(value, add([top, Fraction(-i)])), Fraction(i + 1))
            return value
        mp = _mp()
        top, bottom = as_float(top), as_float(bottom)
        if isinstance(top, mp.mpc) or isinstance(bottom, mp.mpc) or max(abs(top), abs(bottom)) > 10**4:
            raise Unbounded("a binomial too large")
        return _settle(mp.binomial(top, bottom), mp.mpf(1))
    if not arguments:
        raise Unbounded(f"{name} of nothing")
    if name in ("gcd", "lcm"):
        return Fraction(getattr(math, name)(*(_whole(a) for a in arguments)))
    mp = _mp()
    if any(isinstance(a, mp.mpc) for a in arguments):
        raise Unbounded("complex numbers have no order")
    return (min if name == "min" else max)(arguments, key=as_float)


_MPMATH = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "coth": "coth", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot",
}  # fmt: skip


def _trigonometric(name: str, arguments: list):
    if name not in _MPMATH or len(arguments) != 1:
        raise Unbounded(f"unknown function {name}")
    mp = _mp()
    value = as_float(arguments[0])
    if abs(value) > 10**12:
        raise Unbounded("an angle too large")
    if name.endswith("h") and abs(value) > 10**6:
        raise Unbounded("an argument too large")
    try:
        result = _settle(getattr(mp, _MPMATH[name])(value), mp.mpf(1))
    except ZeroDivisionError as error:
        raise Unbounded("a pole") from error
    if result != 0 and not name.endswith("h") and abs(result) > mp.mpf(10) ** NEGLIGIBLE:
        raise Unbounded("a pole")
    return result


# -- keys


def number_key(value) -> str:
    """The key of a constant: a decimal or a fraction where it is rational, else its first 45 digits.

    >>> number_key(Fraction(25, 2)), number_key(Fraction(250, 3))
    ('12.5', '250/3')
    """
    mp = _mp()
    if isinstance(value, Fraction):
        return rational_key(value)
    if isinstance(value, mp.mpc):
        re, im = number_key(_settle(value.real, abs(value))), number_key(_settle(value.imag, abs(value)))
        return f"{re}+{im}i" if im != "0" else re
    exact = _rational(value)
    return rational_key(exact) if exact is not None else f"~{mp.nstr(value, KEY_DIGITS)}"


def rational_key(value: Fraction) -> str:
    """A rational's key: a decimal if that ends, else a fraction in lowest terms; above 1000 bits a digest."""
    top, bottom = value.numerator, value.denominator
    if _bits(value) > 1000:
        digest = hashlib.sha256(f"{top:x}/{bottom:x}".encode()).hexdigest()
        return f"q:{digest[:24]}"
    if bottom == 1:
        return str(top)
    twos = (bottom & -bottom).bit_length() - 1
    rest, fives = bottom >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{top}/{bottom}"
    places = max(twos, fives)
    digits = str(abs(top) * 10**places // bottom).rjust(places + 1, "0")
    return f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _rational(value) -> Fraction | None:
    """The rational that equals a real number to 90 digits, or None: sqrt(2)^2 is 2."""
    if value == 0:
        return Fraction(0)
    sign, mantissa, exponent, _ = value._mpf_
    if abs(exponent) > 3000:
        return None
    exact = Fraction(mantissa) * Fraction(2) ** exponent
    near = exact.limit_denominator(10**25)
    if abs(exact - near) * 10**90 > exact:
        return None
    return -near if sign else near


def _digits(value) -> str:
    mp = _mp()
    if value is None:
        return "u"
    value = as_float(value)
    if isinstance(value, mp.mpc):
        return f"{_digits(value.real)},{_digits(value.imag)}"
    return "0" if value == 0 else mp.nstr(value, KEY_DIGITS - 5)


def _digest(values: list) -> str:
    return hashlib.sha256("|".join(map(_digits, values)).encode()).hexdigest()[:24]
