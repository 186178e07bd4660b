"""Errors that a user can act on: one sentence with what was given, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in the input. The command line prints it without a traceback and exits with 2."""

    everywhere = False  # whether all processes of the run raise it: then only the first says so


class UpdateError(UserError):
    """An update that cannot be made. The run stops, after a checkpoint of the update before it."""


class CostError(UpdateError):
    """A task cost that raised, or returned something that cannot be used."""


class NonFinite(UpdateError):
    """A gradient or a cost that is infinite or not a number: the update may be skipped instead."""


class NonFiniteCost(NonFinite, CostError):
    """A cost that is."""


def first_line(error: BaseException) -> str:
    """What an exception of a library says, as far as a sentence has room for it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def at_least(least: int, **given: int | None) -> None:
    """The error for numbers that are smaller; None is the default of whatever it is.

    >>> at_least(1, max_new_tokens=None, num=3)
    """
    for name, value in given.items():
        if value is not None and value < least:
            raise UserError(f"{name} must be at least {least}, got {value}")


def unknown(kind: str, given: object, allowed: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("cost", "edti", ["edit", "lm"]))
    "unknown cost 'edti': did you mean 'edit'? (allowed: edit, lm)"
    >>> str(unknown("cost", "xyz", ["edit", "lm"]))
    "unknown cost 'xyz' (allowed: edit, lm)"
    """
    names = [str(name) for name in allowed]
    near = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f": did you mean '{near[0]}'?" if near else ""
    return UserError(f"unknown {kind} {str(given)!r}{hint} (allowed: {', '.join(names) or 'nothing'})")
