"""The same trainers on an encoder-decoder model."""

import warnings

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from mgs.data import load_pairs
from mgs.models import new_model
from mgs.models.subwords import train_joint_bpe
from mgs.training import (
    MGSConfig,
    MGSTrainer,
    MLEConfig,
    MLETrainer,
    MRTConfig,
    MRTTrainer,
    PGConfig,
    PGTrainer,
)

WORDS = [("rot", "red"), ("grün", "green"), ("haus", "house"), ("baum", "tree")]
PAIRS = [(f"{a} {b}", f"{x} {y}") for a, x in WORDS for b, y in WORDS]
COMMON = {"batch_tokens": 200, "report_to": "none", "save_strategy": "no", "keep_best": False, "eval_max_new_tokens": 8}


@pytest.fixture(scope="module")
def tokenizer():
    return train_joint_bpe([side for pair in PAIRS for side in pair], 300)


@pytest.fixture
def pairs(tokenizer, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return load_pairs(str(file), tokenizer)


@pytest.fixture
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return new_model("iwslt-tiny", tokenizer)


def test_maximum_likelihood_learns_to_translate_words(model, tokenizer, pairs, tmp_path):
    config = MLEConfig(
        output_dir=str(tmp_path),
        max_steps=150,
        learning_rate=3e-3,
        eval_steps=150,
        label_smoothing_factor=0.1,
        **COMMON,
    )
    trainer = MLETrainer(model, config, pairs, eval_dataset=pairs, processing_class=tokenizer)
    before = trainer.evaluate()
    assert list(before) == [f"eval_{name}" for name in trainer.known_figures(True)]
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_edit"] < 0.1 < 0.8 < before["eval_edit"]
    assert after["eval_perplexity"] < 2 < before["eval_perplexity"]


@pytest.mark.parametrize(
    ("trainer", "config"), [(MGSTrainer, MGSConfig), (MRTTrainer, MRTConfig), (PGTrainer, PGConfig)]
)
def test_every_method_updates_an_encoder_decoder_model(trainer, config, model, tokenizer, pairs, tmp_path):
    options = config(output_dir=str(tmp_path), max_steps=2, eval_steps=2, learning_rate=1e-3, **COMMON)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made = trainer(model, "edit", options, pairs, eval_dataset=pairs[:4], processing_class=tokenizer)
    made.train()
    changed = [name for name, tensor in made.model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"} <= set(changed)
    assert not any("embed_positions" in name for name in changed)  # frozen, and shared by all candidates


def test_a_budget_of_likelihood_for_a_model_that_no_cost_needs_a_copy_of(model, tokenizer, pairs, tmp_path, entries):
    config = MGSConfig(
        output_dir=str(tmp_path),
        max_steps=2,
        eval_strategy="no",
        likelihood_budget=0.0,
        likelihood_weight=0.1,
        lengths=[-1.0, 1.0],
        noise=0.0,
        num_candidates=6,
        mix=0.0,
        **COMMON,
    )
    trainer = MGSTrainer(model, "sbleu", config, pairs, processing_class=tokenizer)
    assert trainer.scorer is None
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer.train()
    assert all(torch.equal(p, start[name]) for name, p in trainer.method.anchor.named_parameters())
    assert any(not torch.equal(p, start[name]) for name, p in model.named_parameters())
    log = entries(tmp_path)
    assert [(weight == 0) for weight in log[0]["weights"]] == [length < 0 for length in log[0]["lengths"]]
    assert log[0]["refused"] == 3


def test_a_model_that_the_library_itself_has_loaded_is_searched_as_one_batch(model, tokenizer, pairs, tmp_path):
    """Its loader turns the fixed table of positions into a parameter like others, which no batch of candidates can have
    in common."""
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "saved")
    assert loaded.model.encoder.embed_positions.weight.requires_grad
    config = MGSConfig(output_dir=str(tmp_path / "run"), max_steps=1, **COMMON)
    trainer = MGSTrainer(loaded, "sbleu", config, pairs, processing_class=tokenizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*one at a time.*")
        trainer.train()
    assert not loaded.model.encoder.embed_positions.weight.requires_grad
