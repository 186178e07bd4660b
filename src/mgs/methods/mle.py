"""Maximum likelihood: L_MLE = −Σ log p(y_t | y_<t, X), here as a mean over the batch's target tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from mgs.data import packed
from mgs.decoding.memory import bytes_per_token
from mgs.methods.method import Key, Outcome, Stateless, autocast, gradient_of, summed_gradient
from mgs.models.likelihood import own_memory, padded_lengths, scored_logits
from mgs.types import Batch, Direction

CHUNK = 4096  # tokens that go forward and back at once, padding counted, where more would be no faster
WHOLE = 8192  # tokens of a batch of MLE that still goes as one
MOST = 32_768  # tokens at once on a GPU, ...
MEMORY_SHARE = 1 / 8  # ... if they fit this much of its memory: the model and what is decoded are there as well


def mle_loss(model: nn.Module, batch: Batch, with_prefix: bool = False, label_smoothing: float = 0.0) -> Tensor:
    """Mean negative log-likelihood of a target token; `with_prefix` learns the prefixes' tokens as well."""
    logits_NV, tokens_N, _ = scored_logits(model, batch.prefixes, batch.targets, with_prefix)
    return F.cross_entropy(logits_NV.float(), tokens_N, label_smoothing=label_smoothing)


def mle_gradient(
    model: nn.Module,
    batch: Batch,
    bf16: bool = False,
    budget: int | None = None,
    label_smoothing: float = 0.0,
    with_prefix: bool = False,
) -> tuple[Direction, float]:
    """∇ of the mean loss over a batch of any size, and the loss; `budget` tokens are in memory at a time, by default as
    many as go well."""
    num_targets = num_scored(batch, with_prefix)

    def share(rows: Sequence[int]) -> Tensor:
        piece = batch.select(rows)
        return mle_loss(model, piece, with_prefix, label_smoothing) * (num_scored(piece, with_prefix) / num_targets)

    pieces = packed(padded_lengths(model, batch.prefixes, batch.targets), budget or tokens_at_once(model))
    return summed_gradient(model, pieces, share, bf16)


def tokens_at_once(model: nn.Module) -> int:
    """How many tokens go forward and back in one pass: the same at every update, so that a run that is repeated or
    resumed has the same pieces."""
    device = next(model.parameters()).device
    if device.type != "cuda" or not hasattr(model, "config"):
        return CHUNK
    return max(CHUNK, min(MOST, int(MEMORY_SHARE * own_memory(device) / bytes_per_token(model))))


def num_scored(batch: Batch, with_prefix: bool = False) -> int:
    """The tokens whose mean the loss is: a row's first has nothing before it."""
    return sum(len(e) - 1 if with_prefix else len(e.target) for e in batch.examples)


def shortest_targets(batch: Batch, share: float) -> Batch:
    """The rows with the shortest targets of the whole batch, of which a process may have none."""
    targets = batch.all.targets
    order = sorted(range(len(targets)), key=lambda row: len(targets[row]))
    kept = set(order[: max(1, round(share * len(order)))])
    return batch.select([row for row, number in enumerate(batch.numbers) if number in kept])


@dataclass
class MLE(Stateless):
    """`shortest` < 1 learns only that share of each batch: a control for searches that find out that short targets
    teach a model to end."""

    with_prefix: bool = False
    bf16: bool = False
    label_smoothing: float = 0.0
    shortest: float = 1.0
    name: str = "mle"

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        model.train()
        kept = shortest_targets(batch, self.shortest)
        weight = num_scored(kept, self.with_prefix)
        kept = kept if weight else batch  # to go the same way as the other processes, for nothing
        if len(kept) * max(map(len, kept.examples)) > max(WHOLE, tokens_at_once(model)):
            gradient, mean = mle_gradient(model, kept, self.bf16, None, self.label_smoothing, self.with_prefix)
            return Outcome(gradient, mean, weight=weight)
        with autocast(model, self.bf16):
            loss = mle_loss(model, kept, self.with_prefix, self.label_smoothing)
        return Outcome(gradient_of(loss, model), loss.item(), weight=weight)
