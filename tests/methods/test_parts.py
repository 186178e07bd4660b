"""A batch cut into rows that score and parts that give gradients, and what the log says of those."""

import pytest
import torch

from mgs.methods.parts import alignments, described, divided
from mgs.types import Batch, Example


def rows_of(*lengths):
    return Batch([Example((i,), (1,) * length) for i, length in enumerate(lengths)])


@pytest.mark.parametrize(
    ("num", "apart", "scored", "rest"),
    [
        (None, False, [0, 1, 2], [0, 1, 2]),
        (2, False, [0, 1], [0, 1, 2]),
        (9, False, [0, 1, 2], [0, 1, 2]),
        (1, True, [0], [1, 2]),
        (2, True, [0, 1], [2]),
        (3, True, [0, 1], [2]),
        (9, True, [0, 1], [2]),
    ],
)
def test_the_first_rows_score_and_all_or_the_others_give_gradients(num, apart, scored, rest):
    first, others = divided(rows_of(4, 4, 4), num, apart)
    assert [row[0] for row in first.prefixes] == scored
    assert [row[0] for row in others.prefixes] == rest


def test_a_part_in_numbers():
    assert described(rows_of(20, 21, 1, 6)) == {"mean_target": 12.0, "share_short": 0.75}


def test_a_gradient_is_compared_with_the_mean_of_the_others():
    vectors = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = [
        float(torch.cosine_similarity(vector, vectors[[i for i in range(4) if i != j]].mean(dim=0), dim=0))
        for j, vector in enumerate(vectors)
    ]
    assert alignments(vectors @ vectors.T) == pytest.approx(expected)
    assert alignments(torch.ones(1, 1)) == [None]  # there are no others
    assert alignments(torch.zeros(2, 2)) == [None, None]
