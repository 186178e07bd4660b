"""A guide of parameter search: when to stop, and nothing else.

    g = mean of ∇_w z_t,    z_t = ⟨w, h_t⟩

z_t is the logit of the end at place t of a target, and w the end's row of the output layer. A step along g adds nearly
the same to that logit everywhere: ends become likelier where they were likely, and no other token changes places with
another. Where the output layer is not searched, as with LoRA, g is the gradient in what is.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mgs.methods.weighted import Rows, weighted_gradient
from mgs.models.likelihood import scored_logits
from mgs.types import Batch, Direction


def ends_gradient(model: nn.Module, batch: Batch, end: int, bf16: bool = False) -> tuple[Direction, float]:
    """−g, and minus the mean logit. `end` is ⟨eos⟩: a target that was cut to fit the model's window has none."""
    weights = [-1 / sum(map(len, batch.targets))] * len(batch)
    logits = partial(end_logits, end=end)
    gradient, value = weighted_gradient(model, batch.prefixes, batch.targets, weights, bf16, logits)
    name = _output_layer(model)
    return (_row(gradient, name, end) if name in gradient else gradient), value


def end_logits(model: nn.Module, prefixes: Rows, targets: Rows, end: int) -> Tensor:
    """The logit of the end, summed over all places in a target. Differentiable."""
    logits_NV, _, scored_BT = scored_logits(model, prefixes, targets)
    logits_N = logits_NV[:, end].float()
    return logits_N.new_zeros(scored_BT.shape).masked_scatter(scored_BT, logits_N).sum(dim=1)


def _output_layer(model: nn.Module) -> str | None:
    """The name of its weight; where that is tied, of the embeddings."""
    layer = cast(PreTrainedModel, model).get_output_embeddings()
    found = (name for name, parameter in model.named_parameters() if layer is not None and parameter is layer.weight)
    return next(found, None)


def _row(gradient: Direction, name: str, row: int) -> Direction:
    """This row of one parameter, and zero elsewhere."""
    out = {other: torch.zeros_like(tensor) for other, tensor in gradient.items()}
    out[name][row] = gradient[name][row]
    return out
