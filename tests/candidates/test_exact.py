"""Candidates decoded as one batch, token for token against deep copies decoded one at a time."""

import pytest

from mgs.candidates import Candidates, engine, task
from mgs.candidates.groups import Groups
from mgs.decoding import Decoder

GREEDY, SAMPLE, BEAM = DECODERS = [Decoder(), Decoder(sample=True), Decoder(beams=3)]
FORMS = {
    "dense": {},
    "rank 1": {"rank": 1},
    "rank 2": {"rank": 2, "lengths": (0.5, 2.0)},
    "no noise": {"noise": 0.0, "lengths": (0.5, 1.0, 2.0)},
    "shared": {"noise": 0.0, "lengths": (0.5, 1.0, 2.0)},
}
NOISE, ROOM = (3,), 8


@pytest.fixture
def compare(make_task, batch_of, one_copy_each, monkeypatch):
    """Decodes all candidates and θ both ways; gives what they decoded."""

    def check(model, proposal, decoder, prefixes, room=ROOM, eos=0, **options):
        monkeypatch.setattr(task, "end_of_sequence", lambda tokenizer: eos)
        candidates = Candidates(make_task(decoder, max_new_tokens=room), **options)
        numbers = [*range(len(proposal)), None]
        found = candidates.decode(model, proposal, numbers, batch_of(prefixes), NOISE)
        assert found == one_copy_each(model, proposal, prefixes, decoder, room, NOISE, eos)
        assert candidates._batches(model)  # it was one batch
        assert len({tuple(rows) for rows in found.values()}) >= 3  # candidates differ from each other
        return found

    return check


@pytest.fixture
def share(monkeypatch):
    """Candidates without noise share matrices, as they do on a GPU."""

    def decide(form):
        if form == "shared":
            monkeypatch.setattr(engine, "is_factored", lambda *args: True)

    return decide


@pytest.mark.parametrize("form", ["dense", "rank 1", "rank 2", "shared"])
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bart", "marian", "lora"])
def test_a_batch_of_candidates_decodes_what_copies_decode(
    kind, decoder, form, make_model, make_proposal, prefixes, compare, share
):
    share(form)
    model = make_model(kind)
    compare(model, make_proposal(model, **FORMS[form]), decoder, prefixes)


@pytest.mark.parametrize("form", ["dense", "rank 1"])
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize("kind", ["gemma", "cohere", "falcon", "blenderbot", "t5", "mamba"])
def test_and_so_do_those_of_models_that_use_parameters_apart_from_rows(
    kind, decoder, form, make_model, make_proposal, prefixes, compare
):
    model = make_model(kind)
    compare(model, make_proposal(model, **FORMS[form]), decoder, prefixes)


@pytest.mark.parametrize("form", ["dense", "rank 1"])
@pytest.mark.parametrize("kind", ["gemma", "cohere", "falcon", "blenderbot", "t5", "mamba"])
def test_with_as_many_positions_as_rows_nothing_is_mistaken(kind, form, make_model, make_proposal, prefixes, compare):
    """Five candidates and θ, a prefix of six tokens; and room for more than as many new ones."""
    model = make_model(kind)
    compare(model, make_proposal(model, **FORMS[form]), SAMPLE, [prefixes[3]], room=12)


@pytest.mark.parametrize("form", ["dense", "rank 1", "shared"])
@pytest.mark.parametrize("decoder", [GREEDY, SAMPLE], ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma", "falcon", "lora"])
def test_rows_may_leave_early(
    kind, decoder, form, make_model, make_proposal, make_task, batch_of, prefixes, compare, share, monkeypatch
):
    share(form)
    model, keep, counts = make_model(kind), Groups.keep, []
    proposal, batch = make_proposal(model, num=8, size=0.3, components="mle", **FORMS[form]), batch_of(prefixes[:2])

    def noted(self, kept):
        keep(self, kept)
        counts.append(self.sizes(self.rows))

    monkeypatch.setattr(task, "end_of_sequence", lambda tokenizer: 23)
    first = Candidates(make_task(decoder, max_new_tokens=16)).decode(model, proposal, range(8), batch, NOISE)
    monkeypatch.setattr(Groups, "keep", noted)
    found = compare(model, proposal, decoder, prefixes[:2], room=16, eos=ends_at_many_lengths(first))
    assert any(len(set(sizes)) > 1 for sizes in counts)  # groups of different sizes,
    assert any(0 in sizes for sizes in counts)  # some of them empty
    assert len({len(row) for rows in found.values() for row in rows}) > 3


def ends_at_many_lengths(found):
    """The token that, if it were ⟨eos⟩, would end candidates at the most different times."""

    def times(token):
        firsts = [[row.index(token) if token in row else len(row) for row in rows] for rows in found.values()]
        return len({max(ends) for ends in firsts}) + len({end for ends in firsts for end in ends})

    return max(range(24), key=times)


@pytest.mark.parametrize("form", ["dense", "rank 2"])
@pytest.mark.parametrize("options", [{"most_rows": 4}, {"most_rows": 16}, {"most_rows": 9}, {"most_rows": 3}], ids=str)
@pytest.mark.parametrize(("kind", "decoder"), [("gpt2", SAMPLE), ("bart", BEAM)], ids=str)
def test_candidates_may_come_in_groups_and_rows_in_parts(
    kind, decoder, options, form, make_model, make_proposal, prefixes, compare
):
    """Five candidates and θ, four rows of each."""
    model = make_model(kind)
    compare(model, make_proposal(model, **FORMS[form]), decoder, prefixes, room=6, **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_positions_may_be_looked_up_once_for_all_rows(
    decoder, form, make_model, make_proposal, prefixes, compare, share
):
    share(form)
    model, shapes = make_model("gpt2"), set()
    model.transformer.wpe.register_forward_pre_hook(lambda module, args: shapes.add(tuple(args[0].shape)))
    compare(model, make_proposal(model, **FORMS[form]), decoder, [prefix[:2] for prefix in prefixes])
    assert (1, 2) in shapes or decoder is BEAM  # generate gives every row its own


@pytest.mark.parametrize("form", FORMS)
def test_a_single_candidate_of_a_single_row(form, make_model, make_proposal, make_task, batch_of, one_copy_each, share):
    share(form)
    model = make_model("llama")
    proposal = make_proposal(model, num=1, components="mle", **FORMS[form])
    found = Candidates(make_task(SAMPLE)).decode(model, proposal, [0], batch_of([(5, 6)]), NOISE)
    expected = one_copy_each(model, proposal, [(5, 6)], SAMPLE, 10, NOISE)
    assert found[0] == expected[0] != expected[None]


@pytest.mark.parametrize("form", ["dense", "rank 1"])
@pytest.mark.parametrize("decoder", [Decoder(sample=True, top_k=4, temperature=1.5), Decoder(sample=True, top_p=0.8)])
def test_filters_of_the_sampler_apply_to_each_candidate(
    decoder, form, make_model, make_proposal, prefixes, compare, share
):
    model = make_model("llama")
    compare(model, make_proposal(model, **FORMS[form]), decoder, prefixes)
