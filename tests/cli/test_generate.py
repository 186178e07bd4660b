import io
import subprocess
import sys

import pytest

from mgs.cli import generate as command
from mgs.types import Text


@pytest.fixture
def flags(model_folder):
    return ["--model", model_folder, "--max_new_tokens", "5"]


def test_a_prompt_is_continued(tmp_path, flags):
    argv = [sys.executable, "-m", "mgs", "generate", *flags, "--prompt", "The cat", "My old neighbour never"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "The cat ▸" in done.stdout
    assert "My old neighbour never ▸" in done.stdout
    assert not list(tmp_path.iterdir())


def test_what_belongs_to_no_option_is_a_prompt(call, flags):
    named = call("generate", *flags, "--prompt", "The cat", "Our teacher").out
    assert call("generate", "The cat", *flags, "Our teacher").out == named
    assert named.count("▸") == 2


def test_a_run_continues_what_it_was_trained_on_with_its_own_decoder(call, small_run, here):
    assert call("train", "mle", *small_run, "--decoder", "beam-2", "--out", "run").code == 0
    small = ("--num", 2, "--max_new_tokens", 5)
    data = small_run[small_run.index("--data") + 1]
    told = call("generate", "--model", "run", "--data", data, "--context", 4, "--decoder", "beam-2", *small).out
    assert told.count("▸") == 2
    assert call("generate", "--model", "run", *small).out == told
    assert call("generate", "--model", "run/checkpoint-2", *small).out == told


def test_prompts_come_from_standard_input(call, flags, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("The cat\nOur teacher\n"))
    answer = call("generate", *flags, "--prompt", "-")
    assert answer.out.count("▸") == 2
    assert "Our teacher ▸" in answer.out


@pytest.mark.parametrize("given", ["", "The cat\n\n"])
def test_no_prompt_on_standard_input_is_refused(refused, flags, monkeypatch, given):
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert "an empty prompt cannot be continued" in refused("generate", *flags, "--prompt", "-")


def test_without_a_prompt_held_out_prefixes_are_continued(call, flags, text_file):
    answer = call("generate", *flags, "--data", text_file, "--context", "4", "--num", "2")
    assert answer.out.count("▸") == 2


def test_sampling_is_named_by_its_seed(call, flags):
    outs = [call("generate", *flags, "--prompt", "The", "--decoder", "sample", "--seed", seed).out for seed in "001"]
    assert outs[0] == outs[1] != outs[2]


def test_what_a_model_writes_cannot_act_on_the_terminal(call, flags, monkeypatch):
    evil = Text("\x1b]0;owned\x07 red \x1b[31m\n\r\u202e", (1, 2), ended=False)
    monkeypatch.setattr(command, "decode_texts", lambda *given: [evil])
    answer = call("generate", *flags, "--prompt", "The \x1b[2J cat")
    assert answer.code == 0
    assert not set(answer.out) & set("\x1b\x07\r\u202e")
    assert r"\x1b]0;owned\x07 red \x1b[31m\n\r\u202e" in answer.out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--prompt", ""], "an empty prompt cannot be continued"),
        (["--prompt", "The", "--decoder", "samlpe"], "did you mean 'sample'?"),
        (["--prompt", "The", "--model", "./nowhere"], "no such model folder"),
        (["--promt", "The"], "unknown option 'promt': did you mean 'prompt'?"),
        (["--prompt", "The", "--decoder", "sample,top_k=none"], "top_k"),
        (["--data", "nowhere.txt"], "no such data file"),
        (["--prompt", "The", "--max_new_tokens", "x"], "invalid int value: 'x'"),
    ],
)
def test_a_mistake_is_refused(refused, flags, argv, message):
    assert message in refused("generate", *flags, *argv)
