"""Runs of one, two and three processes: the same weights, bit for bit, where candidates are dealt to them; the same
gradients, but for rounding, where rows are."""

import json
import math
import warnings

import pytest
import torch
from safetensors.torch import load_file

from mgs.errors import CostError

SETTINGS = {"eval_steps": 2, "save_steps": 2, "max_steps": 3, "num_candidates": 5}
SMALL = 4096  # bytes


def log_of(folder, but=("exchanged_bytes",)):
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in entry.items() if name not in but} for entry in entries]


@pytest.fixture
def run(make_trainer, finish, letters, tmp_path):
    """Train in processes and save; the folder."""

    def train(num, method="mgs", name=None, **options):
        folder = tmp_path / (name or f"{method}{num}")

        def target():
            trainer = make_trainer(method, folder, held_out=letters[50:], **options)
            trainer.train()
            assert trainer.model_wrapped is trainer.model  # nobody else's exchange of gradients
            trainer.save_model()

        finish(target, num)
        return folder

    return train


@pytest.mark.parametrize(
    "options",
    [
        {"cost": "lm"},
        {"cost": "edit", "rank": 1, "num_candidates": 2, "log_base": True},
        {"cost": "lm", "decoder": "beam-2", "gradient_accumulation_steps": 2, "max_steps": 2},
        {"cost": "lm", "decoder": "sample", "keep_best": False, "temperature": "auto"},
        {"cost": "lm", "likelihood_weight": 0.3, "likelihood_budget": 0.0, "num_candidates": 9, "lengths": [0.1, 1.0]},
        {"decoder": "sample", "halvings": 2, "score_prefixes": 4, "score_apart": True, "log_base": True, "stay": True},
        {"cost": "edit", "probe_transfer": 2, "num_gradients": 2, "likelihood_weight": 1.0, "rank": 1},
        {"cost": "lm", "guides": ["mle", "decoded"], "guide_prefixes": 3, "num_candidates": 5},
        {"cost": "lm", "likelihood_budget": 0.05, "length_unit": "budget", "num_gradients": 2, "num_candidates": 5},
        {"cost": "lm", "guides": ["stops", "mle"], "walk_steps": 2, "walk_rows": 3},
        {"cost": "lm", "recipe": "dependable", "batch_tokens": 64, "score_prefixes": 2, "guide_prefixes": 3},
    ],
    ids=[
        "lm",
        "low rank, fewer candidates than processes",
        "beams",
        "samples",
        "likelihood",
        "halvings",
        "probes of transfer",
        "decoded",
        "lengths in likelihood",
        "walks",
        "the dependable recipe",
    ],
)
def test_candidates_dealt_to_processes_give_the_same_weights_and_log(run, options):
    one, two, three = (run(num, **SETTINGS | options) for num in (1, 2, 3))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert (one / "model.safetensors").read_bytes() == (three / "model.safetensors").read_bytes()
    assert log_of(one) == log_of(two) == log_of(three)
    sent = [entry["exchanged_bytes"] for entry in log_of(three, ()) if "micro" in entry]
    assert all(0 < num < SMALL for num in sent)
    assert len(sent) > 1


def test_the_number_of_processes_may_change_when_a_run_is_resumed(run, make_trainer, finish, letters):
    options = {"cost": "lm", "save_steps": 1, "eval_steps": 2, "max_steps": 4}
    one = run(1, name="one", **options)
    changing = run(2, name="changing", **options | {"max_steps": 2})

    def target():
        trainer = make_trainer("mgs", changing, held_out=letters[50:], **options)
        trainer.train(resume_from_checkpoint=True)
        trainer.save_model()

    finish(target, 3)
    assert (one / "model.safetensors").read_bytes() == (changing / "model.safetensors").read_bytes()
    assert log_of(one) == log_of(changing)


def test_what_is_exchanged_does_not_depend_on_the_model(run, make_model, word_tokenizer):
    small, large = make_model(), make_model()
    large.config.n_embd = 64
    large = type(large)(large.config)
    sent = []
    for name, model in (("small", small), ("large", large)):
        folder = run(2, name=name, model=model, cost=constant, max_steps=1, eval_strategy="no")
        sent.append([entry["exchanged_bytes"] for entry in log_of(folder, ())])
    assert sent[0] == sent[1]
    assert 0 < sent[0][0] < 1000


