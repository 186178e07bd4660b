"""Translation models: what they are made of, their likelihoods, and that they survive a folder."""

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from mgs.errors import UserError
from mgs.models import load_model, log_likelihoods, new_model, score, searched_parameters, token_log_likelihoods
from mgs.models.likelihood import scored_logits
from mgs.models.translation import TRANSLATION_PRESETS

PAIRS = [((5, 6, 7, 1), (8, 9, 1)), ((6, 1), (4, 5, 6, 7, 1)), ((9, 8, 7, 6, 5, 1), (1,))]


@pytest.fixture
def tokenizer():
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, 40)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return new_model("iwslt-tiny", tokenizer).eval()


def test_the_preset_is_the_papers(tokenizer):
    config = new_model("iwslt", tokenizer).config
    sizes = TRANSLATION_PRESETS["iwslt"]
    assert (config.encoder_layers, config.decoder_layers, config.d_model) == (6, 6, 512)
    assert (config.encoder_ffn_dim, config.decoder_attention_heads, config.dropout) == (1024, 4, 0.3)
    assert sizes["vocabulary"] == 10_000


def test_the_decoders_embeddings_are_its_output_and_not_the_encoders(model):
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    assert model.model.encoder.embed_tokens.weight is not model.model.decoder.embed_tokens.weight


def test_log_likelihoods_are_those_of_the_library_one_pair_at_a_time(model):
    sources, targets = zip(*PAIRS, strict=True)
    found = log_likelihoods(model, sources, targets).detach()
    for row, (source, target) in enumerate(PAIRS):
        labels = torch.tensor([target])
        loss = model(input_ids=torch.tensor([source]), labels=labels).loss  # a mean over the target's tokens
        assert float(found[row]) == pytest.approx(-float(loss.detach()) * len(target), rel=1e-5)


def test_scored_are_the_targets_tokens_and_padding_changes_nothing(model):
    sources, targets = zip(*PAIRS, strict=True)
    together, scored = token_log_likelihoods(model, sources, targets)
    assert scored.sum(dim=1).tolist() == [len(target) for target in targets]
    for row, (source, target) in enumerate(PAIRS):
        alone, _ = token_log_likelihoods(model, [source], [target])
        torch.testing.assert_close(together[row, : len(target)], alone[0], rtol=1e-5, atol=1e-5)
    assert score(model, sources, targets) == pytest.approx(together.sum(dim=1).tolist(), rel=1e-5)


def test_a_source_has_no_likelihood(model):
    with pytest.raises(UserError, match="source"):
        scored_logits(model, [(5, 1)], [(6, 1)], with_prefix=True)


def test_a_saved_model_is_loaded_as_what_it_is(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path)).eval()
    assert type(loaded) is type(model)
    sources, targets = zip(*PAIRS, strict=True)
    assert torch.equal(log_likelihoods(loaded, sources, targets), log_likelihoods(model, sources, targets))


def test_padding_must_not_be_the_end(tokenizer):
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(UserError, match="padding"):
        new_model("iwslt-tiny", tokenizer)


def test_sinusoidal_positions_stay_fixed_when_a_model_is_loaded_again(tokenizer, tmp_path):
    model = new_model("iwslt-tiny", tokenizer)
    model.save_pretrained(tmp_path)
    again = load_model(str(tmp_path))
    assert set(searched_parameters(again)) == set(searched_parameters(model))
    assert not any("embed_positions" in name for name in searched_parameters(again))
