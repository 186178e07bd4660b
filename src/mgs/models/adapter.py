"""Adapters by `peft`, such as a LoRA: folders of a few weights that name the model they are added to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from mgs.errors import UserError, first_line

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapted(name: str) -> str | None:
    """The model that an adapter in the folder `name` is of; None where there is no adapter."""
    file = Path(name) / CONFIG
    if not file.is_file():
        return None
    try:
        base = json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} cannot be read: {type(error).__name__}, {first_line(error)}") from None
    if not isinstance(base, str) or not base or (Path(base) / CONFIG).exists():
        raise UserError(f"{file} has to name a model in base_model_name_or_path, but there is {base!r}")
    return base


def load_adapter(name: str, model: PreTrainedModel) -> Any:
    """The model with the adapter. Its own parameters are frozen: what is trained on is the adapter."""
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{name!r} is an adapter, which takes `peft` to load: pip install peft") from None
    if not (Path(name) / WEIGHTS).is_file():
        raise UserError(f"{name!r} is an adapter without {WEIGHTS}: only safetensors are read")
    try:
        return PeftModel.from_pretrained(model, name, is_trainable=True)
    except Exception as error:  # weights that do not fit, a kind of adapter that this version does not know
        raise UserError(f"cannot load the adapter {name!r}: {first_line(error)}") from None
