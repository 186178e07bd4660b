"""A parameter's forms: products, lookups and single candidates, against matrices written out."""

import pytest
import torch

from mgs.candidates.groups import Groups
from mgs.candidates.values import Factored, Stack

N, M, K = 4, 3, 5  # the matrix is (N, M)
LENGTHS = [0.0, 0.0, 0.5, 2.0, 3.0]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def stack():
    matrices = draw(K, N, M)
    return Stack(matrices), matrices


def factored(rank):
    """Two candidates around zero, two along one gradient at two lengths, one along another whose length is added in."""
    theta, g, h = draw(3, N, M, seed=1)
    a, b = (draw(K, rank, N, seed=2), draw(K, rank, M, seed=3)) if rank else (None, None)
    values = Factored([theta, theta, theta + 3 * h], [None, g, None], [0, 2, 4, 5], torch.tensor(LENGTHS), a, b)
    centres = [0 * g, 0 * g, 0.5 * g, 2 * g, 3 * h]
    noise = [a[k].T @ b[k] if rank else 0 * g for k in range(K)]
    return values, torch.stack([theta + centre + each for centre, each in zip(centres, noise, strict=True)])


FORMS = {"stack": stack, "shared": lambda: factored(0), "rank 1": lambda: factored(1), "rank 2": lambda: factored(2)}


@pytest.fixture(params=FORMS)
def form(request):
    """Values, and the matrices they mean."""
    return FORMS[request.param]()


@pytest.fixture(params=["even", "uneven"])
def groups(request):
    """Two rows a candidate; or, after some have left, two, none, one, two and one."""
    groups = Groups(K)
    groups.start(2 * K)
    if request.param == "uneven":
        groups.keep(torch.tensor([0, 1, 4, 6, 7, 9]))
    return groups


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("positions", [1, 3])
def test_each_row_is_multiplied_with_its_candidates_matrix(form, groups, positions, transposed, with_bias):
    values, matrices = form
    leading = groups.rows * positions
    rows = draw(leading, M if transposed else N, seed=4)
    bias = draw(K, N if transposed else M, seed=5) if with_bias else None
    found = values.times(rows, groups, transposed, bias)
    for row, y, k in zip(rows, found, groups.index(leading, rows.device).tolist(), strict=True):
        expected = row @ (matrices[k].T if transposed else matrices[k]) + (bias[k] if with_bias else 0)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 2)])
def test_each_row_looks_up_in_its_candidates_matrix(form, groups, shape):
    values, matrices = form
    ids = torch.randint(0, N, (groups.rows, *shape), generator=torch.Generator().manual_seed(6))
    found = values.lookup(ids, groups)
    assert found.shape == (*ids.shape, M)
    for row, y, k in zip(ids, found, groups.index(groups.rows, ids.device).tolist(), strict=True):
        torch.testing.assert_close(y, matrices[k][row], rtol=1e-5, atol=1e-5)


def test_one_candidates_matrix_can_be_had(form):
    values, matrices = form
    for k in range(K):
        torch.testing.assert_close(values.one(k), matrices[k], rtol=1e-5, atol=1e-5)
