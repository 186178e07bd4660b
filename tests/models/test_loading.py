import copy
import json
import lzma
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2LMHeadModel

from mgs.errors import UserError
from mgs.models import (
    PRESETS,
    load_model,
    load_tokenizer,
    loading,
    new_model,
    searched_parameters,
    train_tokenizer,
    window,
)
from mgs.models.loading import EOS

SENTENCE = " The captain of the ship never forgot two yellow birds."


def test_a_trained_tokenizer_has_the_size_asked_for_and_loses_nothing(tokenizer):
    assert len(tokenizer) == 400
    assert tokenizer.decode(tokenizer(SENTENCE)["input_ids"]) == SENTENCE
    assert tokenizer.decode(tokenizer("¿é\n✓ x")["input_ids"]) == "¿é\n✓ x"
    assert tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id) == EOS
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


def test_training_a_tokenizer_is_deterministic(sentences, tokenizer):
    assert train_tokenizer(sentences, 400).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_a_new_model_has_the_sizes_of_its_preset(tokenizer, preset):
    model = load_model(f"new:{preset}", tokenizer)
    sizes = PRESETS[preset]
    assert isinstance(model, GPT2LMHeadModel)
    assert len(model.transformer.h) == sizes["n_layer"]
    assert tuple(model.transformer.wte.weight.shape) == (len(tokenizer), sizes["n_embd"])
    assert model.config.eos_token_id == model.config.pad_token_id == tokenizer.eos_token_id
    assert window(model) == sizes["n_positions"] == 512


def test_a_new_model_is_drawn_from_the_global_seed(tokenizer):
    with torch.random.fork_rng():
        weights = [(torch.manual_seed(seed), new_model("tiny", tokenizer).lm_head.weight)[1] for seed in (5, 5, 6)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_saved_folder_loads_to_the_same_model_and_tokenizer(tmp_path, model, tokenizer):
    folder = str(tmp_path / "saved")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded, again = load_model(folder), load_tokenizer(folder)
    assert type(loaded) is type(model)
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert again(SENTENCE)["input_ids"] == tokenizer(SENTENCE)["input_ids"]
    assert again.eos_token_id == tokenizer.eos_token_id


def test_a_model_is_loaded_in_full_precision(tmp_path, llama):
    copy.deepcopy(llama).half().save_pretrained(tmp_path)
    assert {p.dtype for p in load_model(str(tmp_path)).parameters()} == {torch.float32}


def test_weights_that_are_not_safetensors_are_refused(tmp_path, gpt2):
    gpt2.config.save_pretrained(tmp_path)
    torch.save(gpt2.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"cannot load model .*safetensors"):
        load_model(str(tmp_path))


def test_a_tokenizer_without_padding_pads_with_eos(tmp_path, tokenizer):
    bare = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, eos_token=EOS)
    bare.save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).pad_token_id == tokenizer.eos_token_id


def test_a_model_without_a_tokenizer_is_told_to_name_one(tmp_path, gpt2):
    gpt2.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"there is no tokenizer in .*: name one with --tokenizer"):
        load_tokenizer(str(tmp_path))


@pytest.fixture
def released():
    """GPT-2's two files for a vocabulary of six types and three merges."""
    encoder = {"l": 0, "o": 1, "lo": 2, "Ġ": 3, "Ġlo": 4, EOS: 5}
    return {"encoder.json": json.dumps(encoder, ensure_ascii=False), "vocab.bpe": "#version: 0.2\nl o\nĠ lo\n"}


@pytest.mark.parametrize("compressed", [False, True])
def test_the_released_bpe_files_are_read_plain_and_compressed(tmp_path, released, compressed):
    for name, text in released.items():
        if compressed:
            (tmp_path / f"{name}.xz").write_bytes(lzma.compress(text.encode()))
        else:
            (tmp_path / name).write_text(text)
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer("lol lo" + EOS)["input_ids"] == [2, 0, 4, 5]
    assert tokenizer.decode([2, 0, 4]) == "lol lo"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (5, 5)


def test_a_broken_released_file_is_an_error_that_names_the_folder(tmp_path, released):
    (tmp_path / "encoder.json").write_text("{")
    (tmp_path / "vocab.bpe").write_text(released["vocab.bpe"])
    with pytest.raises(UserError, match=rf"cannot load tokenizer '{tmp_path}'"):
        load_tokenizer(str(tmp_path))


def test_searched_parameters_are_those_that_require_gradients(tokenizer):
    model = new_model("tiny", tokenizer)
    model.transformer.wpe.requires_grad_(False)
    names = set(searched_parameters(model))
    assert "transformer.wpe.weight" not in names
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names  # tied: appears once
    # 2 layers × (2 norms and 4 products, each with a bias), the last norm, the embedding
    assert len(names) == 2 * 12 + 2 + 1


def test_an_unknown_preset_names_the_nearest(tokenizer):
    with pytest.raises(
        UserError,
        match=r"unknown preset 'tinny': did you mean 'tiny'\? \(allowed: tiny, small, gpt2, iwslt, ",
    ):
        load_model("new:tinny", tokenizer)


def test_a_new_model_without_a_tokenizer_is_an_error():
    with pytest.raises(UserError, match="'new:tiny' starts from random weights and needs a tokenizer"):
        load_model("new:tiny")


@pytest.mark.parametrize(("fields", "expected"), [({"tokenizer.ggml.eos_token_id": 2}, "b"), ({}, "<eos>")])
def test_a_gguf_file_says_what_ends_a_sequence(tmp_path, monkeypatch, word_tokenizer, fields, expected):
    found = {name: SimpleNamespace(parts=[[0], [value]], data=[1]) for name, value in fields.items()}
    monkeypatch.setitem(sys.modules, "gguf", SimpleNamespace(GGUFReader=lambda file: SimpleNamespace(fields=found)))
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda path, **options: copy.deepcopy(word_tokenizer))
    (tmp_path / "model.gguf").touch()
    assert load_tokenizer(str(tmp_path / "model.gguf")).eos_token == expected


def test_a_gguf_file_is_unpacked_so_that_it_can_be_trained(tmp_path, monkeypatch, gpt2):
    """Of a model that it takes for a quantized one, the library's trainer wants nothing to do."""
    quantization = pytest.importorskip("transformers.utils.quantization_config")
    if not hasattr(quantization, "GgufConfig"):
        pytest.skip("this version of transformers always unpacks")
    given = {}
    whole = {"missing_keys": [], "mismatched_keys": []}
    monkeypatch.setattr(
        "mgs.models.loading.AutoModelForCausalLM.from_pretrained",
        lambda path, **options: given.update(options) or (gpt2, whole),
    )
    (tmp_path / "model.gguf").touch()
    assert load_model(str(tmp_path / "model.gguf")) is gpt2
    assert given["gguf_file"] == "model.gguf"
    assert given["quantization_config"].dequantize is True
    assert "use_safetensors" not in given


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_what_is_not_there_is_an_error_with_the_choices(tmp_path, monkeypatch, load):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no such model folder: '\./missing'"):
        load("./missing")
    with pytest.raises(UserError, match=r"no such model file: 'missing\.gguf'"):
        load("missing.gguf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"cannot load \w+ '.*empty': .*allowed: small, new:tiny, .*a folder, a \.gguf file"
    ):
        load(f"{tmp_path}/empty")


def test_a_missing_small_model_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("mgs.models.loading.SMALL", tmp_path)
    with pytest.raises(UserError, match="small model is not part of this installation"):
        load_model("small")
