"""Which row is whose, while all groups are alike and after rows have left."""

import pytest
import torch

from mgs.candidates.groups import Groups, NotByRows

CPU = torch.device("cpu")


def test_rows_are_dealt_candidate_by_candidate():
    groups = Groups(3)
    assert groups.even
    assert groups.sizes(6) == [2, 2, 2]
    assert groups.index(6, CPU).tolist() == [0, 0, 1, 1, 2, 2]
    assert groups.index(12, CPU).tolist() == [0] * 4 + [1] * 4 + [2] * 4  # two positions, or two beams, of each


@pytest.mark.parametrize("leading", [1, 4, 7])
def test_rows_that_cannot_be_dealt_are_an_error(leading):
    with pytest.raises(NotByRows, match=f"{leading} rows cannot be dealt to 3 candidates"):
        Groups(3).sizes(leading)


def test_rows_that_leave_make_groups_uneven():
    groups = Groups(3)
    groups.start(6)
    groups.keep(torch.tensor([0, 1, 4]))  # both of the first, none of the second, one of the third
    assert (groups.even, groups.rows) == (False, 3)
    assert groups.sizes(3) == [2, 0, 1]
    assert groups.sizes(6) == [4, 0, 2]
    assert groups.index(3, CPU).tolist() == [0, 0, 2]
    assert groups.index(6, CPU).tolist() == [0, 0, 0, 0, 2, 2]
    with pytest.raises(NotByRows, match="4 rows where the batch has 3"):
        groups.sizes(4)


def test_rows_leave_again_and_again_until_a_new_start():
    groups = Groups(3)
    groups.start(6)
    groups.keep(torch.tensor([0, 1, 4]))
    groups.keep(torch.tensor([1, 2]))
    assert groups.index(2, CPU).tolist() == [0, 2]
    groups.keep(torch.tensor([1]))
    assert groups.sizes(1) == [0, 0, 1]
    groups.start(3)
    assert groups.even
    assert groups.index(3, CPU).tolist() == [0, 1, 2]


def test_values_are_spread_over_rows_and_broadcast_over_positions():
    groups, values = Groups(2), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    spread = groups.spread(values, torch.zeros(4, 7, 3))
    assert spread.shape == (4, 1, 3)
    assert torch.equal(spread.squeeze(1), values[[0, 0, 1, 1]])
    assert groups.spread(values[:, 0], torch.zeros(4, 7, 3)).tolist() == [[[1]], [[1]], [[4]], [[4]]]  # a number each
    groups.start(4)
    groups.keep(torch.tensor([1, 2, 3]))
    assert torch.equal(groups.spread(values, torch.zeros(3, 3)), values[[0, 1, 1]])
