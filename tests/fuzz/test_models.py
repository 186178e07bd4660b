"""Model folders that are broken, and models and tokenizers that do not belong together."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

COMMANDS = [
    "evaluate --data text.txt --max_new_tokens 2 --context 3 --examples 2",
    "generate --data text.txt --max_new_tokens 2 --context 3 --num 2",
    "generate --prompt the --max_new_tokens 2",
    "train mgs --data text.txt --context 3 --report_to none --use_cpu true --eval_examples 2",
]
CONFIG, TOKENIZER, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
NAMES = [CONFIG, TOKENIZER, GENERATION, "tokenizer.json", "model.safetensors"]
EVIL = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", None]}
VALUES = {
    CONFIG: {
        "vocab_size": [0, 1, 50, 401, 1000, -1, "x", None],
        "n_positions": [0, 1, 2, 4, -1, 10**6, None],
        "n_layer": [0, 1, 3, "x"],
        "n_head": [0, 3, 64],
        "n_embd": [0, 63, 128],
        "model_type": ["", "bert", "t5", "nonsense", None, 3],
        "eos_token_id": [None, 10**6, -1, [1, 2], "x"],
        "pad_token_id": [None, 10**6, -1],
        "architectures": [None, [], ["Nonsense"], "x"],
        "dtype": ["float16", "bfloat16", "x", 3],
        "is_encoder_decoder": [True, "x"],
        "activation_function": ["nonsense", "relu"],
        "quantization_config": [{"quant_method": "x"}, {}],
        "tie_word_embeddings": [False, "x"],
        "auto_map": [EVIL],
    },
    TOKENIZER: {
        "eos_token": [None, "", "nonsense", "a", 3],
        "pad_token": [None, "nonsense"],
        "tokenizer_class": ["Nonsense", "BertTokenizer", None],
        "model_max_length": [0, -1, "x"],
        "auto_map": [EVIL],
    },
    GENERATION: {"eos_token_id": [None, "x", [], -1], "num_beams": [0, 5, "x"], "forced_eos_token_id": [0, 10**6]},
}
JUNK = [b"", b"\0" * 100, b"{", b"[]", b"null", b"{}", b"\x80\x02", b'"x"', b"\xff" * 16]
EXTRA = ["adapter_config.json", "model.safetensors.index.json", "pytorch_model.bin", "encoder.json", "vocab.bpe"]

#: What happens to a file of a whole folder: a key of it gets another value, it is replaced, cut off or missing.
changes = st.one_of(
    st.sampled_from([(file, (key, v)) for file, keys in VALUES.items() for key, vs in keys.items() for v in vs]),
    st.tuples(st.sampled_from(NAMES + EXTRA), st.sampled_from(JUNK) | st.binary(max_size=40)),
    st.tuples(st.sampled_from(NAMES), st.floats(0, 1) | st.none()),
)


def broken(whole, name, change):
    if isinstance(change, tuple):
        return json.dumps(json.loads(whole[name]) | dict([change])).encode()
    return whole[name][: int(len(whole[name]) * change)] if isinstance(change, float) else change


@pytest.fixture(scope="session")
def folder(models):
    """A whole model folder, as a value that hypothesis need not print; beside it code that must never run."""
    files = {file.name: file.read_bytes() for file in (models / "causal").iterdir()}
    evil = b"open('pwned', 'w')\nclass C: pass\nM = T = C\n"
    return lambda: files | {"evil.py": evil}


@settings(fuzz, max_examples=100)
@given(command=st.sampled_from(COMMANDS), mutations=st.lists(changes, min_size=1, max_size=2))
def test_broken_folders(judge, no_training, texts, folder, command, mutations):
    whole = folder()
    files = whole | {name: broken(whole, name, change) for name, change in mutations}
    files = {f"model/{name}": content for name, content in files.items() if content is not None}
    judge(*command.split(), "--model", "model", files=texts | files)


NOWHERE = ["", " ", "/", "~", "nowhere", "./nowhere", "no\0where", "x.gguf", "text.gguf", "a" * 500, "new:", "new:tiyn"]
NOWHERE += ["new:tiny", "small:", "\udc80", "owner/name", "a/b/c", "https://example.com/model", "new:iwslt-tiny"]


@pytest.mark.parametrize("name", NOWHERE)
def test_names(judge, no_training, words, texts, name):
    for command in COMMANDS[1:]:
        for argv in (["--model", name], [*words("--model causal"), "--tokenizer", name]):
            judge(*command.split(), *argv, files=texts | {"text.gguf": b"GGUF\0\0"})


@pytest.mark.parametrize("command", COMMANDS)
def test_models_and_tokenizers_that_do_not_match(judge, cheap, words, texts, command):
    for model in ("causal", "pairs", "new:tiny", "new:iwslt-tiny"):
        for tokenizer in ("causal", "pairs", "small"):
            for data in ("text.txt", "pairs.de,pairs.en"):
                judge(*words(f"{command} --model {model} --tokenizer {tokenizer} --data {data}"), files=texts)


def test_a_scorer_of_another_vocabulary_is_refused(judge, loaded, words, texts):
    answer = judge(*words(f"{COMMANDS[0]} --model small --scorer causal"), files=texts)
    assert "types of token" in answer.err
