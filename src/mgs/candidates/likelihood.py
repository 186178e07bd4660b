"""How likely candidates find the targets themselves: teacher forced, a few candidates in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack

import torch
from torch import nn

from mgs.candidates.forms import Number, is_factored, stand_ins
from mgs.candidates.groups import Groups
from mgs.candidates.perturbed import perturbed
from mgs.candidates.swap import swapped, watched
from mgs.data import packed
from mgs.models import searched_parameters
from mgs.models.likelihood import evaluating, padded_lengths, scoring_budget, token_log_likelihoods
from mgs.search import Proposal
from mgs.types import Batch

#: Candidates in one pass. Rounding depends on what is computed together: with groups that do not depend on how many
#: processes share the candidates, neither does the result. More would not be faster, since targets make many rows.
TOGETHER = 4


def num_targets(batch: Batch) -> int:
    """The tokens that a likelihood of the batch is a mean over."""
    return sum(map(len, batch.targets))


@torch.no_grad()
def mean_nlls(
    model: nn.Module, proposal: Proposal, numbers: Sequence[Number], batch: Batch, at_once: int, together: bool
) -> list[float]:
    """−log p of a target token, the mean over the batch, under each candidate; `at_once` rows of each in a pass.

    `numbers` are in order; if not `together` there is one, in place of the parameters instead of beside them.
    """
    groups = Groups(len(numbers))
    totals_K = torch.zeros(groups.num, dtype=torch.float64)
    pieces = _pieces(model, batch, groups.num, at_once)
    with ExitStack() as stack:
        for context in _contexts(model, proposal, numbers, groups, len(batch), together):
            stack.enter_context(context)
        for piece in pieces:
            groups.start(groups.num * len(piece))
            log_p_BT, _ = token_log_likelihoods(model, piece.prefixes * groups.num, piece.targets * groups.num)
            totals_K += log_p_BT.double().view(groups.num, -1).sum(dim=1).cpu()
    return (-totals_K / num_targets(batch)).tolist()


def _contexts(
    model: nn.Module, proposal: Proposal, numbers: Sequence[Number], groups: Groups, rows: int, together: bool
) -> list[AbstractContextManager]:
    """The model as these candidates, without dropout."""
    if together:
        ins = stand_ins(searched_parameters(model), proposal, numbers, groups, is_factored(proposal, rows))
        return [evaluating(model), swapped(model, ins), watched(model, groups)]
    (number,) = numbers
    return [evaluating(model), perturbed(model, {} if number is None else proposal.sample(number))]


def _pieces(model: nn.Module, batch: Batch, num: int, at_once: int) -> list[Batch]:
    """The batch in parts of similar length, of which `num` times the tokens fit one pass."""
    lengths = padded_lengths(model, batch.prefixes, batch.targets)
    parts = packed(lengths, max(1, scoring_budget(model) // num))
    return [batch.select(rows[start : start + at_once]) for rows in parts for start in range(0, len(rows), at_once)]
