"""Log-likelihoods log p(Y | X) under a causal model, for training losses, scores and perplexity."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgs.data.batches import token_batches

SCORING_BUDGET = {"cpu": 4_096, "cuda": 65_536}  # padded tokens in one forward pass when no gradient is kept


def padded(rows: Sequence[Sequence[int]], value: int, device: torch.device | str, left: bool = False) -> Tensor:
    """Rows of different lengths as one matrix, filled up with `value` on the right (or the left)."""
    longest = max(map(len, rows))
    filled = [[value] * (longest - len(r)) + list(r) if left else list(r) + [value] * (longest - len(r)) for r in rows]
    return torch.tensor(filled, dtype=torch.long, device=device)


def token_log_likelihoods(
    model: nn.Module,
    prefixes: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    with_prefix: bool = False,
) -> tuple[Tensor, Tensor]:
    """log p of each scored token, as a matrix with zeros elsewhere, and the mask of scored tokens.

    Scored are the target's tokens; `with_prefix` adds the prefix's, all but the first, which nothing precedes.
    """
    device = next(model.parameters()).device
    rows = [[*x, *y] for x, y in zip(prefixes, targets, strict=True)]
    ids_BT = padded(rows, 0, device)
    attention_BT = padded([[1] * len(row) for row in rows], 0, device)
    firsts = [1 if with_prefix else len(x) for x in prefixes]
    scored_BT = padded(
        [[0] * first + [1] * (len(row) - first) for first, row in zip(firsts, rows, strict=True)], 0, device
    )
    scored_BT = scored_BT[:, 1:].bool()
    logits_BTV = model(input_ids=ids_BT, attention_mask=attention_BT, use_cache=False).logits[:, :-1]
    # Only scored positions go through the softmax: prefixes and padding cost nothing.
    scored_N = -F.cross_entropy(logits_BTV[scored_BT].float(), ids_BT[:, 1:][scored_BT], reduction="none")
    out_BT = scored_N.new_zeros(scored_BT.shape).masked_scatter(scored_BT, scored_N)
    return out_BT, scored_BT


def log_likelihoods(model: nn.Module, prefixes: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """log p(Y | X) of each pair, summed over the target's tokens. Differentiable."""
    return token_log_likelihoods(model, prefixes, targets)[0].sum(dim=1)


@torch.no_grad()
def score(
    model: nn.Module,
    prefixes: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    with_prefix: bool = False,
    budget: int | None = None,
) -> list[float]:
    """log p(Y | X), or log p(X, Y), of any number of pairs, batched by length, without gradients or dropout."""
    lengths = [len(x) + len(y) for x, y in zip(prefixes, targets, strict=True)]
    scores = [0.0] * len(lengths)
    budget = budget or SCORING_BUDGET.get(next(model.parameters()).device.type, 4_096)
    training = model.training
    model.eval()
    try:
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        for rows in token_batches(lengths, budget, order):
            sums = token_log_likelihoods(model, [prefixes[r] for r in rows], [targets[r] for r in rows], with_prefix)[0]
            for row, value in zip(rows, sums.double().sum(dim=1).tolist(), strict=True):
                scores[row] = value
    finally:
        model.train(training)
    return scores
