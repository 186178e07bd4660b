"""One case: a command in this process, in a folder of its own, judged by what a user may expect of any input.

Exit code 0; or 2 with one sentence on stderr, nothing on stdout and no file written, removed or changed.
"""

import contextlib
import functools
import io
import os
import sys
import tempfile
import unicodedata
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

from mgs.cli import bench, data, demo, reproduce
from mgs.cli.main import main
from mgs.experiments import inputs
from mgs.methods import Key
from mgs.models import load_model, load_tokenizer, new_model
from mgs.models.subwords import train_joint_bpe
from mgs.training import SequenceTrainer

LONGEST_SENTENCE = 1_000  # characters of an error: what was given may be of any length, what is said of it not
judged = 0


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Reached(Exception):
    """Everything was accepted and training would begin."""


@contextlib.contextmanager
def captured():
    """What goes to stdout and stderr, from Python or from below it, as a list that is filled at the end."""
    said = []
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        kept = [os.dup(1), os.dup(2)]
        streams = [
            io.TextIOWrapper(io.FileIO(file.fileno(), "w", closefd=False), "utf-8", errors)
            for file, errors in zip(files, ("strict", "backslashreplace"), strict=True)  # as the interpreter's own
        ]
        for number, file in enumerate(files, start=1):
            os.dup2(file.fileno(), number)
        try:
            with (
                contextlib.redirect_stdout(streams[0]),
                contextlib.redirect_stderr(streams[1]),
                warnings.catch_warnings(),
            ):
                warnings.showwarning = lambda *w, **kw: print(warnings.formatwarning(*w[:4]), file=sys.stderr)
                yield said
        finally:
            for number, copy in enumerate(kept, start=1):
                os.dup2(copy, number)
                os.close(copy)
            for stream, file in zip(streams, files, strict=True):
                stream.flush()
                file.seek(0)
                said.append(file.read().decode("utf-8"))


def run(argv):
    with captured() as said:
        try:
            code = main(argv)
        except SystemExit as stop:
            code = stop.code or 0
        except Reached:
            code = 0
    return Answer(code, *said)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def unsafe(text):
    """Characters that a terminal would act on."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def check(argv, answer, before, after):
    what = f"\nmgs {argv!r:.2000}\n{answer}"
    assert answer.code in (0, 2), what
    assert not unsafe(answer.out), what
    assert "Traceback" not in answer.err, what
    if answer.code == 2:
        assert answer.err.startswith("mgs: "), what
        assert answer.err.endswith("\n"), what
        assert answer.err.count("\n") == 1, what
        assert 12 < len(answer.err) <= LONGEST_SENTENCE, what
        assert not unsafe(answer.err), what
        assert answer.out == "", what
        assert after == before, f"{what}\n{set(after) ^ set(before)}"


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch):
    """Python's own cache beside a cost's file would count as a file left behind."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture(scope="session")
def judge():
    """Runs and judges one case; `files` are written first, names to bytes."""

    def one(*argv, files=None):
        global judged
        judged += 1
        argv = [str(argument) for argument in argv]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for name, content in (files or {}).items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(content)
            before = contents(folder)
            answer = run(argv)
            check(argv, answer, before, contents(folder))
        return answer

    return one


@pytest.fixture(scope="session")
def num_judged():
    return lambda: judged


@pytest.fixture(scope="session")
def reached():
    """Stands in for what takes long: a case that comes here was accepted."""

    def stop(*args, **kwargs):
        raise Reached

    return stop


@pytest.fixture
def no_training(monkeypatch, reached):
    """A run is judged up to its first update."""
    monkeypatch.setattr(SequenceTrainer, "train", reached)
    monkeypatch.setattr("mgs.cli.train.save_configuration", lambda *parts: {})
    monkeypatch.setattr("mgs.cli.train.RunRecord.start", lambda *parts: None)


@pytest.fixture(scope="session")
def models(tmp_path_factory, gpt2, tokenizer, sentences):
    """Folders of a small causal model and of a small translation model."""
    root = tmp_path_factory.mktemp("fuzzed")
    pairs_tokenizer = train_joint_bpe(sentences, 300)
    for name, model, own in (
        ("causal", gpt2, tokenizer),
        ("pairs", new_model("iwslt-tiny", pairs_tokenizer), pairs_tokenizer),
    ):
        model.save_pretrained(root / name)
        own.save_pretrained(root / name)
    return root


@pytest.fixture(scope="session")
def texts(sentences):
    """Files that can be used: sequences, and two aligned sides."""
    lines = "\n".join(sentences[::4]) + "\n"
    return {"text.txt": lines.encode(), "pairs.de": lines.upper().encode(), "pairs.en": lines.encode()}


@pytest.fixture
def loaded(monkeypatch, models):
    """Models are loaded once, and the embedded corpus is short."""
    known = {str(models / name): name for name in ("causal", "pairs")}
    model = functools.cache(lambda folder: load_model(folder))
    tokenizer = functools.cache(lambda folder: load_tokenizer(folder))

    def models_from(name, *args, **kwargs):
        return model(name) if name in known else load_model(name, *args, **kwargs)

    def tokenizers_from(name, *args):
        return tokenizer(name) if name in known else load_tokenizer(name, *args)

    monkeypatch.setattr(inputs, "load_model", models_from)
    for module in (inputs, data):
        monkeypatch.setattr(module, "load_tokenizer", tokenizers_from)
    monkeypatch.setattr("mgs.data.sources.docstring_paragraphs", lambda: ["the cat sat on the mat and went home"] * 9)
    monkeypatch.setattr("sys.stdin", io.StringIO("a line\n"))


@pytest.fixture
def cheap(monkeypatch, loaded, no_training, reached):
    """Nothing that takes long is begun: no training, no demo, no measurement."""
    monkeypatch.setattr(demo, "run_demo", reached)
    monkeypatch.setattr(demo.translation_demo, "run_translation_demo", reached)
    for name in ("run_all", "execute"):
        monkeypatch.setattr(reproduce, name, reached)
    for name in bench.MODELS:
        monkeypatch.setitem(bench.MODELS, name, reached)


@pytest.fixture
def one_update(monkeypatch, loaded):
    """In place of training: one update is computed, without an optimizer, logs and checkpoints around it."""

    def train(self, *args, **kwargs):
        self.method(self.model, self.get_train_dataloader().dataset[0], Key(0, 0, 0))
        raise Reached

    monkeypatch.setattr(SequenceTrainer, "train", train)


@pytest.fixture(scope="session")
def words(models):
    """A command line's words, with `causal` and `pairs` standing for the folders of these models."""
    known = {name: str(models / name) for name in ("causal", "pairs")}
    return lambda line: [known.get(word, word) for word in line.split()]
