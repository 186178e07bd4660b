import pytest

from mgs.errors import CostError, UserError
from mgs.ranks import ALONE, Ranks


def pretend(rank, size):
    ranks = Ranks(alone=True)
    ranks.rank, ranks.size = rank, size
    return ranks


@pytest.mark.parametrize(("num", "size"), [(5, 2), (4, 3), (2, 3), (0, 2), (1, 1), (7, 7)])
def test_shares_are_everything_in_order_and_nearly_equal(num, size):
    shares = [pretend(rank, size).share(num) for rank in range(size)]
    assert [i for share in shares for i in share] == list(range(num))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert pretend(0, size).shares(num) == shares


def test_a_process_alone_exchanges_nothing():
    assert ALONE.exchange({"a": (1, 2)}) == [{"a": (1, 2)}]
    assert ALONE.pooled(lambda: 3) == [3]
    assert ALONE.from_first(lambda: 4) == 4
    assert ALONE.first
    assert ALONE.exchanged == 0


class Scripted(Ranks):
    """A rank whose exchanges bring back what a test says, with its own value in its place."""

    def __init__(self, rank, *others):
        super().__init__(alone=True)
        self.rank, self.size, self.others = rank, len(others) + 1, others

    def exchange(self, value):
        answers = [*self.others]
        answers.insert(self.rank, value)
        return answers


def test_another_ones_mistake_is_raised_here_as_what_it_was():
    ranks = Scripted(0, {"error": "it returned nan", "kind": "CostError"})
    with pytest.raises(CostError, match="it returned nan") as caught:
        ranks.pooled(lambda: 1)
    assert caught.value.everywhere
    assert type(caught.value) is CostError


def test_a_mistake_here_is_told_to_the_others_and_raised():
    def fail():
        raise CostError("too bad")

    with pytest.raises(CostError, match="too bad") as caught:
        Scripted(1, {"value": 0}).pooled(fail)
    assert caught.value.everywhere


def test_a_mistake_that_is_known_is_not_told_again():
    known = UserError("all know")
    known.everywhere = True

    def fail():
        raise known

    ranks = Scripted(1, {"value": 0})
    ranks.exchange = None  # would raise a TypeError
    with pytest.raises(UserError, match="all know"):
        ranks.pooled(fail)


def test_a_disk_that_is_full_on_one_is_a_sentence_on_all():
    def fail():
        raise OSError(28, "No space left on device", "run/metrics.jsonl")

    with pytest.raises(UserError, match=r"No space left on device: run/metrics\.jsonl"):
        Scripted(0, {"value": None}).pooled(fail)


def test_the_first_ones_answer_is_everybodys():
    assert Scripted(1, {"value": "first"}).from_first(lambda: "mine") == "first"
    assert Scripted(0, {"value": None}).from_first(lambda: "mine") == "mine"
