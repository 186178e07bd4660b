"""The guide that stops circles."""

import pytest
import torch

from mgs.methods import MGS, Key
from mgs.methods.loops import comes_back, log_stopping, loops_gradient
from mgs.search import ProposalForm
from mgs.types import Batch, Example, Text

KEY = Key(3, 0)
END = 0
CIRCLE = (1, 2, 3, 1, 2, 3, 1, 2, 3)  # 1 2 3 1 comes back at its fourth token


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), None),
        ((1, 2, 3), None),
        ((1, 2, 3, 1, 2, 3), None),  # no 4-gram twice
        (CIRCLE, 3),
        ((2, 2, 2, 2, 2), 1),
        ((3, 1, 2, 3, 1, 3, 1, 2, 3, 0), 5),
    ],
)
def test_where_the_first_ngram_comes_back(tokens, expected):
    assert comes_back(tokens) == expected


def test_the_chance_to_stop_is_one_minus_that_of_going_on_everywhere_in_the_circle(gpt2):
    gpt2.eval()
    prefixes, rows = [(1, 2), (3,)], [CIRCLE, (2, 2, 2, 2, 2)]
    found = log_stopping(gpt2, prefixes, rows, END)
    for prefix, tokens, value in zip(prefixes, rows, found, strict=True):
        probabilities = gpt2(torch.tensor([[*prefix, *tokens]])).logits[0].double().softmax(dim=-1)
        going_on = 1.0
        for place in range(comes_back(tokens), len(tokens)):
            going_on *= 1 - probabilities[len(prefix) - 1 + place, END].item()
        assert value.exp().item() == pytest.approx(1 - going_on, rel=1e-4)


def test_it_is_the_gradient_over_the_rows_that_go_in_circles(gpt2, grad, assert_same):
    batch = Batch(
        [Example((1,), (2, 2)), Example((2,), (1, 0)), Example((3,), (1, 0)), Example((1, 1), (3, 0))]
    )  # the first is cut
    hypotheses = [Text("", tokens, False) for tokens in (CIRCLE, (1, 2, 0), (3, 3, 3, 3, 3, 3), (0,))]
    gpt2.eval()
    found, share = loops_gradient(gpt2, batch, hypotheses, END)
    assert share == 0.5
    stopping = log_stopping(gpt2, [(1,), (3,)], [CIRCLE, (3, 3, 3, 3, 3, 3)], END)
    assert_same(found, grad(-stopping.sum() / 4, gpt2))


def test_where_nothing_goes_in_circles_it_says_nothing(gpt2, batch, make_task):
    gradient, share = loops_gradient(gpt2, batch, [Text("", (1, 0))] * len(batch), END)
    assert share == 0.0
    assert set(gradient) == {name for name, _ in gpt2.named_parameters()}
    assert not any(tensor.any() for tensor in gradient.values())
    form = ProposalForm(components="mle", noise=0.0, density="none")
    outcome = MGS(make_task(), form, 2, guides=("ends", "loops"))(gpt2, batch, KEY)  # the cap leaves no room for any
    assert outcome.log["loops_loss"] == 0.0
    assert all(tensor.isfinite().all() for tensor in outcome.gradient.values())


def test_steps_along_it_stop_a_model_that_goes_in_circles(make_gpt2, make_task):
    """Some greedy continuations of this model never end; in the end all do, or no longer repeat themselves."""
    model = make_gpt2(seed=1).eval()
    task = make_task(max_new_tokens=12)
    batch = Batch([Example((a, b), (1, 0)) for a in (1, 2, 3) for b in (1, 2, 3)])

    def circling():
        return sum(comes_back(text.token_ids) is not None for text in task.decode(model, batch, KEY))

    before = circling()
    for _ in range(60):
        gradient, _ = loops_gradient(model, batch, task.decode(model, batch, KEY), END)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(gradient[name], alpha=0.2)
    assert before > 0
    assert circling() == 0


def test_guides_share_what_is_decoded(gpt2, batch, make_task, monkeypatch):
    """And search has a centre at each of them."""
    task = make_task()
    decoded = []
    monkeypatch.setattr(type(task), "decode", lambda self, *given: decoded.append(1) or [Text("", CIRCLE)] * 4)
    method = MGS(task, ProposalForm(components="mle", noise=0.0), 2, guides=("loops", "decoded"))
    _, facts = method.centres(gpt2, batch, KEY)
    assert [fact["guide"] for fact in facts] == ["loops", "decoded"]
    assert facts[0]["loss"] == 1.0
    assert len(decoded) == 1
