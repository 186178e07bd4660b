"""Flags of every command: unknown, repeated, without a value, with numbers and strings that nobody meant."""

import dataclasses
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgs.cli.bench import BenchOptions
from mgs.cli.data import ShowOptions
from mgs.cli.demo import DemoOptions
from mgs.cli.evaluate import EvaluateOptions
from mgs.cli.generate import GenerateOptions
from mgs.cli.report import ReportOptions
from mgs.cli.reproduce import ReproduceOptions
from mgs.cli.train import METHODS, RunOptions
from mgs.experiments.inputs import DataOptions, ModelOptions
from mgs.training.config import own_options

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

OPTIONS = {
    "data": (DataOptions, ShowOptions),
    "generate": (ModelOptions, DataOptions, GenerateOptions),
    "evaluate": (ModelOptions, DataOptions, EvaluateOptions),
    "bench": (BenchOptions,),
    "demo": (DemoOptions,),
    "report .": (ReportOptions,),
    "reproduce completion": (ReproduceOptions, DataOptions),
    "reproduce all": (ReproduceOptions, DataOptions),
    **{f"train {method}": (ModelOptions, DataOptions, RunOptions, config) for method, (config, _) in METHODS.items()},
}
USUAL = {
    "data": "--tokenizer causal --data text.txt --context 3",
    "generate": "--model causal --data text.txt --context 3 --max_new_tokens 2",
    "evaluate": "--model causal --data text.txt --context 3 --max_new_tokens 2 --examples 2 --scorer causal",
    "train": "--model causal --data text.txt --context 3 --report_to none --use_cpu true --eval_examples 2",
}
INTEGERS = ["-1", "0", "1", "2", "7", "-9", "9" * 10, "9" * 30, "9" * 5000]
FLOATS = ["nan", "inf", "-inf", "0.5", "1e400", "-1e-9", "1e9", "1e-300", "0", "1", "-1"]
WORDS = ["", " ", "é∞", "\u202e", "a\0b", "\x1b[31m", "\udc80", "\ud800", "-x", "a" * 5000, "..", "/dev/null"]
WORDS += [
    "none",
    "all",
    "valid",
    "auto",
    "small",
    "new:tiny",
    "translation",
    "de-en",
    "1.5",
    "text.txt",
    "text.txt:cost",
]
WORDS += ["pairs.de,pairs.en", "pairs.de", "nowhere/file.json", "sample,top_k=x", "sample,top_k=" + "9" * 30]
WORDS += ["sample,temperature=inf", "beam-3", "beam-" + "9" * 5000]
SWITCHES = ["true", "False", "0", "maybe"]
ANYTHING = st.sampled_from(INTEGERS + FLOATS + WORDS + SWITCHES) | st.text(max_size=12)


def fitting(kind):
    """Values that an option of this type may well take for good ones."""
    kinds = {"bool": SWITCHES, "int": INTEGERS, "float": FLOATS + INTEGERS[:5]}
    return st.sampled_from(next((found for name, found in kinds.items() if name in str(kind)), WORDS))


def arguments(types):
    """A few flags, most with a value that fits, in either spelling, once or twice; some that do not exist."""
    ours = {name for cls in types for names in own_options(cls).values() for name in names}
    fields = [f for cls in types for f in dataclasses.fields(cls) if f.init and f.name in ours]
    value = {f.name: fitting(f.type) | fitting(f.type) | ANYTHING for f in fields}
    fit = st.sampled_from(fields).flatmap(lambda f: st.tuples(st.just(f.name), value[f.name]))
    other = st.tuples(st.text("abcdefgh_-=", max_size=12), ANYTHING)
    pair = st.one_of(fit, fit, fit, other).map(lambda p: ("--" + p[0].replace("_", "-"), p[1]))
    spellings = [list, list, lambda p: ["=".join(p)], lambda p: [p[0]], lambda p: [*p, p[1]]]
    flag = st.tuples(pair, st.sampled_from(spellings)).map(lambda drawn: drawn[1](drawn[0]))
    return st.lists(flag, min_size=1, max_size=3).map(lambda flags: list(chain.from_iterable(flags)))


@pytest.mark.parametrize("command", OPTIONS)
def test_flags(judge, cheap, words, texts, command):
    usual = words(f"{command} {USUAL.get(command.split()[0], '')}")

    @settings(fuzz, max_examples=50)
    @given(arguments(OPTIONS[command]))
    def cases(argv):
        judge(*usual, *argv, files=texts)

    cases()


@pytest.mark.parametrize(
    "argv", [[""], ["\0"], ["tarin"], ["train"], ["train", ""], ["train", "mgss"], ["--seed"], ["é"]]
)
def test_commands_that_do_not_exist(judge, argv):
    assert judge(*argv).code == 2
