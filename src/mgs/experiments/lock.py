"""One process at a time in a run's folder: what a killed `mgs reproduce` had started may still be at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mgs.errors import UserError

try:
    import fcntl
except ImportError:  # not on every system; there, nothing is locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a lock that the system takes back when the process ends, however it does. Its file is beside the folder,
    which may be deleted meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("a") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is at work on {folder}: wait until it ends, or end it") from None
        except OSError:  # a file system that has no locks
            pass
        yield
