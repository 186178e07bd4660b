"""The hub, and what to do where there is none."""

from __future__ import annotations

import sys

import huggingface_hub
from huggingface_hub import constants

PATIENCE = 5.0  # seconds


def work_offline_if_unreachable() -> None:
    """One short look, instead of the half minute for which the hub's libraries knock at every file.

    What is in their cache is still found, and what is not is an error at once.
    """
    if constants.HF_HUB_OFFLINE:
        return
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # no network, no name, no route, a proxy that refuses: all the same here
        constants.HF_HUB_OFFLINE = True
        if "datasets" in sys.modules:  # it copies the setting when it is imported
            sys.modules["datasets"].config.HF_HUB_OFFLINE = True
