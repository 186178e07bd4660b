import pytest
from torch import nn
from transformers import BertConfig, BertForMaskedLM, TrainingArguments

from mgs.errors import UserError
from mgs.models import train_tokenizer
from mgs.training import MGSConfig, MGSTrainer, MLEConfig, MLETrainer

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9}


@pytest.fixture
def given(make_model, word_tokenizer, letters, tmp_path):
    """Arguments of a trainer, some of them as told."""

    def give(trainer_type=MGSTrainer, config_type=MGSConfig, **others):
        told = {
            "model": make_model(),
            "cost": "edit",
            "args": config_type(str(tmp_path), report_to="none", use_cpu=True, context=2),
            "train_dataset": letters[:10],
            "processing_class": word_tokenizer,
        }
        if trainer_type is MLETrainer:
            del told["cost"]
        return trainer_type(**told | others)

    return give


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"model": "gpt2"}, r"MGSTrainer takes a model, got 'gpt2': load one, e.g. with mgs.load_model"),
        ({"model": None}, r"MGSTrainer takes a model, got None"),
        ({"model": nn.Linear(2, 2)}, r"a model that can generate, got a Linear: load it with AutoModelForCausalLM"),
        ({"model": BertForMaskedLM(BertConfig(**SIZES))}, r"a model that can generate, got a BertForMaskedLM"),
        ({"cost": 3}, r"a cost is a function or one of lm, edit, .*; got a int"),
        ({"processing_class": "gpt2"}, r"needs the model's tokenizer, got 'gpt2': pass processing_class=tokenizer"),
        ({"processing_class": None}, r"needs the model's tokenizer: pass processing_class=tokenizer"),
        (
            {"compute_metrics": print},
            "compute_metrics is not used by these trainers: a cost is what evaluations compute",
        ),
        ({"data_collator": print}, "data_collator is not used by these trainers: batch_tokens"),
        ({"args": "edit"}, r"MGSTrainer takes its options as `args`, of the type MGSConfig; got 'edit'"),
        ({"args": None}, r"of the type MGSConfig; got None"),
    ],
)
def test_an_argument_of_another_kind_is_refused(given, others, message):
    with pytest.raises(UserError, match=message) as caught:
        given(**others)
    assert "\n" not in str(caught.value)


def test_a_configuration_is_that_of_the_trainer(given, tmp_path):
    with pytest.raises(UserError, match="of the type MGSConfig; got a MLEConfig"):
        given(config_type=MLEConfig)
    with pytest.raises(UserError, match=r"MLETrainer takes .* of the type MLEConfig; got a TrainingArguments"):
        given(MLETrainer, args=TrainingArguments(str(tmp_path), report_to="none", use_cpu=True))


@pytest.mark.parametrize("held_out", [False, True])
def test_a_tokenizer_of_another_model_is_refused(given, sentences, letters, held_out):
    larger, known = train_tokenizer(sentences, 400), given(MLETrainer, MLEConfig).train_dataset
    data = {"train_dataset": known, "eval_dataset": sentences[:5]} if held_out else {"train_dataset": sentences[:5]}
    with pytest.raises(UserError, match="but the model knows 27 types of token only: they do not belong together"):
        given(MLETrainer, MLEConfig, processing_class=larger, **data)


def test_sequences_longer_than_the_window_are_counted(given, letters):
    long = [" ".join("abcdefgh" * 5), " ".join("abcdefgh" * 6)]
    told = r"2 of 12 sequences do not fit the model's window of 32 tokens, the longest of 49: .* max_length=32\)"
    with pytest.raises(UserError, match=told):
        given(train_dataset=letters[:10] + long)
    with pytest.raises(UserError, match=told):
        given(eval_dataset=letters[:10] + long)
    with pytest.raises(UserError, match=told):
        given().evaluate(letters[:10] + long)
