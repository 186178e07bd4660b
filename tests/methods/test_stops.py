"""The guide that makes a model stop where that is nearest."""

import pytest
import torch

from mgs.methods import Key
from mgs.methods.stops import MARGIN, shortfalls, stops_gradient, to_be_stopped
from mgs.types import Batch, Example, Text

KEY = Key(3, 0)
END = 0
CIRCLE = (1, 2, 3, 1, 2, 3, 1, 2, 3)  # 1 2 3 1 comes back at its fourth token


@pytest.mark.parametrize(
    ("tokens", "ended", "expected"),
    [
        ((1, 2, END), True, ()),
        ((1, 2, 3), False, (1, 2, 3)),
        (CIRCLE, False, CIRCLE[:7]),
        ((*CIRCLE, END), True, CIRCLE[:7]),
        ((END,), True, ()),
    ],
)
def test_what_should_have_stopped_and_by_when(tokens, ended, expected):
    assert to_be_stopped(Text("", tokens, ended)) == expected


def test_how_far_the_end_is_from_being_the_likeliest_where_it_is_nearest(gpt2):
    gpt2.eval()
    prefixes, rows = [(1, 2), (3,)], [(3, 3, 1, 2), (2, 1)]
    found = shortfalls(gpt2, prefixes, rows, END)
    for prefix, tokens, value in zip(prefixes, rows, found, strict=True):
        log_p = gpt2(torch.tensor([[*prefix, *tokens]])).logits[0].log_softmax(dim=-1)
        away = [log_p[len(prefix) - 1 + t, 1:].max() - log_p[len(prefix) - 1 + t, END] for t in range(1, len(tokens))]
        assert value.item() == pytest.approx(max(0.0, MARGIN + min(away).item()), abs=1e-5)
    assert found.max() > 0


def test_where_it_stops_safely_nothing_is_asked_for(gpt2):
    gpt2.eval()
    with torch.no_grad():
        gpt2.transformer.ln_f.weight.zero_()  # so that all places are alike, ...
        gpt2.transformer.ln_f.bias.copy_(10 * gpt2.transformer.wte.weight[END])  # ... and the end the likeliest
    assert shortfalls(gpt2, [(1,)], [(2, 3)], END).tolist() == [0.0]


def test_it_is_the_gradient_over_the_rows_that_should_have_stopped(gpt2, grad, assert_same):
    batch = Batch([Example((1,), (2, 0)), Example((2,), (1, 0)), Example((3,), (1, 0)), Example((1, 1), (3, 0))])
    continuations = [(CIRCLE, False), ((1, 2, END), True), ((3, 1, 1), False), ((2,), False)]
    gpt2.eval()
    found, loss = stops_gradient(gpt2, batch, [Text("", *each) for each in continuations], END)
    direct = shortfalls(gpt2, [(1,), (3,)], [CIRCLE[:7], (3, 1, 1)], END).sum() / 4
    assert loss == pytest.approx(direct.item())
    assert_same(found, grad(direct, gpt2))


def test_where_all_is_as_it_should_be_it_says_nothing(gpt2, batch):
    gradient, loss = stops_gradient(gpt2, batch, [Text("", (1, END))] * len(batch), END)
    assert loss == 0.0
    assert set(gradient) == {name for name, _ in gpt2.named_parameters()}
    assert not any(tensor.any() for tensor in gradient.values())


def test_steps_along_it_stop_a_model_that_does_not(make_gpt2, make_task):
    """Some greedy continuations of this model go in circles and some do not end; in the end none."""
    model = make_gpt2(seed=1).eval()
    task = make_task(max_new_tokens=12)
    batch = Batch([Example((a, b), (1, 0)) for a in (1, 2, 3) for b in (1, 2, 3)])

    def wrong():
        return sum(bool(to_be_stopped(text)) for text in task.decode(model, batch, KEY))

    before = wrong()
    for _ in range(60):
        gradient, _ = stops_gradient(model, batch, task.decode(model, batch, KEY), END)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.sub_(gradient[name], alpha=0.2)
    assert before > 0
    assert wrong() == 0
