"""The page as text, and what goes into it. `test_page.py` looks at it in a browser."""

import json
import math
import re

import pytest
import yaml

from mgs.errors import UserError
from mgs.experiments.completion import UNDECODED
from mgs.experiments.paper import MAIN, name_of_row, paper_row
from mgs.report.html import contents, embedded, report_page
from mgs.report.runs import read_runs
from mgs.training import METHODS, MGSConfig
from mgs.training.recipes import RECIPES

from .conftest import EVIL, FIGURES, SIGNATURE, START, write_run


def embedded_data(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def test_the_page_holds_everything_and_asks_for_nothing(run):
    page = report_page(read_runs([run]))
    assert len(re.findall(r"<script", page)) == 2  # its data and its own
    assert not re.search(r"""(src|href)=["']|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", page)
    assert "{{" not in page.split('id="data"')[0]
    assert "innerHTML" not in page
    data = embedded_data(page)
    assert data["examples"][-1]["outputs"][-1]["text"] == EVIL
    assert EVIL not in page


@pytest.mark.parametrize("text", [EVIL, "<!--", "]]>", "{{script}}", "\u2028", "\\u003c", "&lt;"])
def test_no_string_ends_the_element_it_is_embedded_in_and_each_comes_back(text):
    shown = embedded({text: [text]})
    assert not set("<>&\u2028") & set(shown)
    assert json.loads(shown) == {text: [text]}


def test_a_title_is_text_and_places_in_it_are_not_filled(run):
    page = report_page(read_runs([run]), "<i>{{data}}</i>")
    assert "<title>&lt;i&gt;{{data}}&lt;/i&gt;</title>" in page


def test_many_names_make_a_short_title(tmp_path):
    runs = read_runs([write_run(tmp_path / f"a-rather-long-name-{i}") for i in range(5)])
    assert "<title>a-rather-long-name-0 and 4 more</title>" in report_page(runs)
    assert "<title>a-rather-long-name-0, a-rather-long-name-1</title>" in report_page(runs[:2])


def test_infinities_are_left_out_of_json():
    assert json.loads(embedded([math.inf, math.nan, {"a": (1.0,)}])) == [None, None, {"a": [1.0]}]


def test_the_table_has_the_start_the_run_and_people_each_beside_the_paper(run):
    (table,) = contents(read_runs([run]))["tables"]
    assert (table["split"], table["signature"]) == ("valid", SIGNATURE)
    start, end, human = table["rows"]
    assert [row["paper"] for row in table["rows"]] == ["MLE", "MGS-LM", "Human"]
    lm = [column["name"] for column in table["columns"]].index("lm")
    assert (start["cells"][lm]["value"], start["cells"][lm]["paper"]) == ("80.0", None)
    assert (start["cells"][lm + 1]["value"], start["cells"][lm + 1]["paper"]) == ("140.0", "146.4")  # its LM column
    assert end["cells"][lm]["change"] == {"text": "−50.0%", "better": 1}
    assert end["cells"][lm + 1]["paper_change"] == {"text": "−59.6%", "better": 1}
    assert human["cells"][lm]["value"] == "–"
    assert [cell["change"]["better"] for cell in end["cells"]] == [1, 1, 0, 1, 0, 0, -1]  # lengths are neither


def test_figures_of_different_signatures_are_not_put_into_one_table(run, tmp_path):
    other = write_run(tmp_path / "other")
    record = json.loads((other / "record.json").read_text())
    record["signatures"]["valid"] = SIGNATURE.replace("cap:60", "cap:500")
    (other / "record.json").write_text(json.dumps(record))
    assert [len(table["rows"]) for table in contents(read_runs([run, other]))["tables"]] == [3, 3]
    assert [len(table["rows"]) for table in contents(read_runs([run, write_run(tmp_path / "same")]))["tables"]] == [4]


def test_a_start_that_several_costs_have_is_shown_once(run, tmp_path):
    other = write_run(tmp_path / "edit", cost="edit")
    record = json.loads((other / "record.json").read_text())
    record["start"]["figures"]["valid"]["cost"] = 0.9
    (other / "record.json").write_text(json.dumps(record))
    (table,) = contents(read_runs([run, other]))["tables"]
    assert [row["label"] for row in table["rows"]] == ["start", "run", "edit", "human"]


def test_curves_begin_with_the_start_and_overlay_runs(runs):
    panels = {panel["title"]: panel for panel in contents(read_runs(runs))["curves"]}
    cost = panels["Held-out cost: lm"]["lines"]
    assert [line["series"] for line in cost] == [0, 1]
    assert cost[0]["points"] == [[0, 80.0], [2, 60.0], [4, 40.0]]
    assert panels["Effective sample size"]["lines"][0]["points"][-1] == [4, 2.0]
    assert "Held-out repetition" not in panels  # which only the start has
    assert {"Held-out perplexity", "Weight of guided candidates", "Cost of the best candidate: lm"} <= set(panels)


def test_long_curves_of_updates_are_means_of_stretches_and_say_so(run):
    lines = [json.dumps({"step": step, "effective": float(step % 2)}) for step in range(1, 401)]
    (run / "metrics.jsonl").write_text("\n".join(lines))
    panels = {panel["title"]: panel for panel in contents(read_runs([run]))["curves"]}
    shown = panels["Effective sample size"]
    assert shown["note"].endswith("means of 5 updates")
    assert shown["lines"][0]["points"][:2] == [[5, 0.6], [10, 0.4]]


def test_transfer_has_a_curve_where_it_was_probed(run):
    panels = [panel["title"] for panel in contents(read_runs([run]))["curves"]]
    assert "Transfer" not in panels
    with (run / "metrics.jsonl").open("a") as log:
        log.write("\n" + json.dumps({"step": 5, "transfer": -0.25}) + "\n" + json.dumps({"step": 6, "transfer": 0.5}))
    panels = {panel["title"]: panel for panel in contents(read_runs([run]))["curves"]}
    assert panels["Transfer"]["lines"][0]["points"] == [[5, -0.25], [6, 0.5]]


def test_runs_of_different_costs_have_panels_of_their_own(run, tmp_path):
    write_run(tmp_path / "edit", cost="edit")
    panels = {panel["title"]: panel for panel in contents(read_runs([run, tmp_path / "edit"]))["curves"]}
    for title in ("Held-out cost", "Cost of the best candidate"):
        assert [line["series"] for line in panels[f"{title}: lm"]["lines"]] == [0]
        assert [line["series"] for line in panels[f"{title}: edit"]["lines"]] == [1]
    assert [line["series"] for line in panels["Effective sample size"]["lines"]] == [0, 1]


def test_a_run_whose_updates_decode_one_token_has_no_cost_in_training(run, tmp_path):
    write_run(tmp_path / "uniform", max_new_tokens=1)
    panels = {panel["title"]: panel for panel in contents(read_runs([run, tmp_path / "uniform"]))["curves"]}
    assert [line["series"] for line in panels["Cost of the best candidate: lm"]["lines"]] == [0]
    assert [line["series"] for line in panels["Held-out cost: lm"]["lines"]] == [0, 1]


def test_outputs_stand_side_by_side_and_a_common_start_is_shown_once(runs):
    data = contents(read_runs(runs))
    assert [voice["name"] for voice in data["voices"]] == ["start", "first", "<b>second"]
    assert len(data["examples"]) == 30
    assert [output["voice"] for output in data["examples"][1]["outputs"]] == [0, 1, 2]
    assert data["examples"][1]["change"] > 0
    assert data["examples"][0]["change"] == 0


def test_shares_of_lengths_add_up(run):
    histogram = contents(read_runs([run]))["lengths"]
    assert len(histogram["lines"]) == 3  # start, run, people
    for line in histogram["lines"]:
        assert sum(share for _, share in line["points"]) == pytest.approx(1)
    start = dict(map(tuple, histogram["lines"][0]["points"]))
    assert start[58] == pytest.approx(6 / 30)  # 59 and 60 tokens: those that do not end


def test_a_run_that_has_not_ended_shows_what_there_is(run):
    for name in ("record.json", "outputs.jsonl"):
        (run / name).unlink()
    (run / "mgs.yaml").write_text("cost: lm\nlearning_rate: 0.1\n")
    data = contents(read_runs([run]))
    assert data["runs"][0]["settings"] == {"cost": "lm", "learning_rate": 0.1}
    assert data["tables"][0]["rows"][0]["cells"][0]["value"] == "22.0"
    assert "has not ended" in data["tables"][0]["signature"]
    assert data["examples"] == []
    assert data["lengths"] is None


@pytest.mark.parametrize("method", METHODS)
def test_the_method_of_a_run_that_has_not_ended_is_known_by_its_options(run, method):
    (run / "record.json").unlink()
    options = METHODS[method][0](output_dir="x", report_to="none").resolved()
    (run / "mgs.yaml").write_text(yaml.safe_dump({**options, "cost": "lm"}))
    (found,) = read_runs([run])
    assert found.method == method
    assert found.cost == (None if method == "mle" else "lm")


def test_lines_of_another_form_are_left_out(run):
    with (run / "outputs.jsonl").open("ab") as file:
        file.write(b'{"output": "alone"}\n\xff\xfe\n[]\n')
    (run / "record.json").write_text("[]")
    assert len(contents(read_runs([run]))["examples"]) == 30


def test_a_folder_of_runs_stands_for_them_and_equal_names_are_told_apart(tmp_path):
    for seed in "01":
        write_run(tmp_path / f"seed{seed}" / "mgs")
        write_run(tmp_path / f"seed{seed}" / "mrt")
    found = read_runs([tmp_path / "seed0", tmp_path / "seed1" / "mgs", tmp_path / "seed0" / "mgs"])
    assert [run.name for run in found] == ["seed0/mgs", "seed0/mrt", "seed1/mgs"]


def test_a_folder_without_a_run_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="no run in"):
        read_runs([tmp_path])


def test_in_a_study_a_row_is_compared_with_the_run_it_goes_on_from(tmp_path):
    mle = {"method": "mle", "cost": None, "start": "new:tiny", "data": {"data": "docs"}}
    for name, settings in (("mgs-0", mle | {"method": "mgs", "cost": "lm", "start": mle}), ("mle-0", mle)):
        folder = write_run(tmp_path / name)
        record = json.loads((folder / "record.json").read_text())
        del record["start"], record["human"]
        record["settings"] = settings
        record["figures"]["valid"]["lm"] = 100.0 if name == "mle-0" else 40.0
        (folder / "record.json").write_text(json.dumps(record))
    found = read_runs([tmp_path])
    assert [run.name for run in found] == ["mle-0", "mgs-0"]
    panels = {panel["title"]: panel for panel in contents(found)["curves"]}
    assert panels["Held-out cost: lm"]["levels"] == [{"series": 0, "value": 100.0}]
    assert panels["Held-out cost: lm"]["note"].endswith("; dotted: the start")
    assert panels["Held-out perplexity"]["levels"] == [{"series": 0, "value": 22.0}]
    (table,) = contents(found)["tables"]
    start, end = table["rows"]
    assert start["cells"][0]["change"] is None
    assert end["cells"][0]["change"]["text"] == "−60.0%"
    assert (start["paper"], end["paper"]) == ("MLE", "MGS-LM")
    found[1].settings["watched"] = 100  # curves are of other examples than what was measured of the start
    assert not any(panel["levels"] for panel in contents(found)["curves"])


RESOLVED = MGSConfig(output_dir="x", report_to="none").resolved()


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (("mle", "lm", {}), "MLE"),
        (("mgs", "lm", {}), "MGS-LM"),
        (("mgs", "lm", RESOLVED), "MGS-LM"),
        (("mgs", "sbleu", {"temperature": "100.0", "noise_scale": "global"}), "MGS-SBLEU"),
        (("mgs", "sbleu", {}, True), "MGS-SBLEU (train)"),
        (("mgs", "lm", {"components": "zero", "log_base": True}), "MGS-LM (zero only)"),
        (("mgs", "lm", {"decoder": "sample"}), "MGS-LM (sampling)"),
        (("mgs", "lm", UNDECODED), None),
        (("mgs", "lm", RECIPES["dependable"]), None),
        (("mgs", "sbleu", RECIPES["risk"]), None),
        (("mrt", "edit", {"mle_share": 0.3}), "MRT-edit (+MLE 0.3)"),
        (("mrt", "lm", {"mle_share": 0.0, "greedy_candidate": True, "gold_candidate": True}), "MRT-LM (greedy, gold)"),
        (("pg", "lm", {"mle_share": 0.1, "decoder": "sample"}), "PG-LM (+MLE 0.1)"),
    ],
)
def test_the_papers_row_is_that_of_method_cost_and_kind_of_run(given, row):
    assert name_of_row(*given) == row


@pytest.mark.parametrize(
    ("given", "length"),
    [
        (("MGS-LM", False, "test"), 22.8),
        (("MGS-LM", False, "valid"), 20.1),
        (("MGS-LM (sampling)", False, "test", "sample"), 28.5),
        (("MGS-LM", False, "test", "sample"), None),
        (("MGS-LM (sampling)", False, "test", "greedy"), None),
        (("MLE", False, "test", "sample"), 110.5),
        (("MLE", False, "valid", "sample"), None),
        (("MLE", False, "mine.txt"), None),
        (("MLE", False, "test", "beam-5"), None),
        (("Human", False, "valid"), 107.7),
        (("MGS-MINE.PY:SHORT", False), None),
        (("MGS-LM (train)", False), None),
        ((None, False), None),
    ],
)
def test_its_figures_are_those_of_the_split_and_the_decoder(given, length):
    row, figures = paper_row(*given)
    assert figures.get("length") == length
    assert bool(row) == bool(figures)


def test_figures_by_another_decoder_stand_beside_the_papers_by_that(tmp_path):
    by_sampling = SIGNATURE.replace("greedy", "sample")
    folder = write_run(tmp_path / "run", method="pg", mle_share=0.1)
    record = json.loads((folder / "record.json").read_text())
    record |= {"figures": {"test by sample": FIGURES}, "signatures": {"test by sample": by_sampling}}
    record["start"] = {"figures": {"test by sample": START}}
    (folder / "record.json").write_text(json.dumps(record))
    (table,) = contents(read_runs([folder]))["tables"]
    lengths = [row["cells"][5]["paper"] for row in table["rows"]]
    assert [column["name"] for column in table["columns"]][5] == "length"
    assert lengths == ["110.5", "4.4"]


def test_the_papers_figures_are_those_of_its_table():
    assert MAIN["MGS-LM"]["test"]["nontermination"] == 0.012
    assert MAIN["MLE"]["test"]["perplexity"] == 21.3
    assert paper_row("MGS-EDIT", True, "valid")[1]["edit"] == pytest.approx(0.4683)
    assert all(set(splits["test"]) == set(MAIN["MLE"]["test"]) for row, splits in MAIN.items() if row != "Human")
