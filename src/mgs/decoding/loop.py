"""The fast loop for greedy search and sampling: one forward pass a token, rows that have ended leave the batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mgs.decoding.cache import growing_cache
from mgs.models import window
from mgs.models.likelihood import padded

DROP_SHARE = 8  # rows leave when at least one in this many has ended: each time costs a copy of the cache

#: logits of the rows that are left, their keys of noise, the position → the scores whose largest is taken
Process = Callable[[Tensor, Tensor, "int | Tensor"], Tensor]


@torch.no_grad()
def decode_loop(
    model: nn.Module,
    prefixes: Sequence[Sequence[int]],
    max_new_tokens: int,
    eos: int,
    keys_B: Tensor | None = None,
    process: Process | None = None,
    left: Callable[[Tensor], object] = lambda kept: None,
) -> list[tuple[int, ...]]:
    """The argmax of the processed logits, token by token, up to and including ⟨eos⟩.

    `left` is told which rows (of those there were) stay whenever some leave. A row may go on beyond the model's window
    for the sake of shorter ones: its tokens there mean nothing.
    """
    device = next(model.parameters()).device
    lengths = [len(prefix) for prefix in prefixes]
    ragged = len(set(lengths)) > 1
    inputs = padded(prefixes, eos, device, left=True)
    attention = padded([[1] * length for length in lengths], 0, device, left=True) if ragged else None
    out_BT = torch.full((len(prefixes), max_new_tokens), eos, dtype=torch.long, device=device)
    rows = torch.arange(len(prefixes), device=device)  # those still being decoded
    keys = keys_B if keys_B is not None else rows
    last = (window(model) or sys.maxsize) - 1  # type: ignore[arg-type]
    cache = growing_cache(model.config)  # type: ignore[arg-type]
    for position in range(max_new_tokens):
        options = {}
        if attention is not None:
            positions = (attention.cumsum(dim=1) - 1).clamp(0, last)
            options = {"attention_mask": attention, "position_ids": positions[:, -inputs.shape[1] :]}
        logits = model(input_ids=inputs, past_key_values=cache, use_cache=True, logits_to_keep=1, **options).logits[
            :, -1
        ]
        scores = process(logits, keys, position) if process else logits
        tokens = scores.argmax(dim=-1)
        out_BT[rows, position] = tokens
        going = (out_BT[rows, : position + 1] != eos).all(dim=1)
        num_going = int(going.sum())
        if num_going == 0:
            break
        if (len(rows) - num_going) * DROP_SHARE >= len(rows):
            kept = going.nonzero().squeeze(1)
            rows, keys, tokens = rows[kept], keys[kept], tokens[kept]
            attention = attention[kept] if attention is not None else None
            cache.batch_select_indices(kept)  # type: ignore[union-attr]
            left(kept)
        # Rows that have ended read some other token: a model may take ⟨eos⟩ for padding and warn.
        inputs = torch.where(tokens == eos, int(eos == 0), tokens).unsqueeze(1)
        if attention is not None:
            attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
    return [ended_at(row, eos) for row in out_BT[:, : position + 1].tolist()]


def ended_at(tokens: Sequence[int], eos: int) -> tuple[int, ...]:
    """The tokens up to and including the first ⟨eos⟩, or all of them."""
    ids = list(tokens)
    return tuple(ids[: ids.index(eos) + 1] if eos in ids else ids)
