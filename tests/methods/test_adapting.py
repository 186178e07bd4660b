"""Lengths that follow what wins."""

import pytest

from mgs.methods import MGS, Key
from mgs.search import ProposalForm, Temperature

FORM = ProposalForm(noise=0.0, mix=0.2, lengths=(0.1, 0.2, 0.4), density="none", stay=True)


def wins(k):
    """A cost that is lowest for one candidate, whatever it decodes."""
    return lambda numbers, batch: [0.0 if number == k else 1.0 for number in numbers]


@pytest.mark.parametrize(("winning", "reach"), [(0.0, 0.5), (0.1, 0.5), (0.2, 1.0), (0.4, 2.0)])
def test_the_longest_doubles_them_and_the_shortest_or_staying_halves_them(gpt2, batch, make_task, winning, reach):
    method = MGS(make_task(), FORM, 4, Temperature(1e9), adapt_lengths=True)
    lengths = method(gpt2, batch, Key(0, 0)).log["lengths"]
    method.reach = 1.0
    method._costs = lambda model, proposal, noise, numbers, rows: wins(lengths.index(winning))(numbers, rows)
    log = method(gpt2, batch, Key(0, 0)).log
    assert (log["reach"], method.reach) == (1.0, reach)
    assert sorted(method(gpt2, batch, Key(0, 0)).log["lengths"]) == pytest.approx(
        [0.0, *(reach * x for x in FORM.lengths)]
    )


def test_where_all_are_refused_they_are_halved(gpt2, make_gpt2, batch, make_task):
    form = ProposalForm(noise=0.0, mix=0.0, lengths=(-5.0, -3.0), density="none")  # away from the likelihood
    method = MGS(make_task(), form, 2, adapt_lengths=True, likelihood_budget=0.0, anchor=make_gpt2())
    assert method(gpt2, batch, Key(0, 0)).log["refused"] == 2
    assert method.reach == 0.5


def test_they_stay_where_nobody_asked(gpt2, batch, make_task):
    method = MGS(make_task(), FORM, 4)
    method(gpt2, batch, Key(0, 0))
    assert method.reach == 1.0


def test_reach_has_bounds_and_is_part_of_the_state(gpt2, batch, make_task):
    method = MGS(make_task(), FORM, 4, Temperature(1e9), adapt_lengths=True)
    method._costs = lambda model, proposal, noise, numbers, rows: wins(0)(numbers, rows)
    for step in range(10):
        method(gpt2, batch, Key(0, step))
    assert method.reach == 1 / 64
    twin = MGS(make_task(), FORM, 4, Temperature(1e9), adapt_lengths=True)
    twin.load_state(method.state())
    assert sorted(twin(gpt2, batch, Key(0, 10)).log["lengths"]) == pytest.approx([0.0, *(x / 64 for x in FORM.lengths)])
