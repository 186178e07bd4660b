"""`--task translation`: pairs in, a model that is trained, evaluated and asked to translate."""

import json

import pytest

FLAGS = ("--batch_tokens", 120, "--report_to", "none", "--max_new_tokens", 6, "--eval_max_new_tokens", 6)
WORDS = [("rot", "red"), ("grün", "green"), ("haus", "house"), ("baum", "tree"), ("hund", "dog"), ("alt", "old")]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"{a} {b} {c}\t{x} {y} {z}" for a, x in WORDS for b, y in WORDS for c, z in WORDS]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def trained(call, pairs, here):
    """A new model after two updates."""
    answer = call(
        *("train", "mle", "--model", "new:iwslt-tiny", "--data", pairs, "--lowercase", "--out", here / "start"),
        *("--max_steps", 2, "--eval_steps", 2, "--label_smoothing_factor", 0.1, *FLAGS),
        *("--lr_scheduler_type", "inverse_sqrt", "--warmup_steps", 2, "--adam_beta2", 0.98),
    )
    assert answer.code == 0, answer.err
    return here / "start", answer


def test_a_model_from_scratch_with_its_own_bpe_and_the_papers_table(trained):
    folder, answer = trained
    assert "BLEU" in answer.out
    assert "SBLEU" in answer.out
    assert "bleu:beam-5" in answer.out
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any("eval_bleu" in entry for entry in entries)
    assert (folder / "tokenizer.json").is_file()
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["best_metric"] == [entry["eval_bleu"] for entry in entries if "eval_bleu" in entry][-1]
    assert "task: translation" in (folder / "mgs.yaml").read_text()


@pytest.mark.parametrize(
    ("method", "cost"), [("mgs", "sbleu"), ("mgs", "bleu"), ("mgs", "chrf"), ("mrt", "edit"), ("pg", "sbleu")]
)
def test_every_method_fine_tunes_it(trained, call, pairs, here, method, cost):
    folder, _ = trained
    answer = call(
        *("train", method, "--model", folder, "--data", pairs, "--cost", cost, "--out", here / method),
        *("--max_steps", 1, "--eval_steps", 1, "--eval_examples", 5, "--gradient_accumulation_steps", 2, *FLAGS),
    )
    assert answer.code == 0, answer.err
    figures = [json.loads(line) for line in (here / method / "metrics.jsonl").read_text().splitlines()][-1]
    assert 0 <= figures["eval_cost"] <= 1
    assert "cost: " + cost in (here / method / "mgs.yaml").read_text()


def test_the_default_cost_is_sentence_bleu_on_all_of_the_held_out_pairs(trained, call, pairs, here):
    folder, _ = trained
    call("train", "mgs", "--model", folder, "--data", pairs, "--out", here / "run", "--max_steps", 1, *FLAGS)
    resolved = (here / "run" / "mgs.yaml").read_text()
    assert "cost: sbleu" in resolved
    assert "eval_examples: 0" in resolved


def test_evaluate_and_generate_and_data_know_the_task_from_the_model(trained, call, pairs, here):
    folder, _ = trained
    answer = call("evaluate", "--model", folder, "--data", pairs, "--split", "test", "--json", here / "figures.json")
    assert answer.code == 0, answer.err
    (figures,) = json.loads((here / "figures.json").read_text())["rows"].values()
    assert {"bleu", "sbleu", "edit", "perplexity"} <= set(figures)
    answer = call("generate", "--model", folder, "--prompt", "Rot Haus", "grün baum", "--max_new_tokens", 3)
    assert answer.out.startswith("rot haus ▸ ")  # the tokenizer lowercases
    assert answer.out.count("▸") == 2
    answer = call("data", "--task", "translation", "--data", pairs, "--tokenizer", folder, "--json")
    assert json.loads(answer.out)["pairs"] == len(WORDS) ** 3


def test_a_task_that_the_model_is_not_for_is_refused(trained, call, pairs, model_folder, text_file):
    folder, _ = trained
    answer = call("evaluate", "--task", "completion", "--model", folder, "--data", text_file)
    assert answer.code == 2
    assert "needs a causal model" in answer.err
    answer = call("evaluate", "--task", "translation", "--model", model_folder, "--data", pairs)
    assert answer.code == 2
    assert "needs an encoder-decoder" in answer.err


def test_mistakes_get_a_sentence(refused, pairs, trained, call):
    folder, _ = trained
    assert "unknown task 'translate'" in refused("data", "--task", "translate")
    assert "'de-en'" in refused("data", "--task", "translation", "--data", pairs, "--languages", "de")
    answer = call("generate", "--model", folder, "--prompt", "rot " * 600)
    assert answer.code == 2
    assert "does not fit the model's window of 512" in answer.err


def test_random_weights_are_not_evaluated_before_training(trained):
    folder, _ = trained
    assert "start" not in json.loads((folder / "record.json").read_text())
