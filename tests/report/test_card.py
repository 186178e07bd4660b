import yaml

from mgs.report.card import code, fenced, model_card, plain
from mgs.report.runs import read_runs

from .conftest import SIGNATURE, write_run


def card(folder, **settings):
    return model_card(read_runs([write_run(folder, **settings)])[0].record, folder)


def head(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_a_card_says_what_was_done_and_with_what_result(tmp_path):
    text = card(tmp_path / "model")
    assert text.startswith("---\n")
    assert head(text) == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["mgs", "mle-guided-parameter-search"],
    }
    assert "by MLE-guided parameter search from `small` on `docs` for the cost `lm` under the decoder `greedy`" in text
    assert "4 updates, seed 1." in text
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ")][1:]
    assert rows == [["| start", "80.0"], ["| this model", "40.0"], ["| human", "–"]]
    assert f"```\n{SIGNATURE}\n```" in text
    assert "AutoModelForCausalLM.from_pretrained('model')" in text
    assert str(tmp_path) not in text


def test_no_path_travels_with_a_card(tmp_path):
    there = str(tmp_path)
    given = {"model": f"{there}/start", "data": f"{there}/a.de,{there}/a.en", "cost": f"{there}/mine.py:short"}
    text = card(tmp_path / "my model", eval_data=f"{there}/held.txt", **given)
    assert there not in text
    assert "from `start` on `a.de,a.en` for the cost `mine.py:short`" in text
    assert "mgs generate --model 'my model'" in text
    assert "eval_data: held.txt" in text


def test_a_model_of_a_hub_is_named_as_the_base(tmp_path):
    assert head(card(tmp_path / "a", model="openai/gpt2"))["base_model"] == "openai/gpt2"
    assert "base_model" not in head(card(tmp_path / "b", model=str(tmp_path)))


def test_a_translation_model_is_loaded_as_one(tmp_path):
    text = card(tmp_path / "model", task="translation", cost="sbleu")
    assert head(text)["pipeline_tag"] == "translation"
    assert "AutoModelForSeq2SeqLM" in text


def test_names_cannot_break_out_of_their_place(tmp_path):
    assert code("a`b`\n# c") == "`a'b' # c`"
    assert plain("<b>[x](y) | # *z*") == r"\<b\>\[x\](y) \| \# \*z\*"
    assert fenced("a ```` b") == "`````\na ```` b\n`````\n"
    text = card(tmp_path / "model", data="```\n<script>alert(1)</script>", model="a: b\n---\nc")
    assert head(text)["tags"][0] == "mgs"
    outside = text.split("## Settings")[0]
    assert "<script>" not in outside.replace("`''' <script>alert(1)</script>`", "")
