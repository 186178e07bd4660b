"""One HTML page for one or several runs, with everything in it: no network, no other files.

What models, data and folders say reaches the page as JSON alone, and is put there as text. The page's own policy
allows no script but the one written here.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import mgs
from mgs.report.figures import curves, tables
from mgs.report.runs import RunFolder
from mgs.report.samples import examples, lengths, voices
from mgs.report.settings import side_by_side

PAGE = files("mgs.report") / "page"
SCRIPTS = ("dom.js", "charts.js", "figures.js", "texts.js", "main.js")
ABOUT = ("updates", "kept", "seconds", "finished")


def report_page(runs: Sequence[RunFolder], title: str = "") -> str:
    """The whole page."""
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    parts = {
        "policy": f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {digest(style)}; "
        f"script-src {digest(script)}; img-src data:",
        "title": html.escape(title or names(runs)),
        "style": style,
        "data": embedded(contents(runs)),
        "script": script,
    }
    page = (PAGE / "page.html").read_text(encoding="utf-8")
    head, *pieces = page.split("{{")  # not one replacement after another: data may look like a place
    return head + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces))


def names(runs: Sequence[RunFolder], limit: int = 70) -> str:
    """All, or the first and how many more."""
    shown = ", ".join(run.name for run in runs)
    return shown if len(runs) == 1 or len(shown) <= limit else f"{runs[0].name} and {len(runs) - 1} more"


def contents(runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Everything that the page shows."""
    speakers, said = voices(runs)
    return {
        "version": mgs.__version__,
        "task": "translation" if any(run.translates for run in runs) else "completion",
        "runs": [about(run) | {"settings": each} for run, each in zip(runs, side_by_side(runs), strict=True)],
        "tables": tables(runs),
        "curves": curves(runs),
        "voices": speakers,
        "lengths": lengths(said),
        "examples": examples(said),
    }


def about(run: RunFolder) -> dict[str, Any]:
    """A run's name, and what was measured when."""
    return {
        "name": run.name,
        "summary": summary(run),
        "updates": run.updates,
        "about": {name: run.record[name] for name in ABOUT if name in run.record},
        "signatures": run.record.get("signatures", {}),
        "evaluations": run.evaluations(),
    }


def summary(run: RunFolder) -> str:
    """Method, cost, start, data and updates in a line, as far as they are known."""
    settings = run.settings
    parts = {
        "": run.method.upper(),
        "cost ": run.cost,
        "from ": settings.get("model") or settings.get("start") or settings.get("start.method", "").upper(),
        "on ": settings.get("data") or settings.get("data.data"),
        "updates: ": run.record.get("updates"),
    }
    return " · ".join(f"{what}{value}" for what, value in parts.items() if value)


def embedded(content: Any) -> str:
    """JSON that cannot end the element it stands in, whatever strings it holds."""
    return json.dumps(finite(content)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(content: Any) -> Any:
    """JSON knows no infinity and no NaN."""
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, dict):
        return {str(name): finite(value) for name, value in content.items()}
    return [finite(value) for value in content] if isinstance(content, (list, tuple)) else content


def digest(text: str) -> str:
    """As a page's policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
