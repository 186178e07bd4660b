"""A guide of parameter search: when to stop, and nothing else.

    g = mean of ∇_w z_t,    z_t = ⟨w, h_t⟩

z_t is the logit of the end at place t of a target, and w the end's row of the output layer. A step along g adds nearly
the same to that logit everywhere: ends become likelier where they were likely, and no other token changes places with
another. Where the output layer is not searched, as with LoRA, g is the gradient in what is.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from mgs.methods.weighted import weighted_gradient
from mgs.models.likelihood import end_logits
from mgs.types import Batch, Direction


def ends_gradient(model: nn.Module, batch: Batch, bf16: bool = False) -> tuple[Direction, float]:
    """−g, and minus the mean logit."""
    weights = [-1 / sum(map(len, batch.targets))] * len(batch)
    gradient, value = weighted_gradient(model, batch.prefixes, batch.targets, weights, bf16, end_logits)
    name = _output_layer(model)
    return (_rows(gradient, name, {target[-1] for target in batch.targets}) if name in gradient else gradient), value


def _output_layer(model: nn.Module) -> str | None:
    """The name of its weight; where that is tied, of the embeddings."""
    layer = cast(PreTrainedModel, model).get_output_embeddings()
    found = (name for name, parameter in model.named_parameters() if layer is not None and parameter is layer.weight)
    return next(found, None)


def _rows(gradient: Direction, name: str, rows: set[int]) -> Direction:
    """These rows of one parameter, and zero elsewhere."""
    out = {other: torch.zeros_like(tensor) for other, tensor in gradient.items()}
    for row in rows:
        out[name][row] = gradient[name][row]
    return out
