"""Small things learned for real: each trainer must improve what it minimises by more than doing nothing could."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mgs.training import MGSConfig, MGSTrainer, MLEConfig, MLETrainer, MRTConfig, MRTTrainer, PGConfig, PGTrainer

CAP = 12
SGD = {"optim": "sgd", "learning_rate": 1.0, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def alphabet():
    """Lines that go through the alphabet from some letter to `h`: after two letters the rest is certain."""
    return [" ".join("abcdefgh"[start:]) for start in range(6)] * 4


@pytest.fixture
def make(tmp_path, word_tokenizer, alphabet):
    """A trainer of a model that knows nothing: it says every word about as often, and hardly ever ends."""

    def trainer(trainer_type, config_type, *cost, **options):
        config = GPT2Config(
            vocab_size=27, n_positions=32, n_embd=32, n_layer=1, n_head=2, eos_token_id=0, pad_token_id=0
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = GPT2LMHeadModel(config)
        settings = {
            "output_dir": str(tmp_path),
            "seed": 0,
            "batch_tokens": 64,
            "context": 2,
            "max_new_tokens": CAP,
            "eval_max_new_tokens": CAP,
            "eval_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
        }
        return trainer_type(
            model,
            *cost,
            config_type(**settings | options),
            alphabet,
            eval_dataset=alphabet,
            processing_class=word_tokenizer,
        )

    return trainer


def before_and_after(trainer):
    before = trainer.evaluate()
    trainer.train()
    return before, trainer.evaluate()


def length(hypotheses, references):
    return [float(len(hypothesis.token_ids)) for hypothesis in hypotheses]


def test_mle_learns_the_alphabet(make):
    before, after = before_and_after(make(MLETrainer, MLEConfig, max_steps=80, learning_rate=0.01))
    assert before["eval_perplexity"] > 20  # 27 words
    assert after["eval_perplexity"] < 1.2
    assert before["eval_edit"] > 0.8
    assert after["eval_edit"] == 0  # it decodes every line to its end


SEARCH = {"noise": 0.0, "num_gradients": 3, "lengths": [0.3, 1.0], "num_candidates": 8, "temperature": "auto"}


def test_mgs_lowers_the_cost_of_what_is_decoded_below_what_the_data_teach(make):
    trainer = make(MGSTrainer, MGSConfig, length, max_steps=30, effective_share=0.2, **SEARCH, **SGD)
    before, after = before_and_after(trainer)
    assert before["eval_cost"] == CAP
    assert after["eval_cost"] < 3  # MLE alone would end at the lines' own 4.5


def test_mgs_learns_to_end(make):
    trainer = make(MGSTrainer, MGSConfig, "nontermination", max_steps=30, effective_share=0.2, **SEARCH, **SGD)
    before, after = before_and_after(trainer)
    assert before["eval_cost"] == before["eval_nontermination"] == 1
    assert after["eval_cost"] == after["eval_nontermination"] < 0.2


def test_mgs_with_the_published_proposal_lowers_the_cost_as_well(make):
    before, after = before_and_after(make(MGSTrainer, MGSConfig, length, max_steps=40, learning_rate=0.01))
    assert before["eval_cost"] == CAP
    assert after["eval_cost"] < 3


@pytest.mark.parametrize(("trainer_type", "config_type"), [(MRTTrainer, MRTConfig), (PGTrainer, PGConfig)])
def test_mrt_and_pg_lower_the_cost_that_they_expect(make, trainer_type, config_type):
    options = {"max_steps": 60, "learning_rate": 0.01, "mle_share": 0.0, "decoder": "sample"}
    before, after = before_and_after(make(trainer_type, config_type, length, **options))
    assert before["eval_cost"] > 6  # a word in 27 ends a sample
    assert after["eval_cost"] < 3


def test_without_updates_nothing_is_learned(make):
    before, after = before_and_after(
        make(PGTrainer, PGConfig, length, max_steps=3, learning_rate=0.0, decoder="sample")
    )
    assert before == after
