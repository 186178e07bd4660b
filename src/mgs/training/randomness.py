"""The state of the generators that training draws from, to go back to."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import torch


class Randomness(NamedTuple):
    """What the library writes into a checkpoint, taken at any moment."""

    python: Any
    numpy: Any
    cpu: torch.Tensor
    cuda: list[torch.Tensor]

    @classmethod
    def now(cls) -> Randomness:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda)

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
