"""The processes of a run, its ranks: what each of them is dealt, and the little that they tell each other.

`torchrun` starts them. Everything small goes through one exchange, of JSON; only where the rows of batches are dealt to
ranks are gradients added up. `exchanged` counts the bytes that pass through a rank.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from mgs import errors
from mgs.errors import UserError


class Ranks:
    """This process among those that `torch.distributed` connects, or `alone`."""

    def __init__(self, alone: bool = False):
        together = not alone and dist.is_available() and dist.is_initialized()
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
        self.exchanged = 0

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and prints."""
        return self.rank == 0

    def share(self, num: int) -> range:
        """Which of `num` things are this rank's."""
        return self.shares(num)[self.rank]

    def shares(self, num: int) -> list[range]:
        """Which are each rank's: in order, so that the ranks' answers end to end are everything's."""
        return [range(rank * num // self.size, (rank + 1) * num // self.size) for rank in range(self.size)]

    def exchange(self, value: Any) -> list[Any]:
        """Every rank's value, in order. Values are what JSON can say, which keeps every bit of a float."""
        if self.size == 1:
            return [value]
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = [int(length) for length in self._gather(torch.tensor([len(text)]))]
        padded = torch.nn.functional.pad(text, (0, max(lengths) - len(text)))
        rows = [bytes(row.tolist()) for row in self._gather(padded)]
        return [json.loads(row[:length]) for row, length in zip(rows, lengths, strict=True)]

    def pooled(self, compute: Callable[[], Any]) -> list[Any]:
        """What every rank computed, in order. A user's mistake that one of them meets is raised on all."""
        if self.size == 1:
            return [compute()]
        try:
            answer: dict[str, Any] = {"value": compute()}
        except UserError as error:
            if error.everywhere:  # the others know, from an exchange within `compute`
                raise
            answer = {"error": str(error), "kind": type(error).__name__}
        except OSError as error:
            answer = {"error": f"{error.strerror or error}: {error.filename or 'while reading or writing'}"}
        answers = self.exchange(answer)
        for told in answers:
            if "error" in told:
                raise _known_everywhere(told)
        return [told["value"] for told in answers]

    def from_first(self, compute: Callable[[], Any]) -> Any:
        """What the first rank computed; the others wait for it."""
        return self.pooled(compute if self.first else lambda: None)[0]

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by its sum over the ranks, the same on all of them."""
        for tensor in tensors:
            if self.size > 1:
                dist.all_reduce(tensor)
                self.exchanged += tensor.nbytes

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Overwrites each tensor with the first rank's."""
        for tensor in tensors:
            if self.size > 1:
                dist.broadcast(tensor, 0)
                self.exchanged += tensor.nbytes

    def _gather(self, mine: Tensor) -> list[Tensor]:
        mine = mine.to(torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend() else "cpu")
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        self.exchanged += self.size * mine.nbytes
        return [row.cpu() for row in found]


ALONE = Ranks(alone=True)


def launched() -> int:
    """How many processes a launcher says that it started."""
    return int(os.environ.get("WORLD_SIZE", 1))


def connect(backend: str | None, on_cpu: bool, seconds: float) -> None:
    """Connects the processes that `torchrun` started on one machine, before a library does it with less care.

    Processes find each other through the launcher's store. Those that are started again because one has died would
    find what the earlier ones left there and wait for the dead: so each attempt has its own part of the store.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    known = on_cpu or torch.cuda.is_available()
    if not known or attempt is None or os.environ.get("GROUP_WORLD_SIZE") != "1" or dist.is_initialized():
        return
    backend = backend or ("gloo" if on_cpu else "nccl")
    time = timedelta(seconds=seconds)
    store, rank, size = next(iter(rendezvous("env://", timeout=time)))
    dist.init_process_group(
        backend, store=dist.PrefixStore(f"attempt-{attempt}", store), rank=rank, world_size=size, timeout=time
    )


def _known_everywhere(told: dict[str, str]) -> UserError:
    error = getattr(errors, told.get("kind", ""), UserError)(told["error"])
    error.everywhere = True
    return error
