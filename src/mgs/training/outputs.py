"""What a run leaves for people to look at, beside its weights and its log.

outputs.jsonl   a line for each held-out output that is kept; those of step 0 are the starting model's
record.json     settings, and figures with their signatures: of the start, of the end, and of people
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from mgs.costs.sequence import NGRAM, repeated_share
from mgs.data import Completions
from mgs.metrics import human_figures, texts
from mgs.models.likelihood import is_encoder_decoder
from mgs.training.checkpoints import replace_text
from mgs.training.trainer import SequenceTrainer
from mgs.types import Text

OUTPUTS, RECORD = "outputs.jsonl", "record.json"
PLACES = ("resume", "overwrite", "output_dir")  # where a run was kept says nothing of it


@dataclass
class RunRecord:
    """Written when a run starts and when it ends. `outputs` 0 keeps none, and does not evaluate the start."""

    folder: Path
    settings: dict[str, Any]
    split: str = "valid"
    outputs: int = 200

    def start(self, trainer: SequenceTrainer, data: Completions | None) -> None:
        """Evaluate the weights before the first update; a run that goes on has done so. Training does not notice."""
        self.began = time.monotonic()
        if data is None or not self.outputs or not trainer.is_world_process_zero():
            return
        if self.settings.get("resume") and "start" in read_json(self.folder / RECORD):
            return
        figures = trainer.figures(data)
        evaluation, trainer.last_evaluation = trainer.last_evaluation, None
        assert evaluation is not None
        content = {"start": {"figures": {self.split: figures}, "signatures": {self.split: evaluation.signature}}}
        write_json(self.folder / RECORD, content)
        lines = output_lines(trainer.processing_class, data, evaluation.hypotheses, 0, self.outputs)
        write_lines(self.folder / OUTPUTS, lines)

    def end(self, trainer: SequenceTrainer, data: Completions | None) -> dict[str, Any]:
        """Figures and outputs of the weights that were kept, from the trainer's last evaluation."""
        state, evaluation = trainer.state, trainer.last_evaluation
        kept = state.best_global_step or state.global_step
        content = {
            "settings": {name: value for name, value in self.settings.items() if name not in PLACES},
            "updates": state.global_step,
            "kept": kept,
            "finished": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        }
        if not self.settings.get("resume"):
            content["seconds"] = round(time.monotonic() - self.began, 1)
        if data is not None and evaluation is not None:
            content |= {"figures": {self.split: evaluation.figures}, "signatures": {self.split: evaluation.signature}}
            if not is_encoder_decoder(trainer.model):
                human = human_figures(trainer.processing_class, data, trainer.scorer)
                content["human"] = {self.split: human}
        record = {name: part for name, part in read_json(self.folder / RECORD).items() if name == "start"} | content
        if trainer.is_world_process_zero():
            write_json(self.folder / RECORD, record)
            if self.outputs and data is not None and evaluation is not None:
                before = [line for line in read_lines(self.folder / OUTPUTS) if line.get("step") == 0]
                lines = output_lines(trainer.processing_class, data, evaluation.hypotheses, kept, self.outputs)
                write_lines(self.folder / OUTPUTS, before + lines)
        return record


def output_lines(
    tokenizer: PreTrainedTokenizerBase, data: Completions, hypotheses: Sequence[Text], step: int | None, num: int
) -> list[dict[str, Any]]:
    """The first `num` outputs, each with its prefix and target; lengths are tokens, `repeated` places in the string."""
    examples = data.examples[:num]
    prefixes, targets = (texts(tokenizer, [getattr(e, side) for e in examples]) for side in ("prefix", "target"))
    return [
        {
            "step": step,
            "prefix": str(prefix),
            "target": str(target),
            "output": str(output),
            "ended": output.ended,
            "length": len(output.token_ids),
            "target_length": len(target.token_ids),
            "repetition": repeated_share(output.token_ids),
            "repeated": repeated_places(tokenizer, output),
        }
        for prefix, target, output in zip(prefixes, targets, hypotheses, strict=False)
    ]


def repeated_places(tokenizer: PreTrainedTokenizerBase, text: Text) -> list[tuple[int, int]]:
    """From where to where in the string its tokens belong to 4-grams that occurred before."""
    marked = [False, *repeated_tokens(text.token_ids), False]
    edges = [i for i in range(len(marked) - 1) if marked[i] != marked[i + 1]]
    # A token has no place in the string of its own: spaces and accents may belong to two.
    heads = texts(tokenizer, [text.token_ids[:edge] for edge in edges]) if edges else []
    places = [min(len(head), len(text)) for head in heads]
    return [(start, end) for start, end in zip(places[::2], places[1::2], strict=True) if start < end]


def repeated_tokens(token_ids: Sequence[int], n: int = NGRAM) -> list[bool]:
    """Whether each token is part of an n-gram that occurred before.

    >>> repeated_tokens([1, 2, 3, 1, 2, 5], n=2)
    [False, False, False, True, True, False]
    """
    seen, marked = set(), [False] * len(token_ids)
    for start in range(len(token_ids) - n + 1):
        ngram = tuple(token_ids[start : start + n])
        if ngram in seen:
            marked[start : start + n] = [True] * n
        seen.add(ngram)
    return marked


def read_json(file: Path) -> dict[str, Any]:
    """What a file holds; nothing where it is missing or was cut off."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Its lines; one that was cut off is left out."""
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n") if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in found if isinstance(line, dict)]


def evaluations(log: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A log's evaluations, without the prefix of their names.

    >>> evaluations([{"step": 2, "loss": 3.0}, {"step": 2, "epoch": 0.1, "eval_cost": 1.5}])
    [{'step': 2, 'cost': 1.5}]
    """
    shown = ({name: entry[name] for name in entry if name == "step" or name.startswith("eval_")} for entry in log)
    return [
        {name.removeprefix("eval_"): value for name, value in entry.items()} for entry in shown if set(entry) - {"step"}
    ]


def write_json(file: Path, content: Any) -> None:
    replace_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(file: Path, lines: Sequence[dict[str, Any]]) -> None:
    replace_text(file, "".join(json.dumps(line) + "\n" for line in lines))
