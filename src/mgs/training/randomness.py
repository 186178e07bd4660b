"""The generators that training draws from (dropout, and whatever a user's cost may draw), seeded anew for each batch.

What is drawn is then a function of where in a run it is drawn: a run that was stopped, and one that other processes
share, draw the same without keeping or telling any state.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from mgs.search.directions import key


def reseed(*where: object) -> None:
    seed = key(*where, "generators")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
