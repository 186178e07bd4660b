"""The command in this process, in an empty folder, with a small model and a small file."""

from typing import NamedTuple

import pytest

from mgs.cli.main import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, gpt2, tokenizer):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    gpt2.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory, sentences):
    file = tmp_path_factory.mktemp("texts") / "sentences.txt"
    file.write_text("\n".join(sentences[::3]) + "\n")
    return str(file)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to run in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def call(here, capsys):
    """`mgs ...` as (exit code, stdout, stderr)."""

    def run(*argv):
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in argv])
        except SystemExit as stop:
            code = stop.code or 0
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(call, here):
    """A mistake: exit code 2, one sentence on stderr, nothing else said and nothing written."""

    def run(*argv):
        before = sorted(here.rglob("*"))
        answer = call(*argv)
        assert answer.code == 2, answer
        assert answer.err.startswith("mgs: ")
        assert answer.err.count("\n") == 1, answer.err
        assert answer.out == ""
        assert sorted(here.rglob("*")) == before
        return answer.err

    return run


@pytest.fixture
def small_run(model_folder, text_file):
    """Options of a training run of a second."""
    flags = [
        "--model",
        model_folder,
        "--data",
        text_file,
        "--context",
        "4",
        "--batch_tokens",
        "100",
        "--max_steps",
        "2",
    ]
    flags += ["--eval_steps", "2", "--eval_examples", "3", "--eval_max_new_tokens", "10", "--max_new_tokens", "8"]
    return [*flags, "--report_to", "none", "--disable_tqdm", "true", "--use_cpu", "true"]
