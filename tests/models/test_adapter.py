import copy
import json
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model

from mgs.errors import UserError
from mgs.models import load_model, load_tokenizer, searched_parameters


@pytest.fixture
def folders(tmp_path, llama, tokenizer):
    """A model with its tokenizer, and a LoRA of it."""
    base, lora = tmp_path / "base", tmp_path / "lora"
    llama.save_pretrained(base)
    tokenizer.save_pretrained(base)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        how = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
        model = get_peft_model(copy.deepcopy(llama), how)
    model.peft_config["default"].base_model_name_or_path = str(base)
    model.save_pretrained(lora)
    return lora, model.eval()


def test_an_adapter_is_loaded_with_its_model_and_is_what_is_trained(folders, tokenizer):
    lora, model = folders
    loaded = load_model(str(lora)).eval()
    tokens = torch.tensor([[5, 6, 7]])
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    searched = searched_parameters(loaded)
    assert searched.keys() == searched_parameters(model).keys()
    assert all("lora_" in name for name in searched)
    assert load_tokenizer(str(lora)).get_vocab() == tokenizer.get_vocab()  # its model's, where it has none of its own


def test_an_adapter_that_cannot_be_loaded_is_a_sentence(folders, monkeypatch):
    lora, _ = folders
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "peft", None)
        with pytest.raises(UserError, match="is an adapter, which takes `peft` to load"):
            load_model(str(lora))
    (lora / "adapter_model.safetensors").rename(lora / "adapter_model.bin")
    with pytest.raises(UserError, match=r"an adapter without adapter_model.safetensors"):
        load_model(str(lora))
    for base in ("", str(lora)):
        (lora / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        with pytest.raises(UserError, match="has to name a model in base_model_name_or_path"):
            load_model(str(lora))
    (lora / "adapter_config.json").write_text("{")
    with pytest.raises(UserError, match=r"adapter_config.json cannot be read"):
        load_tokenizer(str(lora))
