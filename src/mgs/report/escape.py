"""What a model generated is data, and so is what a user named: neither may move the cursor, change colours, turn the
direction of writing or open links in a terminal, or mark up a page."""

from __future__ import annotations

import html
import unicodedata


def printable(text: object) -> str:
    r"""The text with control and format characters written out.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(c if c == " " or unicodedata.category(c)[0] not in "CZ" else repr(c)[1:-1] for c in str(text))


def shortened(text: str, limit: int = 900) -> str:
    """The beginning and the end of a long text: an error begins with what was given and ends with what to do.

    >>> shortened("unknown cost 'xxxxxxxxxxxxxxxx' (allowed: lm)", 35)
    "unknown cost 'xx … x' (allowed: lm)"
    """
    half = (limit - 1) // 2 - 1
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"


def marked_up(text: object) -> str:
    """As `printable`, for a page or a Markdown table: no tag, no entity, no column of its own.

    >>> marked_up("<script>|")
    '&lt;script&gt;&#124;'
    """
    return html.escape(printable(text)).replace("|", "&#124;")
