"""What other people made is data: pickles, code beside a model, YAML tags, text that a terminal would obey."""

import ast
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import mgs
from mgs.cli.demo import show_outputs
from mgs.experiments.demo import DemoResult
from mgs.models import new_model
from mgs.report.tables import figures_table, markdown_table
from mgs.types import Text

EVIL = ["\x1b[31m", "\x1b]0;title\x07", "\u202e", "\u2066", "\x9b1m", "\x08\x08", "\r", "<script>", "[red]", "\u200b"]
OBEYED = set("\x1b\x07\u202e\u2066\x9b\x08\r\u200b")


class Payload:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


@pytest.fixture
def copied(here, model_folder):
    """The small model in a folder that may be spoilt."""
    return Path(shutil.copytree(model_folder, "copied"))


def spoil(file):
    torch.save({"payload": Payload()}, file)


# -- pickles --------------------------------------------------------------------------------------------------------


def test_the_payload_would_run_if_it_were_unpickled(here):
    spoil("evil.pt")
    torch.load("evil.pt", weights_only=False)
    assert Path("pwned").is_dir()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.bin", "model.safetensors"])
def test_a_pickle_in_place_of_weights_is_refused_unread(refused, copied, name):
    (copied / "model.safetensors").unlink()
    spoil(copied / name)
    assert "cannot load model 'copied'" in refused("generate", "--model", copied, "--prompt", "the")


def test_a_pickle_beside_weights_is_left_alone(call, copied):
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        spoil(copied / name)
    assert call("generate", "--model", copied, "--prompt", "the", "--max_new_tokens", "2").code == 0
    assert not Path("pwned").exists()


def test_a_pickle_as_an_adapter_is_refused_unread(refused, copied):
    adapter = Path("adapter")
    adapter.mkdir()
    spoil(adapter / "adapter_model.bin")
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["c_attn"], "base_model_name_or_path": str(copied)}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    said = refused("generate", "--model", adapter, "--tokenizer", copied, "--prompt", "the")
    assert "only safetensors are read" in said
    assert not Path("pwned").exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_pickle_in_a_checkpoint_does_not_run(call, small_run, name):
    assert call("train", "mle", *small_run, "--out", "run").code == 0
    spoil(Path("run/checkpoint-2") / name)
    answer = call("train", "mle", *small_run, "--out", "run", "--resume", "--max_steps", "3")
    assert not Path("pwned").exists()
    assert "Traceback" not in answer.err
    if answer.code:  # where the file is read at all
        assert answer.code == 2
        assert answer.err.startswith("mgs: ")
        assert "weights_only" not in answer.err  # torch advises to turn it off


# -- code -----------------------------------------------------------------------------------------------------------

CODE = """
import os
from transformers import GPT2Config
os.mkdir("pwned")
class Config(GPT2Config):
    model_type = "evil"
"""


