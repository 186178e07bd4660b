import pytest

from mgs.types import Batch, Example


@pytest.fixture
def batch():
    return Batch([Example((i,), (9,) * (i + 1)) for i in range(4)])


def test_a_share_knows_the_batch_it_is_of(batch):
    share = batch.share(range(1, 3))
    assert [example.prefix for example in share.examples] == [(1,), (2,)]
    assert list(share.numbers) == [1, 2]
    assert share.max_target == batch.max_target == 4
    assert share.all is batch
    assert share.is_counted


def test_rows_chosen_from_a_share_are_still_of_its_batch(batch):
    rows = batch.share(range(1, 3)).select([1, 1, 0])
    assert list(rows.numbers) == [2, 2, 1]
    assert rows.max_target == 4


def test_a_share_of_a_share_is_of_the_whole_batch(batch):
    share = batch.share(range(1, 4)).share(range(1, 3))
    assert share.prefixes == [(2,), (3,)]
    assert list(share.numbers) == [2, 3]
    assert share.all is batch
    assert not batch.share(range(1, 4)).share(range(0)).is_counted


def test_rows_chosen_from_a_batch_are_a_batch(batch):
    rows = batch.select([2, 0])
    assert list(rows.numbers) == [0, 1]
    assert rows.max_target == 3
    assert rows == Batch([batch.examples[2], batch.examples[0]])


def test_a_share_without_rows_repeats_one_and_does_not_count(batch):
    share = batch.share(range(2, 2))
    assert share.prefixes == [(0,)]
    assert not share.is_counted
    assert not share.select([0, 0]).is_counted
    assert len(list(share.select([0, 0]).numbers)) == 2
    assert batch.is_counted
