"""GPU kernels for decoding many candidates. Written in Triton, which comes with PyTorch's CUDA builds."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def usable(device: torch.device) -> bool:
    """Whether this device can run the kernels; everything has a way without them."""
    return device.type == "cuda" and torch.version.cuda is not None and _has_triton()
