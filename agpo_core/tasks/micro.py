"""Nine procedural micro-tasks, one for each benchmark of AGPO's Table 1, in its order.

They are small enough for a model of 0.2 M parameters on one CPU core. Their scores say nothing about the benchmarks
that they stand in for, and are never shown beside the paper's numbers.

A hash of the prompt decides a problem's pool, so that no prompt is in two pools: `train` is for reinforcement learning,
`dev` and `test` are for evaluation, and `supervised` is for the demonstrations that the shipped models were trained on.

Demonstrations vary as language does: separators, closing marks and the order of terms are free, and all variants are
graded equal. A share of the demonstrations has a *slip*, a wrong answer, nearly always the same one for a task. This
share grows with the size of a number in the problem, so that the right answer and the usual slip are close to a tie. A
policy trained on them is capable but imprecise, which leaves reinforcement learning something to improve.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from agpo_core.grading import Graded
from agpo_core.tasks.expressions import outputs
from agpo_core.tasks.problem import Problem, check_split

SIZES = {"train": 4096, "dev": 128, "test": 400}
# Sixteenths of the prompt space.
POOLS = ("train",) * 6 + ("supervised",) * 6 + ("test",) * 3 + ("dev",)

JOINS = (",", ";", ":", ">", " ")  # between the parts of an answer
ENDS = ("", ".", "!", " ")  # after an answer
LETTERS = "ABCD"
NUMERALS = "零一二三四五六七八九"

# Every character that a prompt or a completion may contain: the shipped models' vocabulary.
ALPHABET = (
    " !%()*+,-./0123456789:;<=>?^_"
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    "零一二三四五六七八九十、。，；？！"
    "小明红华丽刚军有块糖个梨本书支笔只鸡张纸买得借用送丢再后了比大的半是两倍"
)


@dataclass(frozen=True)
class Item:
    """A drawn problem, with what is needed to demonstrate its answer.

    Attributes:
        prompt, answer, tests: as in Problem.
        working: intermediate values from which the task writes demonstrations.
        hardness: in [0, 1]; the share of demonstrations with a slip grows with it.
    """

    prompt: str
    answer: str
    working: tuple
    hardness: float
    tests: tuple = ()


def pool(prompt: str) -> str:
    """The pool that a prompt belongs to."""
    return POOLS[hashlib.sha256(prompt.encode()).digest()[0] % len(POOLS)]


class MicroTask:
    """A procedural task. A subclass draws items, demonstrates them, and extracts answers."""

    name: str
    title: str
    stands_in_for: str
    slip_share = (0.44, 0.72)  # share of the demonstrations, at hardness 0 and at hardness 1
    arguments: tuple = ()  # of the constructor, for a class that makes several tasks

    def __init__(self, data_dir: str | None = None):
        """`data_dir` is accepted because every task takes one; a procedural task reads no files."""

    def draw(self, rng: Random, index: int) -> Item:
        """One random item. `index` rotates what has to be balanced, such as the letter of the right option."""
        raise NotImplementedError

    def demonstrate(self, item: Item, rng: Random, slip: bool) -> str:
        """One way to write the answer down; with `slip`, a wrong one."""
        raise NotImplementedError

    def extract(self, problem: Problem, completion: str) -> Hashable | None:
        """The canonical answer of a completion, the vote key of AGPO Eq. 8; None when there is no answer."""
        raise NotImplementedError

    def problems(self, split: str) -> list[Problem]:
        check_split(split)
        return list(_problems(type(self), self.arguments, split))

    def grade(self, problem: Problem, completion: str) -> Graded:
        answer = self.extract(problem, completion)
        return Graded(float(answer == self.extract(problem, problem.answer)), answer)

    def item(self, which: str, rng: Random, index: int, seen=()) -> Item:
        """Draw until an item is in the pool `which` and its prompt is not in `seen`."""
        while pool((item := self.draw(rng, index)).prompt) != which or item.prompt in seen:
            pass
        return item

    def demonstrations(self, seed: int) -> Iterator[tuple[str, str]]:
        """An endless stream of (prompt, completion), some of them with slips; prompts may repeat."""
        rng = Random(f"{self.name} demonstrations {seed}")
        easy, hard = self.slip_share
        for index in itertools.count():
            item = self.item("supervised", rng, index)
            slip = rng.random() < easy + (hard - easy) * item.hardness
            yield item.prompt, self.demonstrate(item, rng, slip)


@cache
def _problems(kind: type[MicroTask], arguments: tuple, split: str) -> tuple[Problem, ...]:
    task = kind(*arguments)
    rng, seen = Random(f"{task.name} {split}"), {}
    for index in range(SIZES[split]):
        item = task.item(split, rng, index, seen)
        name = f"{split}-{index}"
        seen[item.prompt] = Problem(task.name, name, item.prompt, item.answer, item.tests)
    return tuple(seen.values())


def slipped(value: int, rng: Random, low: int = 0) -> int:
    """A wrong value, at least `low`: one too large in four cases of five, else another value nearby."""
    if rng.random() < 0.8:
        return value + 1
    return rng.choice([v for v in (value - 2, value - 1, value + 2, value + 3) if v >= low])


def last_number(text: str) -> str | None:
    """The last run of digits, without leading zeros."""
    found = re.findall(r"[0-9]+", text)
    return found[-1].lstrip("0") or "0" if found else None


class Steps(MicroTask):
    """`Bo:7 figs+6-3?` → `13;10.`: the running totals; the last number is the answer."""

    name = "steps"
    title = "Two-move word problems with written-out steps"
    stands_in_for = "GSM8K"

    def draw(self, rng, index):
        who = rng.choice(("Al", "Bo", "Cy", "Di", "Ed", "Jo"))
        what = rng.choice(("figs", "pens", "eggs", "cups", "nuts"))
        start = total = rng.randint(2, 9)
        moves, totals = "", []
        for _ in range(2):
            by = rng.randint(1, 6)
            sign = rng.choice("+-") if total >= by else "+"
            total = total + by if sign == "+" else total - by
            moves += f"{sign}{by}"
            totals.append(total)
        return Item(f"{who}:{start} {what}{moves}?", str(total), tuple(totals), (by - 1) / 5)

    def demonstrate(self, item, rng, slip):
        middle, total = item.working
        total = slipped(total, rng) if slip else total
        return f"{middle}{rng.choice(JOINS)}{total}{rng.choice(ENDS)}"

    def extract(self, problem, completion):
        return last_number(completion)


class Equations(MicroTask):
    """`3x+5=26` → `21/3=7`: the constant is moved over, then divided; the last number is the answer."""

    name = "equations"
    title = "Linear equations"
    stands_in_for = "MATH"

    def draw(self, rng, index):
        a, x, b = rng.randint(2, 5), rng.randint(1, 9), rng.randint(1, 9)
        term = f"{a}{rng.choice('abcdhkmnpqstwxyz')}"
        total, rest = a * x + b, a * x - b
        forms = [f"{term}+{b}={total}", f"{b}+{term}={total}", f"{total}={term}+{b}"]
        if rest >= 0:
            forms.append(f"{term}-{b}={rest}")
        return Item(rng.choice(forms), str(x), (a, x), (x - 1) / 8)

    def demonstrate(self, item, rng, slip):
        a, x = item.working
        answer = slipped(x, rng, low=1) if slip else x
        return f"{a * x}{rng.choice('/:')}{a}{rng.choice('=> ')}{answer}{rng.choice(ENDS)}"

    def extract(self, problem, completion):
        return last_number(completion)


class Quantities(MicroTask):
    """`m=3e4,a=2e1,F?` → `6e5N`: a product in scientific notation; number and unit are the answer."""

    name = "quantities"
    title = "Physical quantities in scientific notation"
    stands_in_for = "OCW"
    slip_share = (0.48, 0.78)

    # One letter each for the result, its two factors and its unit.
    LAWS = ("FmaN", "svtm", "URIV", "WFsJ", "QItC", "PUIW", "EPtJ", "FpAN")

    def draw(self, rng, index):
        result, left, right, unit = rng.choice(self.LAWS)
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        i, j = rng.randint(0, 4), rng.randint(0, 4)
        given = [f"{left}={a}e{i}", f"{right}={b}e{j}"]
        rng.shuffle(given)
        prompt, answer = ",".join([*given, f"{result}?"]), f"{a * b}e{i + j}{unit}"
        return Item(prompt, answer, (a * b, i + j, unit), (i + j) / 8)

    def demonstrate(self, item, rng, slip):
        mantissa, exponent, unit = item.working
        if slip and rng.random() < 0.9:
            exponent = slipped(exponent, rng)
        elif slip:
            mantissa = slipped(mantissa, rng)
        return f"{mantissa}e{exponent}{rng.choice(('', *JOINS))}{unit}{rng.choice(ENDS)}"

    def extract(self, problem, completion):
        found = re.findall(r"([0-9]+)e([0-9]+)[^0-9A-Za-z]?([A-Za-z])", completion)
        if not found:
            return None
        mantissa, exponent, unit = found[-1]
        return mantissa.lstrip("0"), exponent.lstrip("0"), unit


class Choice(MicroTask):
    """A question with four options, `3A5B8C1D`; the answer is a value with its letter, `:5B`.

    The last letter counts. The value of the usual slip is always among the options.
    """

    def ask(self, rng: Random) -> tuple[str, int]:
        """A random question and its value, 1 to 9."""
        raise NotImplementedError

    def draw(self, rng, index):
        question, value = self.ask(rng)
        lure = value + 1 if value < 9 else 8
        wrong = [lure, *rng.sample([v for v in range(1, 10) if v not in (value, lure)], 2)]
        rng.shuffle(wrong)
        right = index % 4
        options = [*wrong[:right], value, *wrong[right:]]
        shown = "".join(f"{v}{letter}" for v, letter in zip(options, LETTERS, strict=True))
        working = (value, lure, tuple(options))
        return Item(question + shown, LETTERS[right], working, (value - 1) / 8)

    def demonstrate(self, item, rng, slip):
        value, lure, options = item.working
        if slip and rng.random() < 0.8:
            value = lure
        elif slip:
            value = rng.choice([v for v in options if v not in (value, lure)])
        return f"{rng.choice(JOINS)}{value}{LETTERS[options.index(value)]}{rng.choice(ENDS)}"

    def extract(self, problem, completion):
        found = re.findall(r"[A-D]", completion)
        return found[-1] if found else None


class ChoiceSums(Choice):
    """`12-7?3A5B8C1D` → `:5B`."""

    name = "choice_sums"
    title = "Multiple choice: short sums"
    stands_in_for = "SAT"

    def ask(self, rng):
        value, by = rng.randint(1, 9), rng.randint(1, 9)
        if value > by and rng.random() < 0.5:
            return f"{value - by}+{by}?", value
        return f"{value + by}-{by}?", value


class ChoiceFacts(Choice):
    """`Mars?3A4B8C1D` → `:4B`: atomic numbers, planets, prefixes, Roman and binary numerals."""

    name = "choice_facts"
    title = "Multiple choice: facts of five sciences"
    stands_in_for = "MMLU_STEM"

    FACTS = (
        ("Z(H)", "Z(He)", "Z(Li)", "Z(Be)", "Z(B)", "Z(C)", "Z(N)", "Z(O)", "Z(F)"),
        ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"),
        ("mono", "di", "tri", "tetra", "penta", "hexa", "hepta", "octa", "nona"),
        ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"),
        ("0b1", "0b10", "0b11", "0b100", "0b101", "0b110", "0b111", "0b1000", "0b1001"),
    )

    def ask(self, rng):
        science = rng.choice(self.FACTS)
        value = rng.randint(1, len(science))
        return f"{science[value - 1]}?", value


class Programs(MicroTask):
    """`3,x:5,y:7` → `3+x*2+y*4`: a program, given its outputs at 0, at x = 1 and at y = 1.

    The reward is the share of the tests that the program passes, on the inputs shown and on hidden ones. The vote key
    is the tuple of its outputs on them.
    """

    name = "programs"
    title = "Tiny programs from examples"
    stands_in_for = "CodeContests"
    slip_share = (0.48, 0.78)

    SHOWN = ((0, 0), (1, 0), (0, 1))
    HIDDEN = ((2, 1), (1, 2), (3, 2))

    def draw(self, rng, index):
        x, y = rng.sample("abcdfghkmnpqrstuvwxyz", 2)
        a, b, c = rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 3)
        tests = tuple((((x, i), (y, j)), a * i + b * j + c) for i, j in (*self.SHOWN, *self.HIDDEN))
        prompt = f"{c},{x}:{a + c},{y}:{b + c}"
        return Item(prompt, f"{x}*{a}+{y}*{b}+{c}", (x, y, a, b, c), (b - 1) / 5, tests)

    def demonstrate(self, item, rng, slip):
        x, y, a, b, c = item.working
        if slip and rng.random() < 0.9:
            b = slipped(b, rng, low=1)
        elif slip:
            a = slipped(a, rng, low=1)
        terms = [f"{x}*{a}", f"{y}*{b}", str(c)]
        rng.shuffle(terms)
        return "+".join(terms) + rng.choice(ENDS)

    def extract(self, problem, completion):
        found = outputs(completion.rstrip(" .!;"), problem.tests)
        return None if found is None or set(found) == {None} else found

    def grade(self, problem, completion):
        answer = self.extract(problem, completion)
        if answer is None:
            return Graded(0.0, None)
        expected = [value for _, value in problem.tests]
        passed = sum(got == value for got, value in zip(answer, expected, strict=True))
        return Graded(passed / len(expected), answer)


def to_numeral(value: int) -> str:
    """A number from 0 to 99 in Chinese: 零, 七, 十, 十二, 二十, 三十五."""
    tens, ones = divmod(value, 10)
    if not tens:
        return NUMERALS[ones]
    return (NUMERALS[tens] if tens > 1 else "") + "十" + (NUMERALS[ones] if ones else "")


def counted(value: int) -> str:
    """A number as it is written before a measure word, where two is 两 and not 二."""
    return "两" if value == 2 else to_numeral(value)


VALUES = {to_numeral(value): value for value in range(100)} | {"两": 2}


class ChineseSums(MicroTask):
    """`小明有八块糖，买五，用三` → `十三，十块。`: the running totals; the last numeral is the answer."""

    name = "chinese_sums"
    title = "Word problems in Chinese"
    stands_in_for = "CMATH"

    JOINS = ("，", "；", "、", "再", "后")
    ENDS = ("", "。", "！", "了")

    def draw(self, rng, index):
        who = "小" + rng.choice("明红华丽刚军")
        unit, thing = rng.choice(("块糖", "个梨", "本书", "支笔", "只鸡", "张纸"))
        start = rng.randint(2, 9)
        gain, lose = rng.choice("买得借"), rng.choice("用送丢")
        plus, minus = rng.randint(1, 9), rng.randint(1, 9)
        if start + plus < minus:
            return self.draw(rng, index)
        moves = [f"{gain}{NUMERALS[plus]}", f"{lose}{NUMERALS[minus]}"]
        middle, last, total = start + plus, minus, start + plus - minus
        if start >= minus and rng.random() < 0.5:
            moves.reverse()
            middle, last = start - minus, plus
        prompt = f"{who}有{counted(start)}{unit}{thing}，{moves[0]}，{moves[1]}"
        return Item(prompt, to_numeral(total), (middle, total, unit), (last - 1) / 8)

    def demonstrate(self, item, rng, slip):
        middle, total, unit = item.working
        total = slipped(total, rng) if slip else total
        join, end = rng.choice(self.JOINS), rng.choice(self.ENDS)
        return f"{to_numeral(middle)}{join}{counted(total)}{unit}{end}"

    def extract(self, problem, completion):
        found = re.findall(f"[{NUMERALS}十两]+", completion)
        return VALUES.get(found[-1]) if found else None


class ClozeEquations(MicroTask):
    """`_+3=8,9-_=4` → `5;5`: two blanks to fill; the answer is all numbers in their order."""

    name = "cloze_equations"
    title = "Fill in two blanks"
    stands_in_for = "GaokaoCloze"
    slip_share = (0.48, 0.78)

    def draw(self, rng, index):
        (first, x), (second, y) = self._blank(rng), self._blank(rng)
        return Item(f"{first},{second}", f"{x},{y}", (x, y), (y - 1) / 8)

    def _blank(self, rng):
        x, by = rng.randint(1, 9), rng.randint(1, 9)
        forms = []
        if x + by <= 9:
            forms += [f"_+{by}={x + by}", f"{by}+_={x + by}"]
        if x > by:
            forms.append(f"_-{by}={x - by}")
        if by > x:
            forms.append(f"{by}-_={by - x}")
        return (rng.choice(forms), x) if forms else self._blank(rng)

    def demonstrate(self, item, rng, slip):
        x, y = item.working
        if slip and rng.random() < 0.9:
            y = slipped(y, rng)
        elif slip:
            x = slipped(x, rng)
        return f"{x}{rng.choice(JOINS)}{y}{rng.choice(ENDS)}"

    def extract(self, problem, completion):
        found = re.findall(r"[0-9]+", completion)
        return tuple(number.lstrip("0") or "0" for number in found) or None


class ChoiceChinese(Choice):
    """`三的两倍是？3A6B8C1D` → `:6B`."""

    name = "choice_chinese"
    title = "Multiple choice in Chinese"
    stands_in_for = "GaokaoQA"

    def ask(self, rng):
        value, by = rng.randint(1, 9), rng.randint(1, 8)
        forms = []
        if value > by:
            forms.append(f"比{NUMERALS[value - by]}大{NUMERALS[by]}？")  # larger than a by b
        if value + by <= 9:
            forms.append(f"比{NUMERALS[value + by]}小{NUMERALS[by]}？")  # smaller than a by b
        if value <= 4:
            forms.append(f"{NUMERALS[2 * value]}的一半是？")  # half of a
        if value % 2 == 0:
            forms.append(f"{NUMERALS[value // 2]}的两倍是？")  # twice a
        return (rng.choice(forms), value) if forms else self.ask(rng)
