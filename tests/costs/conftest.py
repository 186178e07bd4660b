import pytest

#: A WordNet of a few words, in the format of the real one: lemma, part of speech, number of synsets, number of pointer
#: symbols and the symbols, senses, tagged senses, offsets.
FILES = {
    "index.noun": """\
  1 The licence comes first, on lines that start with two spaces.
auto n 1 2 @ ~ 1 1 00000100
car n 2 2 @ ~ 2 1 00000100 00000200
child n 1 1 @ 1 1 00000300
goose n 1 1 @ 1 0 00000400
guinea_pig n 1 1 @ 1 0 00000500
kid n 1 1 @ 1 1 00000300
railcar n 1 1 @ 1 0 00000200
""",
    "index.verb": "buy v 1 1 @ 1 1 00000100\npurchase v 1 1 @ 1 1 00000100\n",
    "index.adj": "big a 1 1 & 1 1 00000700\nlarge a 1 1 & 1 1 00000700\n",
    "index.adv": "",
    "adj.exc": "bigger big\n",
    "noun.exc": "children child\ngeese goose\n",
    "verb.exc": "bought buy\n",
}


@pytest.fixture
def small_wordnet(tmp_path, monkeypatch):
    """The folder of a WordNet of ten words, made the one that is used."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, "utf-8")
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    return tmp_path
