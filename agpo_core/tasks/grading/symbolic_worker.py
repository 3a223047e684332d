"""The symbolic reader: a process of its own, started by `workers` and run as a script.

It reads one JSON line a request, {"id", "latex"}, and answers with one, {"id", "tree"}: the expression that
math-verify's LaTeX reader makes of the string, with its sums, products, integrals, limits and derivatives carried
out, as a tree in the form of `latex`; null where there is none. It may hang or run out of memory; whoever started it
kills it at the deadline.

It imports neither this package nor torch, so that it starts in about a second.
"""

import json
import os
import resource
import sys
import threading
import time

MEMORY_BYTES = 2 * 1024**3
CPU_SECONDS = 20  # a request; the deadline outside is shorter, this holds when nobody is left to kill the process

_NAMES = {"Abs": "abs", "ceiling": "ceil", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "acot": "arccot",
          "log": "ln", "Max": "max", "Min": "min"}  # fmt: skip
_FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp", "factorial", "binomial", "floor",
    "gcd",
    "lcm",
}  # fmt: skip


def tree(expression):
    """A SymPy expression as a tree of lists; raises ValueError for what the trees have no word for."""
    import sympy

    if isinstance(expression, sympy.Rational):
        return ["num", f"{expression.p}/{expression.q}"]
    if isinstance(expression, sympy.Float):
        return ["num", str(sympy.Rational(str(expression)))]
    if expression is sympy.pi:
        return ["sym", "pi"]
    if expression is sympy.E:
        return ["sym", "e"]
    if expression is sympy.I:
        return ["sym", "i"]
    if isinstance(expression, sympy.Symbol):
        return ["sym", expression.name.replace("{", "").replace("}", "").lstrip("\\")]
    if isinstance(expression, sympy.Add):
        return ["add", [tree(term) for term in expression.args]]
    if isinstance(expression, sympy.Mul):
        return ["mul", [tree(factor) for factor in expression.args]]
    if isinstance(expression, sympy.Pow):
        return ["pow", tree(expression.base), tree(expression.exp)]
    name = type(expression).__name__
    name = _NAMES.get(name, name if name in _FUNCTIONS else None)
    if name is None:
        raise ValueError(f"no word for {type(expression).__name__}")
    return ["call", {"binomial": "binom"}.get(name, name), [tree(argument) for argument in expression.args]]


def read(latex):
    """The tree of a LaTeX string, or None."""
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    try:
        expression = latex2sympy(latex, conversion_config=ConversionConfig(lowercase_symbols=False))
        return tree(expression.doit())
    except Exception:  # the reader raises a dozen types, all of which mean that it reads nothing
        return None


def _leave_with_the_parent(parent):
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _limit(kind, soft):
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def main():
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    threading.Thread(target=_leave_with_the_parent, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not be taken for a reply
    read("1+1")
    replies.write('{"id": 0}\n')
    replies.flush()
    for line in sys.stdin:
        request = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + CPU_SECONDS)
        replies.write(json.dumps({"id": request["id"], "tree": read(request["latex"])}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
