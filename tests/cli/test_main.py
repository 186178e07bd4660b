import subprocess
import sys

import pytest

import mgs
from mgs.cli import main as entry
from mgs.cli.main import COMMANDS, main


def command(*argv, **options):
    return subprocess.run([sys.executable, "-m", "mgs", *argv], capture_output=True, text=True, timeout=300, **options)


def test_the_command_says_its_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mgs {mgs.__version__}\n", "")


def test_a_mistake_in_a_process_of_its_own_is_one_sentence_without_a_traceback(tmp_path):
    done = command("tarin", "mgs", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (f"mgs: unknown command 'tarin': did you mean 'train'? (allowed: {', '.join(COMMANDS)})\n")


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(call, argv):
    answer = call(*argv)
    assert answer.code == 0
    assert all(f"  {name} " in answer.out for name in COMMANDS)


@pytest.mark.parametrize(
    "argv", [["evaluate"], ["generate"], ["data"], ["demo"], *(["train", m] for m in ("mle", "mgs"))]
)
def test_help_of_a_command_shows_its_options_and_not_the_librarys_hundreds(call, argv):
    answer = call(*argv, "--help")
    assert answer.code == 0
    assert f"usage: mgs {' '.join(argv)}" in answer.out
    assert "--config FILE" in answer.out
    assert "adam_beta1" not in answer.out
    assert len(answer.out.splitlines()) < 80


def test_help_all_shows_our_options_first_and_then_the_librarys(call):
    shown = call("train", "mgs", "--help-all").out
    assert 0 < shown.index("--model") < shown.index("--num_candidates") < shown.index("--adam_beta1")
    assert len(shown.splitlines()) > 100
    for name in ("--num_candidates", "--learning_rate", "--seed"):
        assert shown.count(f"  {name} ") == 1


def test_train_without_a_method_lists_them(call, refused):
    assert "mle, mgs, mrt, pg" in call("train", "--help").out
    assert "needs a method first: mle, mgs, mrt, pg" in refused("train")
    assert "needs a method first" in refused("train", "--max_steps", "3")
    assert "unknown method 'mgss': did you mean 'mgs'?" in refused("train", "mgss")


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "run", interrupt)
    assert main(["data"]) == 130
    assert capsys.readouterr().err == "mgs: interrupted\n"


def test_a_reader_that_goes_away_is_no_traceback():
    writer = subprocess.Popen(
        [sys.executable, "-m", "mgs", "train", "mgs", "--help-all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer.stdout.close()
    assert b"Traceback" not in writer.stderr.read()
    writer.stderr.close()
    writer.wait(timeout=300)


def test_a_file_where_the_folder_should_be_is_a_sentence(tmp_path, capsys):
    (tmp_path / "taken").write_text("here already")
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    error = capsys.readouterr().err
    assert "exists" in error
    assert "taken" in error
    assert "Traceback" not in error
