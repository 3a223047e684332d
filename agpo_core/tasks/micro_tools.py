"""Products that the micro model cannot work out, and a calculator that can: a stand-in for tool use (R++ Table 4).

The answer to `137*48=` is `6576`. A policy that writes `<137*48>` reads `=6576;` and only has to copy it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from agpo_core.tasks.micro import Item, MicroTask, last_number
from agpo_core.tasks.tools import Calculator

CALLS, SLIPS = 0.15, 0.5  # shares of the demonstrations, see Products.demonstrations


class Products(MicroTask):
    """`137*48=` → `<137*48>` (`=6576;`) `6576`; the last number after the last call counts."""

    name = "products"
    title = "Products of a three- and a two-digit number, with a calculator"
    stands_in_for = "mathematics with a Python tool"
    tool = Calculator()

    def draw(self, rng, index):
        a, b = rng.randint(100, 999), rng.randint(10, 99)
        return Item(f"{a}*{b}=", str(a * b), (a, b), hardness=0.5)

    def demonstrate(self, item, rng, slip):
        """The right call; with `slip`, a call with one wrong digit."""
        digits = list("{}*{}".format(*item.working))
        if slip:
            at = rng.choice([0, 1, 2, 4, 5])
            digits[at] = rng.choice([d for d in "123456789" if d != digits[at]])
        opening, closing = self.tool.call_marks
        return opening + "".join(digits) + closing

    def demonstrations(self, seed: int, calls: float = CALLS, slips: float = SLIPS) -> Iterator[tuple[str, str]]:
        """An endless stream of (text so far, what the policy writes next); prompts may repeat.

        A demonstration with a call gives two pairs, one for each turn, so that no observation is ever a training
        target. One without a call gives the product, which a small model can only guess.

        Args:
            seed: of problems, calls and slips.
            calls: share of the demonstrations with a call, [0, 1].
            slips: share of the calls with a wrong digit, [0, 1].
        """
        rng = Random(f"{self.name} demonstrations {seed}")
        for index in itertools.count():
            item = self.item("supervised", rng, index)
            if rng.random() >= calls:
                yield item.prompt, item.answer
                continue
            written = self.demonstrate(item, rng, slip=rng.random() < slips)
            reply = self.tool.run([self.tool.call(written)])[0]
            yield item.prompt, written
            yield item.prompt + written + self.tool.observation(reply, len(reply.output)), reply.output

    def extract(self, problem, completion):
        return last_number(completion.rpartition(self.tool.call_marks[1])[2])
