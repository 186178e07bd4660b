import copy
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model

from mgs.costs import repetition
from mgs.data import BatchStream, as_completions
from mgs.errors import CostError, UserError
from mgs.methods import MGS, MLE, MRT, PG, Key
from mgs.models import load_model
from mgs.training import MGSConfig, newest_checkpoint
from mgs.types import Text

METHODS = ["mle", "mgs", "mrt", "pg"]
SGD = {"optim": "sgd", "learning_rate": 1.0, "weight_decay": 0.0, "max_grad_norm": 0.0, "eval_strategy": "no"}


def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def length(hypotheses, references):
    return [float(len(h.token_ids)) for h in hypotheses]


# -- every method ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_each_trainer_changes_the_weights_and_logs_every_batch(make_trainer, entries, tmp_path, method):
    trainer = make_trainer(method, tmp_path, max_steps=3, gradient_accumulation_steps=2)
    before = weights_of(trainer.model)
    trainer.train()
    assert any(not torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    log = entries(tmp_path)
    assert [(entry["step"], entry["micro"]) for entry in log] == [(s, m) for s in (1, 2, 3) for m in (0, 1)]
    assert all(math.isfinite(entry["loss"]) for entry in log)


@pytest.mark.parametrize("method", METHODS)
def test_bf16_is_for_gradients_and_rounds_nothing_else(make_trainer, letters, tmp_path, method):
    """Or candidates would hardly differ from each other, and what is evaluated would be another model."""
    options = {"max_steps": 1, "learning_rate": 0.0, "weight_decay": 0.0, "eval_strategy": "no"}
    found = []
    for bf16 in (False, True):
        trainer = make_trainer(method, tmp_path / str(bf16), held_out=letters[:10], bf16=bf16, **options)
        trainer.train()
        found.append(trainer.figures(trainer.eval_dataset))
    assert found[0] == found[1]


def test_mgs_logs_what_its_search_did(make_trainer, entries, tmp_path):
    trainer = make_trainer("mgs", tmp_path, max_steps=3, num_candidates=6)
    batches = list(trainer.get_train_dataloader())
    trainer.train()
    for batch, entry in zip(batches, entries(tmp_path), strict=True):
        assert len(entry["costs"]) == len(entry["weights"]) == 6
        assert sum(entry["weights"]) == pytest.approx(1)
        assert 1 <= entry["effective"] <= 6
        assert entry["temperature"] == 1.0
        assert entry["winner"] in ("zero", "mle")
        mle = [w for w, c in zip(entry["weights"], entry["components"], strict=True) if c == "mle"]
        assert len(mle) == 3
        assert entry["guided_weight"] == pytest.approx(sum(mle))
        assert 0 < entry["gradient_norm"] <= 1 + 1e-6
        assert entry["update_norm"] > 0
        assert entry["target_lengths"] == [len(target) for target in batch.targets]


def test_a_probe_of_transfer_leaves_the_run_as_it_is(make_trainer, entries, assert_same_weights, tmp_path):
    options = {"max_steps": 4, "num_candidates": 6, "score_prefixes": 3, "eval_strategy": "no", "decoder": "sample"}
    plain = make_trainer("mgs", tmp_path / "plain", length, **options)
    probing = make_trainer("mgs", tmp_path / "probing", length, probe_transfer=2, **options)
    plain.train()
    probing.train()
    assert_same_weights(plain.model, probing.model)
    probes = {"transfer", "transfer_by", "probe_costs"}
    for one, other in zip(entries(tmp_path / "plain"), entries(tmp_path / "probing"), strict=True):
        assert one == {name: value for name, value in other.items() if name not in probes}
        assert (probes <= other.keys()) == (one["step"] in (1, 3))
        assert len(other.get("probe_costs", [0] * 6)) == 6


def test_the_prefixes_of_a_probe_are_training_data_apart_from_the_batch(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, eval_strategy="no")
    batch = trainer.get_train_dataloader().dataset[0]
    fresh = trainer.method.fresh(30, batch, Key(0, 3))
    assert len(fresh) == 30
    assert all(example in trainer.train_dataset.examples for example in fresh.examples)
    assert not any(example in batch.examples for example in fresh.examples)


def test_a_budget_is_counted_from_the_weights_at_the_start(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, likelihood_budget=0.02)
    start = weights_of(trainer.model)
    assert trainer.method.anchor is trainer.scorer  # which is frozen anyway
    trainer.train()
    for name, p in trainer.method.anchor.named_parameters():
        assert torch.equal(p, start[name])
        assert not p.requires_grad
    assert make_trainer("mgs", tmp_path).method.anchor is None


@pytest.mark.parametrize(("method", "key"), [("mrt", "risk"), ("pg", "baseline")])
def test_mrt_and_pg_log_their_samples_and_the_coin(make_trainer, entries, tmp_path, method, key):
    make_trainer(method, tmp_path, max_steps=6, mle_share=0.5, num_samples=3).train()
    log = entries(tmp_path)
    assert {entry["chose_mle"] for entry in log} == {0.0, 1.0}
    for entry in log:
        if entry["chose_mle"]:
            assert entry["loss"] == entry["mle_loss"]
        else:
            assert {"cost", "costs", "num_samples", "sample_length", key} <= entry.keys()
            assert entry["cost"] == pytest.approx(sum(entry["costs"]) / len(entry["costs"]))


def test_figures_of_updates_reach_the_librarys_own_log(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, max_steps=4, logging_steps=2, save_steps=4)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "effective" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    assert all({"loss", "learning_rate", "best_cost", "guided_weight"} <= entry.keys() for entry in logged)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_weights_and_another_does_not(make_trainer, assert_same_weights, tmp_path, method):
    trained = []
    for number, seed in enumerate((0, 0, 1)):
        trainer = make_trainer(method, tmp_path / str(number), max_steps=2, seed=seed, eval_strategy="no")
        trainer.train()
        trained.append(trainer.model)
    assert_same_weights(trained[0], trained[1])
    assert any(not torch.equal(a, b) for a, b in zip(trained[0].parameters(), trained[2].parameters(), strict=True))


def test_mgs_trains_a_llama(make_trainer, entries, tmp_path, llama, tokenizer, sentences):
    model = copy.deepcopy(llama)
    trainer = make_trainer(
        "mgs", tmp_path, "lm", model, sentences[:20], tokenizer=tokenizer, max_steps=2, batch_tokens=100, context=4
    )
    before = weights_of(model)
    trainer.train()
    assert all(not torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    assert len(entries(tmp_path)) == 2


# -- updates --------------------------------------------------------------------------------------------------------


def by_hand(trainer, model):
    """The trainer's method as a value, on another model."""
    made = {"mle": MLE, "mgs": MGS, "mrt": MRT, "pg": PG}[trainer.method.name]
    return made() if made is MLE else made(trainer.task)


@pytest.mark.parametrize("method", METHODS)
def test_accumulated_batches_count_as_the_mean_of_their_gradients(
    make_trainer, make_model, letters, word_tokenizer, tmp_path, method
):
    options = {} if method in ("mle", "mgs") else {"mle_share": 0.0}
    model = make_model(dropout=0.0)
    trainer = make_trainer(
        method, tmp_path, model=model, max_steps=1, gradient_accumulation_steps=3, seed=5, **options, **SGD
    )
    start = make_model(dropout=0.0)
    stream = BatchStream(as_completions(letters[:50], word_tokenizer, 2), 40, seed=5, num_batches=3)
    turn = by_hand(trainer, start)
    gradients = [turn(start, batch, Key(5, 0, micro)).gradient for micro, batch in enumerate(stream)]
    trainer.train()
    for name, p in trainer.model.named_parameters():
        mean = sum(gradient[name] for gradient in gradients) / 3
        torch.testing.assert_close(p.detach(), start.get_parameter(name) - mean, rtol=1e-4, atol=1e-6)


def test_a_last_group_with_fewer_batches_is_the_mean_of_those(
    make_trainer, make_model, letters, word_tokenizer, entries, tmp_path
):
    lines = letters[:12]
    data = as_completions(lines, word_tokenizer, 2)
    stream = BatchStream(data, 40, seed=0, num_epochs=1)
    assert len(stream) == 3
    model = make_model(dropout=0.0)
    trainer = make_trainer(
        "mle",
        tmp_path,
        model=model,
        train=lines,
        max_steps=-1,
        num_train_epochs=1,
        seed=0,
        gradient_accumulation_steps=2,
        **SGD,
    )
    hand = make_model(dropout=0.0)
    for group in ([stream[0], stream[1]], [stream[2]]):
        gradients = [MLE()(hand, batch, Key(0, 0)).gradient for batch in group]
        with torch.no_grad():
            for name, p in hand.named_parameters():
                p -= sum(gradient[name] for gradient in gradients) / len(group)
    trainer.train()
    assert [(entry["step"], entry["micro"]) for entry in entries(tmp_path)] == [(1, 0), (1, 1), (2, 0)]
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(p.detach(), hand.get_parameter(name).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_frozen_stays_bit_identical(make_trainer, make_model, tmp_path, method):
    model = make_model()
    model.transformer.wpe.weight.requires_grad_(False)
    model.transformer.h[0].attn.requires_grad_(False)
    trainer = make_trainer(method, tmp_path, model=model, max_steps=2, eval_strategy="no")
    before = weights_of(model)
    trainer.train()
    for name, p in trainer.model.named_parameters():
        assert torch.equal(before[name], p) != p.requires_grad, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", ["mgs", "pg"])
def test_lora_trains_its_adapters_and_nothing_else(make_trainer, tmp_path, llama, tokenizer, sentences, method, dtype):
    adapted = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = get_peft_model(copy.deepcopy(llama).to(dtype), adapted)  # the adapters are fp32 all the same
    trainer = make_trainer(
        method,
        tmp_path,
        model=model,
        train=sentences[:20],
        tokenizer=tokenizer,
        batch_tokens=100,
        context=4,
        max_steps=2,
    )
    before = weights_of(model)
    trainer.train()
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(before[name], p)}
    assert changed == {name for name in before if "lora_" in name}
    trainer.save_model(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "saved" / "model.safetensors").exists()
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


# -- costs ----------------------------------------------------------------------------------------------------------


def test_columns_of_the_dataset_reach_the_users_cost(make_trainer, letters, tmp_path):
    seen = []

    def weighted(hypotheses, references, importance, prefixes):
        assert all(isinstance(h, Text) for h in (*hypotheses, *references, *prefixes))
        seen.append((importance, [str(r) for r in references], [str(p) for p in prefixes]))
        return [weight * len(h.token_ids) for weight, h in zip(importance, hypotheses, strict=True)]

    rows = [{"text": line, "importance": float(i)} for i, line in enumerate(letters[:20])]
    trainer = make_trainer("mgs", tmp_path, weighted, train=rows, held_out=rows[:5], max_steps=1, eval_steps=1)
    trainer.train()
    assert len(seen) == 2 + 1  # the first candidate, what the others decode besides, and the evaluation
    for importance, references, prefixes in seen:
        lines = [f"{p} {r}" for p, r in zip(prefixes, references, strict=True)]
        assert lines == [letters[int(i)] for i in importance]
    assert seen[-1][0] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_mgs_takes_one_cost_for_the_whole_corpus_and_pg_says_that_it_cannot(make_trainer, entries, letters, tmp_path):
    def corpus(hypotheses, references):
        return sum(len(h.token_ids) for h in hypotheses) / sum(len(r.token_ids) for r in references)

    make_trainer("mgs", tmp_path / "mgs", corpus, held_out=letters[50:], max_steps=2, eval_steps=2).train()
    assert all(len(entry["costs"]) == 4 for entry in entries(tmp_path / "mgs"))
    assert entries(tmp_path / "mgs", evaluations=True)[0]["eval_cost"] > 0
    with pytest.raises(CostError, match="one value for the whole corpus"):
        make_trainer("pg", tmp_path / "pg", corpus, mle_share=0.0).train()


def test_a_base_cost_is_logged_on_request(make_trainer, entries, tmp_path):
    make_trainer("mgs", tmp_path, max_steps=1, log_base=True).train()
    (entry,) = entries(tmp_path)
    assert entry["loss"] == entry["cost"] > 0


# -- evaluation -----------------------------------------------------------------------------------------------------

COLUMNS = ("lm", "lm_with_prefix", "edit", "nontermination", "repetition", "length", "perplexity")


@pytest.mark.parametrize("method", METHODS)
def test_an_evaluation_gives_the_columns_and_the_cost(make_trainer, entries, letters, tmp_path, method):
    trainer = make_trainer(method, tmp_path, held_out=letters[50:], max_steps=2, eval_steps=2)
    trainer.train()
    metrics = trainer.evaluate()
    columns = COLUMNS[2:] if method == "mle" else COLUMNS
    assert metrics.keys() == {f"eval_{name}" for name in (*columns, *(() if method == "mle" else ("cost",)))}
    if method != "mle":
        assert metrics["eval_cost"] == metrics["eval_edit"]
    logged = entries(tmp_path, evaluations=True)
    assert logged[0] == {"step": 2, **metrics}
    assert trainer.evaluate(letters[:5], metric_key_prefix="more").keys() == {
        n.replace("eval", "more") for n in metrics
    }


@pytest.mark.parametrize("name", ["length", "perplexity", "repetition", "edit", "lm", "mine"])
def test_the_cost_of_an_evaluation_is_the_users_whatever_it_is_called(make_trainer, letters, tmp_path, name):
    def cost(hypotheses, references):
        return [100.0 + len(hypothesis.token_ids) for hypothesis in hypotheses]

    cost.__name__ = name
    metrics = make_trainer("mgs", tmp_path, cost, held_out=letters[50:]).evaluate()
    assert metrics["eval_cost"] == pytest.approx(100 + metrics["eval_length"])


def test_a_sequence_too_short_to_repeat_anything_costs_nothing_and_has_no_part_in_the_column(
    make_trainer, letters, tmp_path
):
    trainer = make_trainer("mgs", tmp_path, "repetition", held_out=letters[50:])
    metrics = trainer.evaluate()
    costs = repetition(trainer.last_evaluation.hypotheses, [])
    assert metrics["eval_cost"] == pytest.approx(sum(costs) / len(costs))


def test_the_scoring_model_is_the_start_however_far_training_goes(make_trainer, letters, tmp_path):
    trainer = make_trainer("mgs", tmp_path, "lm", held_out=letters[50:], max_steps=2, eval_strategy="no")
    start = weights_of(trainer.model)
    trainer.train()
    assert all(torch.equal(start[name], p) for name, p in trainer.scorer.named_parameters())
    assert not any(p.requires_grad for p in trainer.scorer.parameters())


def test_without_held_out_data_there_is_nothing_to_evaluate_on(make_trainer, tmp_path):
    trainer = make_trainer("mgs", tmp_path, max_steps=1)
    trainer.train()
    with pytest.raises(UserError, match="nothing to evaluate on: give an eval_dataset"):
        trainer.evaluate()


class Scripted:
    """Evaluations cost what the script says, whatever was decoded; candidates cost their length."""

    def __init__(self, script, num_held_out):
        self.script, self.num_held_out = iter(script), num_held_out

    def __call__(self, hypotheses, references):
        return next(self.script) if len(hypotheses) == self.num_held_out else length(hypotheses, references)


@pytest.mark.parametrize("keep_best", [True, False])
def test_training_stops_when_patience_ends_and_keeps_the_best(
    make_trainer, assert_same_weights, letters, tmp_path, keep_best
):
    cost = Scripted([5.0, 3.0, 4.0, 3.5, 2.0, 1.0], num_held_out=30)
    trainer = make_trainer(
        "mgs", tmp_path, cost, held_out=letters[30:], max_steps=6, eval_steps=1, patience=2, keep_best=keep_best
    )
    trainer.train()
    assert trainer.state.global_step == (4 if keep_best else 6)  # the second was best, then two without a better one
    if keep_best:
        assert trainer.state.best_metric == 3.0
        assert_same_weights(trainer.model, load_model(str(tmp_path / "checkpoint-2")))


def test_where_no_bars_are_wanted_writing_shows_none(make_trainer, tmp_path, capfd):
    make_trainer("mle", tmp_path, max_steps=1, eval_strategy="no", disable_tqdm=True).train()
    assert "Writing" not in capfd.readouterr().err


# -- mistakes -------------------------------------------------------------------------------------------------------


def test_a_trainer_says_what_it_misses(make_trainer, make_model, letters, word_tokenizer, tmp_path):
    model = make_model()
    model.requires_grad_(False)
    with pytest.raises(UserError, match="no parameter of the model has requires_grad"):
        make_trainer("mgs", tmp_path, model=model)
    with pytest.raises(UserError, match=r"weights are torch.bfloat16, .* load it with dtype=torch.float32"):
        make_trainer("mgs", tmp_path, model=make_model().to(torch.bfloat16))
    with pytest.raises(UserError, match="unknown cost 'edti': did you mean 'edit'"):
        make_trainer("mgs", tmp_path, "edti")
    with pytest.raises(UserError, match="dataset is empty"):
        make_trainer("mle", tmp_path, train=[])
    with pytest.raises(UserError, match=r"all 2 sequences .* too short"):
        make_trainer("mle", tmp_path, train=["a", "b"])
    with pytest.raises(UserError, match="do not fit the model's window of 32"):
        make_trainer("mle", tmp_path, train=[" ".join("abcdefgh" * 5)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "name", "allowed"),
    [
        ("mgs", "perplexty", "did you mean 'perplexity'?"),
        ("mgs", "bleu", "allowed: cost, lm, lm_with_prefix, edit, "),
        ("mle", "cost", "allowed: edit, nontermination, "),
    ],
)
def test_a_figure_that_no_evaluation_has_is_refused_before_training(
    make_trainer, letters, tmp_path, method, name, allowed
):
    with pytest.raises(UserError, match=f"unknown best_by '{name}'") as caught:
        make_trainer(method, tmp_path, held_out=letters[50:], best_by=name)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_the_figures_that_can_choose_are_those_of_an_evaluation(make_trainer, letters, tmp_path, method):
    trainer = make_trainer(method, tmp_path, held_out=letters[50:])
    assert list(trainer.figures(trainer.eval_dataset)) == trainer.known_figures(False)


def test_the_callers_configuration_stays_as_it_was(make_trainer, letters, tmp_path):
    config = MGSConfig(str(tmp_path), max_steps=-1, eval_steps=1, report_to="none", use_cpu=True, context=2)
    before = config.to_dict()
    for held_out in (None, letters[50:]):
        trainer = make_trainer("mgs", tmp_path, args=config, train=letters[:2], held_out=held_out)
        trainer.train()
        assert (trainer.last_evaluation is not None) == (held_out is not None)
    assert config.to_dict() == before


def test_to_predict_is_to_evaluate(make_trainer, letters, tmp_path):
    with pytest.raises(UserError, match=r"evaluate\(dataset\) decodes"):
        make_trainer("mle", tmp_path).predict(letters)


@pytest.mark.parametrize("method", ["mle", "mgs"])
def test_a_trainer_needs_a_tokenizer(make_trainer, make_model, letters, tmp_path, method):
    ready = make_trainer(method, tmp_path)
    cost = [] if method == "mle" else ["edit"]
    with pytest.raises(UserError, match="pass processing_class=tokenizer"):
        type(ready)(make_model(), *cost, ready.args, letters)