def constant(hypotheses, references):
    return [1.0] * len(hypotheses)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("mle", {"loss_on_prefix": True}),
        ("mle", {"batch_tokens": 10}),  # batches of a row
        ("mrt", {"mle_share": 0.5, "max_steps": 4}),
        ("pg", {"mle_share": 0.3, "max_steps": 4, "batch_tokens": 24}),
        ("mgs", {"shard_data": True, "num_gradients": 2, "noise": 0.0, "log_base": True}),
        ("mgs", {"shard_data": True, "score_prefixes": 1, "decoder": "sample"}),
        ("mgs", {"shard_data": True, "halvings": 1, "decoder": "sample", "likelihood_budget": 0.01, "lengths": [0.3]}),
        ("mgs", {"shard_data": True, "guides": ["stops", "mle"], "walk_steps": 2, "walk_rows": 3}),
        ("mgs", {"shard_data": True, "guides": ["decoded", "mle"], "guide_prefixes": 4, "noise": 0.0, "cost": "lm"}),
        ("mgs", {"shard_data": True, "guides": ["decoded"], "guide_prefixes": 2, "noise": 0.0, "cost": "lm"}),
        ("mgs", {"shard_data": True, "guides": ["ends"], "noise": 0.0, "cost": "lm"}),
        ("mgs", {"shard_data": True, "guides": ["loops"], "noise": 0.0, "cost": "lm", "max_new_tokens": 24}),
    ],
    ids=[
        *("mle", "mle of single rows", "mrt", "pg", "mgs", "mgs that scores one row", "mgs with likelihoods"),
        "mgs with walks",
        *("mgs guided by what it decodes", "mgs guided by fewer rows than processes", "mgs guided by ends"),
        "mgs guided by loops",
    ],
)
def test_rows_dealt_to_processes_give_the_same_weights_but_for_rounding(run, make_model, method, options):
    options = {"eval_strategy": "no", "optim": "sgd", "max_steps": 3} | options
    one, three = (run(num, method, model=make_model(dropout=0.0), **options) for num in (1, 3))
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (one, three))
    start = make_model().state_dict()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)
    assert any(not torch.allclose(ours[name], start[name], atol=1e-4) for name in ours)
    for mine, other in zip(log_of(one), log_of(three), strict=True):
        assert mine.keys() == other.keys()
        assert close(mine, other)


def close(one, other):
    """The same but for rounding, also within lists and tables."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other if one is None or isinstance(one, str) else one == pytest.approx(other, abs=1e-3)


def test_dropout_differs_from_process_to_process_where_rows_do(run, make_model):
    one, two = (run(num, "mle", max_steps=1, eval_strategy="no") for num in (1, 2))
    assert log_of(one)[0]["loss"] != pytest.approx(log_of(two)[0]["loss"], abs=1e-4)


@pytest.mark.parametrize("method", ["mgs", "mrt", "pg"])
def test_a_cost_that_fails_in_one_process_stops_all_with_the_same_sentence(make_trainer, finish, tmp_path, method):
    def failing(hypotheses, references):
        if torch.distributed.get_rank() == 1:
            raise ValueError("no more quota")
        return [1.0] * len(hypotheses)

    options = {"mle_share": 0.0} if method != "mgs" else {}

    def target():
        trainer = make_trainer(method, tmp_path, failing, eval_strategy="no", **options)
        with pytest.raises(CostError, match="'failing' raised ValueError: no more quota") as caught:
            trainer.train()
        assert caught.value.everywhere

    finish(target, 2)


@pytest.mark.parametrize("method", ["mgs", "pg"])
def test_an_update_is_skipped_by_all_or_by_none(make_trainer, finish, tmp_path, method):
    def sometimes(hypotheses, references):
        calls.append(1)
        wrong = torch.distributed.get_rank() == 1 and len(calls) == 1
        return [math.nan if wrong else float(len(set(h.token_ids))) for h in hypotheses]

    calls = []
    options = {"mle_share": 0.0} if method != "mgs" else {}

    def target():
        trainer = make_trainer(method, tmp_path, sometimes, nonfinite="skip", eval_strategy="no", **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.train()
        assert trainer.skipped == 1
        trainer.check_same_weights()

    finish(target, 2)
    assert [entry["step"] for entry in log_of(tmp_path) if "why" in entry] == [1]


def test_a_cost_of_the_whole_corpus_cannot_be_pooled(make_trainer, finish, tmp_path):
    def corpus(hypotheses, references):
        return 1.0

    def target():
        trainer = make_trainer("mgs", tmp_path, corpus, shard_data=True, eval_strategy="no")
        with pytest.raises(CostError, match="leave out shard_data"):
            trainer.train()

    finish(target, 2)


def test_processes_that_start_from_different_weights_are_refused(make_trainer, make_model, finish, tmp_path):
    def target():
        trainer = make_trainer("mgs", tmp_path, eval_strategy="no")
        trainer.model.load_state_dict(make_model(seed=trainer.ranks.rank).state_dict())
        with pytest.raises(ValueError, match="start from different weights"):
            trainer.train()

    finish(target, 2)


def test_weights_that_have_drifted_apart_are_the_first_ones_again(make_trainer, finish, tmp_path):
    def target():
        trainer = make_trainer("mgs", tmp_path, eval_strategy="no")
        weight = trainer.model.lm_head.weight
        start = weight.detach().clone()
        weight.data += trainer.ranks.rank
        trainer.align_weights()
        assert torch.equal(weight, start)

    finish(target, 2)
