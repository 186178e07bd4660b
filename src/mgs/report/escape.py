"""What a model generated is data: it must not move the cursor, change colours or open links in a terminal."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    r"""The text with control and format characters written out.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c == " " or unicodedata.category(c)[0] not in "CZ" else repr(c)[1:-1] for c in text)
