"""A trainer of many processes: each holds the whole model and sees the same batches, and methods deal out the work."""

from __future__ import annotations

import hashlib
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from mgs.errors import UserError
from mgs.methods import DataParallel, Method
from mgs.ranks import Ranks


class TogetherTrainer(Trainer):
    model: nn.Module

    @cached_property
    def ranks(self) -> Ranks:
        """The processes of this run; the configuration has connected them."""
        return Ranks()

    def over_rows(self, method: Method) -> Method:
        """The method, with each batch's rows dealt to the processes."""
        return DataParallel(method, self.ranks) if self.ranks.size > 1 else method

    def create_accelerator_and_postprocess(self) -> None:
        """Without the library's own wrappers: one would exchange gradients at every step, and one, with bf16, would
        round all that the model computes, where candidates differ by less. Methods compute their gradients in bf16."""
        super().create_accelerator_and_postprocess()
        self.accelerator.native_amp = False
        self.accelerator.prepare_model = partial(self.accelerator.prepare_model, evaluation_mode=True)

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        return model

    def store_flos(self) -> None:
        """Nobody counts them, and the library would exchange them."""

    def check_same_weights(self) -> None:
        """Nothing sends weights to other processes: all must have made or loaded the same."""
        if not self._same_weights():
            raise UserError("the processes of this run start from different weights: give all of them the same model")

    def align_weights(self) -> None:
        """On GPUs the same sum may round differently from one process to another: all take the first one's weights."""
        if not self._same_weights():
            self.ranks.copy_from_first(parameter.data for parameter in self.model.parameters())

    def _same_weights(self) -> bool:
        return self.ranks.size == 1 or len(set(self.ranks.exchange(digest(self.model)))) == 1


def digest(model: nn.Module) -> str:
    """Differs where weights do: sums of their bits as integers, which no order of adding can change."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [p.detach().view(kinds[p.element_size()]).sum(dtype=torch.int64) for p in model.parameters()]
    return hashlib.blake2b(repr(torch.stack(sums).tolist()).encode(), digest_size=8).hexdigest()
