"""The correlation of candidates' costs on two sets of prefixes."""

import random
import statistics

import pytest
import torch

from mgs.methods.transfer import pearson, transfer_log
from mgs.search import Proposal, ProposalForm, mgs_update

GRADIENTS = [{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 1.0])}, {"w": torch.tensor([1.0, 1.0])}]


def test_it_is_pearson_s():
    chance = random.Random(0)
    xs = [chance.gauss(0, 1) for _ in range(20)]
    ys = [0.5 * x + chance.gauss(0, 1) for x in xs]
    assert pearson(xs, ys) == pytest.approx(statistics.correlation(xs, ys))
    assert pearson(xs, [7 - 2 * x for x in xs]) == pytest.approx(-1)
    assert pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert pearson([1.0, 2.0], [1.0, 2.0]) is None


def test_each_kind_of_candidate_has_its_own():
    form = ProposalForm(noise=0.0, mix=0.2, lengths=(0.25, 0.5))
    proposal = Proposal(form, GRADIENTS, 8, 0, 0)
    costs = [5.0, 1.0, 4.0, 2.0, 9.0, 3.0, 7.0, 6.0]
    fresh = [4.0, 2.0, 2.0, 2.5, 1.0, 1.0, 6.0, 6.5]
    update = mgs_update(proposal, costs)
    log = transfer_log(update, costs, dict(enumerate(fresh)))
    short, long = ([k for k, s in enumerate(update.lengths) if s == length] for length in (0.25, 0.5))
    assert len(short) == len(long) == 3
    assert log == {
        "transfer": pytest.approx(statistics.correlation(costs, fresh)),
        "probe_costs": fresh,
        "transfer_by": {  # two around zero are too few
            "gradient s=0.25": pytest.approx(statistics.correlation(*([v[k] for k in short] for v in (costs, fresh)))),
            "gradient s=0.5": pytest.approx(statistics.correlation(*([v[k] for k in long] for v in (costs, fresh)))),
        },
    }
    some = [0, 1, *short[:2]]
    log = transfer_log(update, costs, {k: fresh[k] for k in some})
    assert log["transfer"] == pytest.approx(statistics.correlation([costs[k] for k in some], [fresh[k] for k in some]))
    assert log["transfer_by"] == {}
    assert log["probe_costs"] == [fresh[k] if k in some else None for k in range(8)]
