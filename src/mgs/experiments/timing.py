"""Seconds, bytes, and what they were measured on."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import torch
import transformers

import mgs


def seconds(work: Callable[[int], object], repeats: int, warm: int = 1) -> float:
    """Median seconds of `work(step)`."""
    for step in range(warm):
        work(step)
    times = []
    for step in range(repeats):
        began = now()
        work(step)
        times.append(now() - began)
    return statistics.median(times)


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def with_memory(work: Callable[[], float]) -> tuple[float, float | None]:
    """Its result, and the most memory that was in use during it (nobody counts without a GPU)."""
    if not torch.cuda.is_available():
        return work(), None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return work(), float(torch.cuda.max_memory_allocated())


def reading_speed(like: torch.Tensor, size: int = 2**28) -> float:
    """Bytes a second of a large sum."""
    numbers = torch.ones(size if like.is_cuda else size // 16, device=like.device)
    return 4 * numbers.numel() / seconds(lambda step: numbers.sum(), 10, warm=2)


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} threads of {platform.machine()}"


def versions() -> dict[str, str]:
    return {"mgs": mgs.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
