import pytest

from mgs.metrics import COLUMNS, TRANSLATION_COLUMNS
from mgs.report.tables import HEADINGS, cell, figures_table, markdown_table

ROWS = {
    "MLE": {
        "lm": 70.25,
        "edit": 0.93149,
        "nontermination": 0.124,
        "repetition": 0.3674,
        "length": 110.6,
        "perplexity": 22.62,
    },
    "Human": {"lm": 101.0, "edit": 0.0, "nontermination": 0.0, "repetition": 0.0089, "length": 116.9},
}


def test_every_column_of_an_evaluation_has_a_heading():
    assert HEADINGS.keys() == COLUMNS.keys() | TRANSLATION_COLUMNS.keys()


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [("lm", 70.25, "70.2"), ("edit", 0.93149, "0.931"), ("repetition", 0.0089, "0.009"), ("perplexity", None, "–")],
)
def test_shares_have_three_digits_and_the_rest_one(column, value, shown):
    assert cell(column, value) == shown


def test_a_table_shows_each_row_and_the_signature_on_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    signature = "data:valid#500|context:10|decoder:greedy|cap:500|scorer:" + "long" * 20 + "[bold]|mgs:0.1.0"
    figures_table(ROWS, signature, "A title")
    out = capsys.readouterr().out
    lines = out.splitlines()
    (mle,) = [line.split() for line in lines if "MLE" in line]
    (human,) = [line.split() for line in lines if "Human" in line]
    assert mle == ["MLE", "70.2", "0.931", "0.124", "0.367", "110.6", "22.6"]
    assert human[-1] == "–"  # people have no perplexity
    assert signature in lines  # brackets and all
    assert "A title" in out
    assert "LM+prefix" not in out  # a column that nobody has


def test_brackets_in_a_rows_name_are_no_markup(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    figures_table({"[red]runs[/red]": ROWS["MLE"]}, "signature")
    assert "[red]runs[/red]" in capsys.readouterr().out


def test_the_markdown_table_says_the_same():
    assert markdown_table(ROWS).splitlines() == [
        "| | LM | Edit | Nonterm | Repetition | Length | PPL |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| MLE | 70.2 | 0.931 | 0.124 | 0.367 | 110.6 | 22.6 |",
        "| Human | 101.0 | 0.000 | 0.000 | 0.009 | 116.9 | – |",
    ]


def test_a_signature_of_several_lines_is_printed_on_several(capsys):
    figures_table({"MLE": {"bleu": 30.0}}, "data:x\nbleu nrefs:1")
    assert capsys.readouterr().out.splitlines()[-2:] == ["data:x", "bleu nrefs:1"]
