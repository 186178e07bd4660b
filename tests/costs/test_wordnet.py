import pytest

from mgs.costs import Cost, meteor, wordnet
from mgs.costs.wordnet import WordNet, folder
from mgs.errors import CostError, UserError
from mgs.types import Text


def related(place, one, other):
    found = WordNet(place)
    return bool(found.senses(one) & found.senses(other))


SYNONYMS = [
    ("car", "auto"),
    ("auto", "car"),
    ("car", "railcar"),
    ("big", "large"),
    ("kid", "child"),
    ("buy", "purchase"),
]
FORMS = [
    ("cars", "auto"),
    ("kids", "children"),  # by the ending and by the list
    ("geese", "goose"),
    ("bought", "purchases"),
    ("buying", "purchased"),  # nothing in place of the ending, and an `e`
    ("bigger", "largest"),
]
UNRELATED = [
    ("auto", "railcar"),  # synonyms of the same word in different senses
    ("car", "buy"),  # the same offset in another part of speech
    ("carer", "car"),  # endings are of one part of speech
    ("guinea", "pig"),
    ("guinea_pig", "guinea_pig"),
    ("the", "the"),
    ("", "1"),
]


@pytest.mark.parametrize(("one", "other"), SYNONYMS + FORMS)
def test_words_with_a_sense_in_common(small_wordnet, one, other):
    assert related(small_wordnet, one, other)


@pytest.mark.parametrize(("one", "other"), UNRELATED)
def test_words_without(small_wordnet, one, other):
    assert not related(small_wordnet, one, other)


def test_wordnets_own_variables_say_where_it_is(small_wordnet, tmp_path_factory, monkeypatch):
    assert folder() == small_wordnet
    home = tmp_path_factory.mktemp("home")
    small_wordnet.rename(home / "dict")
    monkeypatch.delenv("WNSEARCHDIR")
    monkeypatch.setenv("WNHOME", str(home))
    assert folder() == home / "dict"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(wordnet, "PLACES", ())
    monkeypatch.delenv("WNHOME", raising=False)
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path / "gone"))


def test_without_wordnet_the_error_says_how_to_get_it(nowhere):
    with pytest.raises(UserError, match=r"'meteor' needs WordNet.*gone.*apt-get install wordnet-base.*WNSEARCHDIR"):
        Cost.of("meteor")


def test_a_function_that_is_given_itself_says_the_same(nowhere):
    cost = Cost.of(meteor)
    with pytest.raises(UserError, match=r"^the cost 'meteor' needs WordNet") as caught:
        cost.mean([Text("a")], [Text("a")])
    assert not isinstance(caught.value, CostError)


def test_a_folder_with_a_part_of_it_is_not_wordnet(small_wordnet, monkeypatch):
    monkeypatch.setattr(wordnet, "PLACES", ())
    (small_wordnet / "index.verb").unlink()
    with pytest.raises(UserError, match="needs WordNet"):
        folder()
