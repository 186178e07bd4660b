"""How much is decoded, or learned, at once: what the memory at hand takes."""

from __future__ import annotations

import psutil
import torch
from torch import nn

USABLE = 0.95  # of a GPU: each process needs some for itself
processes = 1  # that share the devices


def bytes_per_row(model: nn.Module, positions: int) -> int:
    """What decoding one row keeps: keys and values of every position, and a few copies of the logits."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    hidden = config.hidden_size
    heads = getattr(config, "num_attention_heads", None) or 1  # some models have none
    kv_share = (getattr(config, "num_key_value_heads", None) or heads) / heads
    layers = config.num_hidden_layers
    return int(4 * (2 * layers * hidden * kv_share * positions + 4 * config.vocab_size + 16 * hidden))


def bytes_per_token(model: nn.Module) -> int:
    """What learning from one token keeps, about: every layer's activations, and the logits with their gradients."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    return 4 * (40 * config.num_hidden_layers * config.hidden_size + 4 * config.vocab_size)


def share_memory(among: int) -> None:
    """From now on this process takes its part of the memory, as one of `among` that may all start while it is free."""
    global processes
    processes = among
    for device in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(USABLE / among if among > 1 else 1.0, device)


def free_memory(device: torch.device) -> int:
    if device.type != "cuda":
        return psutil.virtual_memory().available // processes
    free, total = torch.cuda.mem_get_info(device)
    mine = torch.cuda.memory_allocated(device)
    return max(0, min(free + torch.cuda.memory_reserved(device) - mine, int(USABLE * total / processes) - mine))
