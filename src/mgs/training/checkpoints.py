"""Which checkpoint to go on from: the newest that was written to its end."""

from __future__ import annotations

import json
from pathlib import Path

STATE = "trainer_state.json"  # the library writes it last
METHOD_STATE = "method.json"
PARTS = ("*.safetensors", "optimizer.pt", "scheduler.pt", "rng_state*.pth")


def newest_checkpoint(folder: str | Path) -> Path | None:
    """The newest whole checkpoint below a run's folder; one cut off while it was written is passed over."""
    found = [
        path for path in Path(folder).glob("checkpoint-*") if path.name.split("-")[-1].isdigit() and is_whole(path)
    ]
    return max(found, key=lambda path: int(path.name.split("-")[-1]), default=None)


def is_whole(checkpoint: Path) -> bool:
    """Its state parses and the parts that come before it are there."""
    try:
        json.loads((checkpoint / STATE).read_text())
        json.loads((checkpoint / METHOD_STATE).read_text())
    except (OSError, ValueError):
        return False
    return all(any(checkpoint.glob(part)) for part in PARTS)
