"""The study of dependable search: its rows differ in what they say, and its goal is met when it is."""

import pytest

from mgs.experiments.inputs import DataOptions
from mgs.experiments.search import GOAL, SECONDS, search
from mgs.experiments.study import Goal
from mgs.training import METHODS
from mgs.training.recipes import RECIPES

ROWS = ["paper recipe", "dependable", "zero only", "uniform weights", "ends alone", "gate alone", "decoded steps"]


@pytest.fixture
def study():
    return search("small", DataOptions(data="lines.txt"), "start")


@pytest.fixture
def options(study, tmp_path):
    def of(row):
        run = next(run for run in study.runs if run.row == row)
        return METHODS[run.method][0](output_dir=str(tmp_path), **run.options)

    return of


def test_every_row_has_five_seeds_and_the_same_time(study):
    rows = [f"{cost}: {row}" for cost in ("LM", "edit") for row in ROWS]
    assert study.rows == ["MLE", *rows, "plain steps", "short targets"]
    for row in study.rows[1:]:
        runs = [run for run in study.runs if run.row == row]
        assert [run.seed for run in runs] == list(range(5))
        assert {run.seconds for run in runs} == {SECONDS["small"]} == {60.0}
        assert all(run.options["eval_on_start"] and not run.options["keep_best"] for run in runs)
    assert {run.cost for run in study.runs if run.row.startswith("edit")} == {"edit"}
    assert "60 s of updates" in study.note


def test_the_recipes_are_run_as_they_are(options):
    for name in ("paper", "dependable"):
        config = options("LM: paper recipe" if name == "paper" else f"edit: {name}")
        assert {option: getattr(config, option) for option in RECIPES[name]} == RECIPES[name]
    assert options("LM: paper recipe").num_candidates == 4


def test_controls_differ_from_the_recipe_in_what_their_names_say(options):
    recipe, uniform, gate = (
        options(f"LM: {row}").resolved() for row in ("dependable", "uniform weights", "gate alone")
    )
    assert {name for name in recipe if recipe[name] != uniform[name]} == {"temperature", "density"}
    ends = options("LM: ends alone").resolved()
    assert {name for name in recipe if recipe[name] != ends[name]} == {"guides", "num_candidates", "mix"}
    assert gate["stay"]
    assert (gate["num_candidates"], gate["num_gradients"], gate["components"]) == (2, 1, "mle")
    assert (gate["lengths"], gate["length_unit"], gate["noise"]) == ([0.03], "norm", 0.0)
    assert (gate["guides"], gate["likelihood_budget"]) == (["mle"], None)
    steps = options("LM: decoded steps").resolved()
    assert (steps["guides"], steps["lengths"]) == (["decoded"], [0.01])
    assert (steps["num_candidates"], steps["stay"]) == (1, False)
    assert steps["guide_prefixes"] == recipe["guide_prefixes"]
    plain, short = (options(row).resolved() for row in ("plain steps", "short targets"))
    assert {name for name in plain if plain[name] != short[name]} == {"shortest"}
    assert (plain["optim"], plain["learning_rate"], plain["max_grad_norm"]) == ("sgd", 0.03, 1.0)
    assert short["shortest"] == 1 / 6
    assert plain["batch_tokens"] == gate["batch_tokens"] == recipe["batch_tokens"]
    assert options("LM: zero only").components == "zero"


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        ({"nontermination": 0.02, "repetition": 0.06, "perplexity": 20.8}, True),
        ({"nontermination": 0.021, "repetition": 0.06, "perplexity": 20.8}, False),
        ({"nontermination": 0.02, "repetition": 0.061, "perplexity": 20.8}, False),
        ({"nontermination": 0.02, "repetition": 0.06, "perplexity": 20.9}, False),
    ],
)
def test_a_goal_is_met_when_all_of_it_is(figures, met):
    assert GOAL.met(figures, {"nontermination": 0.5, "repetition": 0.5, "perplexity": 20.0}) is met


def test_a_goal_says_what_it_is():
    goal = Goal({"edit": 0.5}, {"perplexity": 1.1})
    assert str(goal) == "edit ≤ 0.5, perplexity ≤ 1.1 × the start's"
