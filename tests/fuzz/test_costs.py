"""Costs of the user's own that misbehave."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

VALUES = """
None | 'words' | b'bytes' | 1 | 0.5 | True | 10**400 | math.nan | -math.inf | [] | [1.0] | [1.0] * 999 | {} | object()
3j | [None] * n | ['1'] * n | [b'1'] * n | [math.nan] * n | [math.inf] * n | [10**400] * n | [1j] * n | [[1.0]] * n
[True] * n | (1.0 for h in hypotheses) | (1 / 0 for h in hypotheses) | iter([]) | range(n) | map(len, hypotheses)
set(hypotheses) | torch.zeros(n) | torch.zeros(n, 2) | torch.zeros(()) | torch.zeros(0) | torch.full((n,), math.nan)
[torch.zeros(2)] * n | np.zeros(n) | np.array(None) | np.array(['x'] * n) | np.float32(1) | [np.zeros(2)] * n
[Odd()] * n | Odd() | lambda: 1
"""
ERRORS = r"""
ValueError | ValueError('two\nlines') | KeyError('x') | Exception('\x1b[31m') | Exception('x' * 10**5) | StopIteration
SystemExit | SystemExit(3) | SystemExit('bye') | GeneratorExit | MemoryError | RecursionError
OSError(28, 'No space left') | AssertionError | UnicodeDecodeError('utf-8', b'', 0, 1, 'x') | TimeoutError
BrokenPipeError | Quiet | Loud() | 'no error'
"""
OTHER = ["sys.exit()", "return cost(hypotheses, references)", "hypotheses.clear(); return 1.0", "yield 'x'"]
HEADS = ["hypotheses, references", "hypotheses, references, **columns", "hypotheses, references, prefixes"]
WRONG_HEADS = ["hypotheses, references, nowhere", "", "hypotheses", "*, hypotheses, references"]
PREAMBLE = """
import math, sys
import numpy as np
import torch
class Odd:
    def __float__(self): raise RuntimeError('odd')
    def __repr__(self): raise RuntimeError('odder')
    def __iter__(self): raise RuntimeError('oddest')
class Quiet(BaseException): pass
class Loud(Exception):
    def __str__(self): raise ValueError('loud')
"""
MODULES = ["", "cost = 3", "cost = None", "cost = dict", "cost = 'x'", "import nowhere", "1 / 0", "def cost(:", "\0"]
MODULES += [
    "raise SystemExit(0)",
    "exit()",
    "import sys; sys.exit('x')",
    "raise BaseException('x')",
    "class cost: pass",
]
MODULES += ["\ufeffcost = len", "def __getattr__(name): raise RuntimeError(name)", "async def cost(h, r): return 1.0"]
MODULES += ["from torch import cos as cost"]
NAMES = ["mine.py:", ":cost", ":", "mine.py", "mine.py:cost:cost", "mine.py:no such", ".:cost", "mine.py:__class__"]
NAMES += ["text.txt:cost", "no\0where.py:x", "mine.py:\udc80", "LM", "lm ", "mine.py:__builtins__", "mine.py:\x1b"]

bodies = [f"return {value}" for line in VALUES.split("\n") if line for value in line.split(" | ")]
bodies += [f"raise {error}" for line in ERRORS.split("\n") if line for error in line.split(" | ")] + OTHER


@pytest.fixture
def train(judge, one_update, words, texts):
    """`mgs train` with a cost and a file that holds it."""
    flags = "--context 3 --batch_tokens 60 --max_new_tokens 2 --report_to none --use_cpu true --eval_strategy no"

    def run(method, cost, code):
        command = words(f"train {method} --model causal --data text.txt {flags}")
        return judge(*command, "--cost", cost, files=texts | {"mine.py": code.encode()})

    return run


@settings(fuzz, max_examples=100)
@given(method=st.sampled_from(["mgs", "mrt", "pg"]), head=st.sampled_from(HEADS), body=st.sampled_from(bodies))
def test_functions(train, method, head, body):
    train(method, "mine.py:cost", f"{PREAMBLE}\ndef cost({head}):\n    n = len(hypotheses)\n    {body}\n")


@pytest.mark.parametrize("head", WRONG_HEADS)
def test_functions_that_cannot_be_called(train, head):
    assert train("mgs", "mine.py:cost", f"def cost({head}): return 1.0").code == 2


@pytest.mark.parametrize("code", MODULES)
def test_modules(train, code):
    assert train("mgs", "mine.py:cost", code).code == 2


@pytest.mark.parametrize("name", NAMES)
def test_names(train, name):
    assert train("mgs", name, "def cost(h, r): return 1.0\n").code == 2