@pytest.fixture
def with_code(copied, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    config = json.loads((copied / "config.json").read_text())
    changed = config | {"model_type": "evil", "auto_map": {"AutoConfig": "code.Config"}}
    (copied / "config.json").write_text(json.dumps(changed))
    (copied / "code.py").write_text(CODE)
    monkeypatch.setattr("builtins.input", lambda *text: pytest.fail("the user was asked"))
    return copied


def test_code_beside_a_model_does_not_run(refused, with_code):
    assert "cannot load" in refused("generate", "--model", with_code, "--prompt", "the")


def test_code_beside_a_model_runs_when_the_user_says_so(call, with_code):
    call("generate", "--model", with_code, "--prompt", "the", "--trust_remote_code")
    assert Path("pwned").exists()


def test_a_file_cannot_say_so(refused, with_code):
    Path("c.yaml").write_text("trust_remote_code: true\n")
    assert "give the flag --trust_remote_code" in refused("generate", "--model", with_code, "--config", "c.yaml")


def test_a_run_does_not_hand_it_on(call, small_run):
    assert call("train", "mle", *small_run, "--out", "run", "--trust_remote_code").code == 0
    assert "trust_remote_code" not in Path("run/mgs.yaml").read_text()


@pytest.mark.parametrize("tag", ["object/apply:os.mkdir", "object/new:os.mkdir", "module:os", "name:os.mkdir", "tuple"])
def test_a_tag_in_a_configuration_makes_nothing(refused, here, tag):
    Path("c.yaml").write_text(f"seed: !!python/{tag} [pwned]\n")
    assert "cannot read the configuration 'c.yaml'" in refused("demo", "--config", "c.yaml")


def test_the_source_reads_nothing_that_could_act():
    for file in Path(mgs.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            assert name not in ("eval", "exec", "os.system", "pickle.load", "pickle.loads", "yaml.unsafe_load"), file
            if name == "torch.load":
                assert "weights_only=True" in ast.unparse(node), file
            if name == "yaml.load":
                assert ast.unparse(node.args[1]) == "Loader", file  # `mgs.cli.arguments.Loader`, a SafeLoader


# -- text -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def evil_model(here):
    """A model whose every word would be obeyed, in a folder of such a name."""
    vocabulary = {"<eos>": 0, "a": 1} | {word: number for number, word in enumerate(EVIL, start=2)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", unk_token="a")
    folder = Path("\x1b[31m\u202e<script>")
    torch.manual_seed(0)
    new_model("tiny", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Path("\x1b[31m.txt").write_text("a \x1b[31m \u202e <script> a a\n" * 20)
    return f"./{folder}"


def test_what_a_model_generated_cannot_move_the_cursor(call, evil_model):
    answer = call("generate", "--model", evil_model, "--prompt", "a", "a a", "--decoder", "sample")
    assert answer.code == 0, answer.err
    assert not OBEYED & set(answer.out)
    assert "\\x1b[31m" in answer.out
    assert "[red]" in answer.out  # nor is it markup of the tables


@pytest.mark.parametrize("command", ["evaluate", "data"])
def test_names_and_data_in_tables_cannot_either(call, evil_model, command):
    model = {"evaluate": ["--model", evil_model, "--max_new_tokens", "3"], "data": ["--tokenizer", evil_model]}
    answer = call(command, *model[command], "--data", "\x1b[31m.txt", "--context", "2")
    assert answer.code == 0, answer.err
    assert not OBEYED & set(answer.out + answer.err)
    assert "\\x1b[31m" in answer.out


def test_what_a_run_says_cannot_either(call, small_run):
    answer = call("train", "mle", *small_run, "--out", "\x1b[31m")
    assert answer.code == 0, answer.err
    assert not OBEYED & set(answer.out)


@pytest.mark.parametrize("option", ["--model", "--data", "--cost", "--decoder", "--config", "--\x1b[31m", "--seed"])
def test_errors_quote_without_obeying(refused, small_run, option):
    assert not OBEYED & set(refused("train", "mgs", *small_run, option, "".join(EVIL)))


def test_a_cost_that_quotes_what_it_was_given(call, small_run):
    Path("mine.py").write_text("def mine(h, r): raise ValueError('\\x1b[31m\\n' + '\\u202e' * 9)")
    answer = call("train", "mgs", *small_run, "--cost", "mine.py:mine", "--out", "run")
    assert answer.code == 2
    assert not OBEYED & set(answer.err)
    assert answer.err.count("\n") == 1


def test_tables_and_continuations_from_python(capsys):
    name = "".join(EVIL)
    figures_table({name: {"lm": 1.0}}, name, name)
    texts = {key: [Text(name, (1, 2), ended=False)] * 3 for key in ("MLE", "MGS-LM")}
    show_outputs(DemoResult("", {}, prefixes=[Text(name)] * 3, continuations=texts), range(3), list(texts))
    assert not OBEYED & set(capsys.readouterr().out)
    table = markdown_table({name + "|": {"lm": 1.0}})
    assert "<script>" not in table
    assert "&lt;script&gt;" in table
    assert table.splitlines()[2].count("|") == 3
