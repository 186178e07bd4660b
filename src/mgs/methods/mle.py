"""Maximum likelihood: L_MLE = −Σ log p(y_t | y_<t, X), here as a mean over the batch's target tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from mgs.methods.method import Key, Outcome, Stateless, autocast, gradient_of
from mgs.models import token_log_likelihoods
from mgs.types import Batch


def mle_loss(model: nn.Module, batch: Batch, with_prefix: bool = False) -> Tensor:
    """Mean negative log-likelihood of a target token; `with_prefix` learns the prefixes' tokens as well."""
    log_likelihoods_BT, scored_BT = token_log_likelihoods(model, batch.prefixes, batch.targets, with_prefix)
    return -log_likelihoods_BT.sum() / scored_BT.sum()


@dataclass
class MLE(Stateless):
    with_prefix: bool = False
    bf16: bool = False
    name: str = "mle"

    def __call__(self, model: nn.Module, batch: Batch, key: Key) -> Outcome:
        model.train()
        with autocast(model, self.bf16):
            loss = mle_loss(model, batch, self.with_prefix)
        return Outcome(gradient_of(loss, model), loss.item())
