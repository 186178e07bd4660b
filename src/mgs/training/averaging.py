"""The exponential moving average of the weights: it is what evaluations see and files hold, never what is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mgs.models import searched_parameters

ITERATE = "iterate.safetensors"  # in a checkpoint: what is trained, where the model's file is its average


class Average(TrainerCallback):
    """After each update, average ← decay · average + (1 − decay) · θ, beginning as the first update's θ.

    Without a decay there is none, and everything here leaves the weights alone.
    """

    def __init__(self, model: nn.Module, decay: float | None):
        self.model, self.decay = model, decay
        self.average: dict[str, Tensor] = {}

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        if self.decay is None:
            return
        if not self.average:
            self._begin()
        theta = [parameter.detach() for parameter in self._theta().values()]
        get_ema_multi_avg_fn(self.decay)(list(self.average.values()), theta, None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with the average as its weights, for as long as the block lasts."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def end(self) -> None:
        """Training is over: the average is the model."""
        self._exchange()
        self.average = {}

    def save(self, checkpoint: Path) -> None:
        """What is trained; the average is saved as the model."""
        if self.average:
            save_file({name: p.detach().contiguous() for name, p in self._theta().items()}, checkpoint / ITERATE)

    def load(self, checkpoint: Path) -> None:
        """After the model was loaded: its weights are the average, if there is one."""
        self.average = {}
        if not (checkpoint / ITERATE).exists():
            return
        if self.decay is not None:
            self._begin()
        theta = self._theta()
        for name, tensor in load_file(checkpoint / ITERATE).items():
            theta[name].data.copy_(tensor)

    def _theta(self) -> dict[str, nn.Parameter]:
        return searched_parameters(self.model)

    def _begin(self) -> None:
        self.average = {name: parameter.detach().clone() for name, parameter in self._theta().items()}

    @torch.no_grad()
    def _exchange(self) -> None:
        theta = self._theta() if self.average else {}
        for name, tensor in self.average.items():
            kept = theta[name].clone()
            theta[name].copy_(tensor)
            tensor.copy_(kept)
