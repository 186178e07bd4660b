"""Recipes are defaults: what is given beside them wins, also where it is what the option would have been without."""

from dataclasses import fields, replace

import pytest

from mgs.errors import UserError
from mgs.search import Temperature
from mgs.training import MGSConfig
from mgs.training.recipes import RECIPES


@pytest.fixture
def make(tmp_path):
    return lambda **options: MGSConfig(output_dir=str(tmp_path), use_cpu=True, **options)


def test_the_papers_recipe_is_the_defaults(make):
    assert RECIPES["paper"] == {}
    assert make().resolved() == make(recipe="paper").resolved()
    assert make().recipe == "paper"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_options_that_exist(make, name):
    config = make(recipe=name)
    assert set(RECIPES[name]) <= {f.name for f in fields(MGSConfig)}
    for option, value in RECIPES[name].items():
        assert getattr(config, option) == value, option


def test_what_is_given_wins_over_the_recipe_even_if_it_is_the_default(make):
    config = make(recipe="dependable", noise=1.0, temperature="1.0", learning_rate=0.5)
    assert (config.noise, config.search_temperature(), config.learning_rate) == (1.0, Temperature(1.0), 0.5)
    assert (config.guides, config.length_unit, config.stay) == (["ends", "decoded"], "budget", True)


def test_each_candidate_of_the_dependable_recipe_has_a_centre_of_its_own(make):
    config = make(recipe="dependable")
    assert config.num_candidates == 1 + len(config.guides) * len(config.lengths)
    assert round(config.mix * config.num_candidates) == 1  # which is staying


def test_the_resolved_configuration_says_the_recipe_and_makes_the_same_again(make):
    first = make(recipe="dependable", num_candidates=7)
    resolved = first.resolved()
    assert (resolved["recipe"], resolved["num_candidates"], resolved["mix"]) == ("dependable", 7, 0.3)
    assert MGSConfig(**resolved).resolved() == resolved
    assert replace(first, seed=1).num_candidates == 7


def test_a_recipe_that_does_not_exist_is_a_sentence(make):
    with pytest.raises(UserError, match=r"unknown recipe 'dependible': did you mean 'dependable'\? \(allowed: paper"):
        make(recipe="dependible")
