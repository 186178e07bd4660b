"""The model card: `README.md` beside the weights, in the form that model hubs read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

import mgs
from mgs.experiments.inputs import DataOptions
from mgs.report.tables import markdown_table

CARD = "README.md"
METHODS = {
    "mle": "maximum likelihood",
    "mgs": "MLE-guided parameter search",
    "mrt": "minimum risk training",
    "pg": "policy gradient",
}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
USE = """\
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained({folder!r})
tokenizer = AutoTokenizer.from_pretrained({folder!r})
"""


def model_card(record: dict[str, Any], folder: Path) -> str:
    """What a run's record says, for whoever finds the model."""
    settings = {name: travelling(value) for name, value in record["settings"].items()}
    translates = settings.get("task") == "translation"
    data = DataOptions(task=settings.get("task"), data=settings.get("data"))
    head: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "translation" if translates else "text-generation",
        "tags": ["mgs", METHODS[settings["method"]].lower().replace(" ", "-")],
    }
    if HUB_NAME.fullmatch(settings["model"]) and not Path(settings["model"]).exists():
        head["base_model"] = settings["model"]
    place = travelling(str(folder))
    auto = "AutoModelForSeq2SeqLM" if translates else "AutoModelForCausalLM"
    command = f"mgs generate --model {shlex.quote(place)}"
    return "\n".join(
        [
            "---",
            yaml.safe_dump(head, sort_keys=False, allow_unicode=True) + "---",
            f"# {plain(folder.name)}\n",
            made({**record, "settings": settings}, data.source) + "\n",
            *figures(record),
            "## Use\n",
            fenced(USE.format(auto=auto, folder=place), "python"),
            f"or {code(command)}, with {code(f'mgs {mgs.__version__}')}.\n",
            "## Settings\n",
            fenced(yaml.safe_dump(settings, sort_keys=True, allow_unicode=True), "yaml"),
        ]
    )


def travelling(value: Any) -> Any:
    """A setting as a card has it. A card travels; what leads to a file or a folder does not, and is nobody's business.

    >>> travelling("/home/ann/de.txt,/home/ann/en.txt"), travelling("openai/gpt2")
    ('de.txt,en.txt', 'openai/gpt2')
    """
    if not isinstance(value, str):
        return value
    return ",".join(part if is_portable(Path(part)) else Path(part).name for part in value.split(","))


def is_portable(path: Path) -> bool:
    return not path.is_absolute() and path.parts[:1] not in (("..",), ("~",))


def made(record: dict[str, Any], source: str) -> str:
    """In a paragraph: from what, on what, how, for what."""
    settings = record["settings"]
    text = f"Trained by {METHODS[settings['method']]} from {code(settings['model'])} on {code(source)}"
    if settings["method"] != "mle":
        text += f" for the cost {code(settings['cost'])} under the decoder {code(settings['decoder'])}"
    text += f": {record['updates']} updates, seed {settings['seed']}"
    return text + (f"; the weights are those after {record['kept']}." if record["kept"] != record["updates"] else ".")


def figures(record: dict[str, Any]) -> list[str]:
    """A table for each split that was evaluated, with its signature."""
    lines = []
    for split, final in record.get("figures", {}).items():
        start = record.get("start", {}).get("figures", {}).get(split)
        human = record.get("human", {}).get(split)
        rows = {"start": start, "this model": final, "human": human}
        table = markdown_table({name: row for name, row in rows.items() if row})
        lines += [f"## Figures: {plain(split)}\n", table + "\n", fenced(record["signatures"][split])]
    return lines


def code(text: str) -> str:
    """Inline code that its text cannot end."""
    return "`" + " ".join(str(text).replace("`", "'").split()) + "`"


def plain(text: str) -> str:
    """Text without markup in it."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def fenced(text: str, language: str = "") -> str:
    """A block whose fence is longer than any in its text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"
