"""Whether a model's candidates can be decoded as one batch: tried, not guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mgs.candidates.groups import Groups
from mgs.candidates.perturbed import perturbed
from mgs.candidates.stand_in import PerCandidate
from mgs.candidates.swap import APART, swapped, watched
from mgs.candidates.values import Stack
from mgs.models import searched_parameters
from mgs.search.directions import normal

T = TypeVar("T")
#: Of a model, what was found where these parameters were searched: layers may be frozen or added later.
Found = WeakKeyDictionary[nn.Module, dict[frozenset[str], T]]

ROWS, POSITIONS = 3, 5  # of each candidate; chosen so that nothing divides anything by accident
CANDIDATES = 2
SHARE = 0.1  # of a tensor's own size: much larger than a search's steps, so that a parameter left out shows
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}


def once(found: Found[T], model: nn.Module, find: Callable[[nn.Module], T]) -> T:
    """What `find` says of a model, asked again only when other parameters are searched."""
    of_model, searched = found.setdefault(model, {}), frozenset(searched_parameters(model))
    if searched not in of_model:
        of_model[searched] = find(model)
    return of_model[searched]


@torch.no_grad()
def swappable(model: nn.Module) -> str | None:
    """None if one batch of candidates gives what perturbed copies give, or a sentence that says what went wrong."""
    parameters = searched_parameters(model)
    directions = [_direction(parameters, k) for k in range(CANDIDATES)]
    inputs = example_inputs(model)
    training = model.training
    model.eval()
    try:
        own = {name: value[:ROWS] for name, value in inputs.items()}
        expected = []
        for direction in directions:
            with perturbed(model, direction):
                expected.append(model(**own).logits.float())
        groups = Groups(CANDIDATES)
        stacks = {  # rounded as the copies are, so that in half precision rounding is no difference
            n: torch.stack([p.detach() + d[n].to(p.dtype) for d in directions]).float() for n, p in parameters.items()
        }
        ins = {name: PerCandidate(parameters[name], Stack(stack), groups) for name, stack in stacks.items()}
        with swapped(model, ins), watched(model, groups):
            found = model(**inputs).logits.float()
        APART[model] = APART.get(model, frozenset()) | {name for name, stand_in in ins.items() if stand_in.apart}
        wanted = torch.cat(expected)
        gap = float((found - wanted).abs().max() / wanted.std())
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        model.train(training)
    allowed = TOLERANCE.get(next(iter(parameters.values())).dtype, 0.05)
    return None if gap <= allowed else f"outputs differ by {gap:.2g}"


def _direction(parameters: dict[str, nn.Parameter], k: int) -> dict[str, Tensor]:
    out = {}
    for name, parameter in parameters.items():
        size = float(parameter.detach().float().square().mean().sqrt()) or 1.0
        out[name] = normal(parameter.shape, parameter.device, "probe", k, name) * (SHARE * size)
    return out


def example_inputs(model: nn.Module) -> dict[str, Tensor]:
    """The same few rows for each candidate: prefixes, and for an encoder-decoder beginnings of outputs too."""
    device = next(model.parameters()).device
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
    ids = (torch.arange(ROWS * POSITIONS) * 7919 + 11).remainder(min(vocabulary, 10_007)).view(ROWS, POSITIONS)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["attention_mask"][0, 0] = 0  # one padded row
    if getattr(model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids[:, :2].flip(0)
    return {name: value.repeat(CANDIDATES, 1).to(device) for name, value in inputs.items()}
