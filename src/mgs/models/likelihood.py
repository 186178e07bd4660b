"""Log-likelihoods log p(Y | X), causal or encoder-decoder, for training losses, scores and perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgs.data.batches import packed
from mgs.errors import UserError

SCORING_BUDGET = {"cpu": 4_096, "cuda": 65_536}  # padded tokens in one forward pass when no gradient is kept
LOGITS_BYTES = 2**31  # and fewer where their logits would take more than this, 65,536 × 50,257 of them are 13 GB, ...
LOGITS_SHARE = 1 / 16  # ... or, on a large GPU, more than this part of its memory


def padded(rows: Sequence[Sequence[int]], value: int, device: torch.device | str, left: bool = False) -> Tensor:
    """Rows of different lengths as one matrix, filled up with `value` on the right (or the left)."""
    longest = max(map(len, rows))
    filled = np.full((len(rows), longest), value, dtype=np.int64)  # numpy reads lists faster than torch
    for line, row in zip(filled, rows, strict=True):
        line[longest - len(row) if left else 0 :][: len(row)] = row
    return torch.from_numpy(filled).to(device)


def token_log_likelihoods(
    model: nn.Module, prefixes: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """log p of each of the target's tokens, as a matrix with zeros elsewhere, and the mask of those tokens."""
    logits_NV, tokens_N, scored_BT = scored_logits(model, prefixes, targets)
    scored_N = -F.cross_entropy(logits_NV.float(), tokens_N, reduction="none")
    out_BT = scored_N.new_zeros(scored_BT.shape).masked_scatter(scored_BT, scored_N)
    return out_BT, scored_BT


def scored_logits(
    model: nn.Module,
    prefixes: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    with_prefix: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The logits of every scored token, in order, what the tokens are, and where they are.

    Scored are the target's tokens; `with_prefix` adds the prefix's, all but the first, which nothing precedes.
    """
    if is_encoder_decoder(model):
        if with_prefix:
            raise UserError("an encoder-decoder model gives its source no likelihood: leave the prefix out")
        return _translated_logits(model, prefixes, targets)
    device = next(model.parameters()).device
    rows = [[*x, *y] for x, y in zip(prefixes, targets, strict=True)]
    ids_BT = padded(rows, 0, device)
    firsts = [1 if with_prefix else max(1, len(x)) for x in prefixes]
    position_T = torch.arange(ids_BT.shape[1], device=device)
    attended_BT = position_T < torch.tensor([len(row) for row in rows], device=device)[:, None]
    scored_BT = (attended_BT & (position_T >= torch.tensor(firsts, device=device)[:, None]))[:, 1:]
    # The head skips positions that are prefix in every row, and only scored ones go through the softmax. A model that
    # ignores `logits_to_keep` gives all: cut them here.
    start = min(firsts) - 1
    keep = ids_BT.shape[1] - start
    inputs = {"input_ids": ids_BT, "attention_mask": attended_BT.long(), "use_cache": False, "logits_to_keep": keep}
    logits_BTV = model(**inputs).logits[:, -keep:]
    kept_BT, next_BT = scored_BT[:, start:], ids_BT[:, start + 1 :]
    return _picked(logits_BTV, F.pad(kept_BT, (0, 1))), next_BT[kept_BT], scored_BT


def _picked(logits_BTV: Tensor, where_BT: Tensor) -> Tensor:
    """logits_BTV[where_BT], by number: going back through a mask takes longer."""
    return logits_BTV.flatten(0, 1).index_select(0, where_BT.flatten().nonzero().squeeze(1))


def _translated_logits(
    model: nn.Module, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """The decoder reads its start token and the target but for its end."""
    device = next(model.parameters()).device
    ids_BT = padded(targets, 0, device)
    scored_BT = padded([[1] * len(target) for target in targets], 0, device).bool()
    start: int = model.config.decoder_start_token_id  # type: ignore[union-attr, assignment]
    inputs = {
        "input_ids": padded(sources, 0, device),
        "attention_mask": padded([[1] * len(source) for source in sources], 0, device),
        "decoder_input_ids": padded([[start, *target[:-1]] for target in targets], 0, device),
        "use_cache": False,
    }
    return _picked(model(**inputs).logits, scored_BT), ids_BT[scored_BT], scored_BT


def padded_lengths(
    model: nn.Module, prefixes: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[tuple[int, ...]]:
    """What a budget counts: rows as a whole, or both sides, where a source is padded on its own."""
    pairs = [(len(x), len(y)) for x, y in zip(prefixes, targets, strict=True)]
    return list(pairs) if is_encoder_decoder(model) else [(sum(pair),) for pair in pairs]


def is_encoder_decoder(model: nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def log_likelihoods(model: nn.Module, prefixes: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """log p(Y | X) of each pair, summed over the target's tokens. Differentiable."""
    return token_log_likelihoods(model, prefixes, targets)[0].sum(dim=1)


@torch.no_grad()
def score(
    model: nn.Module,
    prefixes: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    budget: int | None = None,
) -> list[float]:
    """log p(Y | X) of any number of pairs, batched by length, without gradients or dropout."""
    lengths = padded_lengths(model, prefixes, targets)
    scores = [0.0] * len(lengths)
    budget = budget or scoring_budget(model)
    with evaluating(model):
        for rows in packed(lengths, budget):
            sums = token_log_likelihoods(model, [prefixes[r] for r in rows], [targets[r] for r in rows])[0]
            for row, value in zip(rows, sums.double().sum(dim=1).tolist(), strict=True):
                scores[row] = value
    return scores


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, for as long as the block lasts."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def scoring_budget(model: nn.Module) -> int:
    """How many padded tokens one forward pass without gradients may have."""
    device = next(model.parameters()).device
    tokens = SCORING_BUDGET.get(device.type, 4_096)
    config = getattr(model, "config", None)
    if config is None:
        return tokens
    room = max(LOGITS_BYTES, int(LOGITS_SHARE * own_memory(device))) if device.type == "cuda" else LOGITS_BYTES
    return min(tokens, room // (4 * config.get_text_config().vocab_size))


def own_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process may take, whatever of it is free: the same at every update."""
    whole = torch.cuda.get_device_properties(device).total_memory
    return int(whole * torch.cuda.get_per_process_memory_fraction(device))
