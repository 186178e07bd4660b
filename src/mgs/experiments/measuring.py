"""What is measured of a run once it is trained: the table's figures, and the texts they come from.

The LM columns of text completion come from one model for a whole table: the one that its runs start from. A run that
starts from no other, fine-tuning by MLE, is scored by what it ended with: the others start there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mgs.costs import repeated_share
from mgs.data import BatchStream, Completions
from mgs.experiments.inputs import ModelOptions
from mgs.experiments.study import Run, Study
from mgs.methods import MGS, Key
from mgs.metrics import Evaluation, human_figures, texts
from mgs.models.likelihood import is_encoder_decoder
from mgs.training.outputs import OUTPUTS, RECORD, output_lines, read_json, write_json, write_lines
from mgs.types import Text

CONTINUATIONS, CANDIDATES = "continuations.json", "candidates.json"
NUM_OUTPUTS = 200  # of the last split, for the page
Examples = Callable[[str, int | None], Completions]


def is_measured(study: Study, split: str, record: Mapping[str, Any]) -> bool:
    """Whether a record has a split's figures, from as many examples as the study wants: a table mixes no others in."""
    key = study.key(split)
    num = record.get("examples", {}).get(key, record["settings"].get("examples"))
    return key in record.get("figures", {}) and num == study.examples


def measure(study: Study, run: Run, out: Path, trainer: Any, examples: Examples, record: dict[str, Any]) -> None:
    """Adds the figures of each split that lacks them to the record, and puts the texts beside it; written split by
    split, so that what is stopped goes on there."""
    folder, before = out / run.name, study.before(run)
    splits = [split for split in study.splits if not is_measured(study, split, record)]
    if isinstance(trainer.method, MGS) and not (folder / CANDIDATES).exists():
        write_json(folder / CANDIDATES, {"candidates": candidate_texts(trainer, record["updates"])})
    if run.method == "mle" and before is None and not study.data.translates:
        trainer.scorer = ModelOptions(str(folder)).load()[0].eval().to(trainer.args.device)
    trainer.args.decoder = study.decoder or trainer.args.decoder
    decoded = read_json(folder / CONTINUATIONS)
    for split in splits:
        key, data = study.key(split), examples(split, study.examples)
        trainer.figures(data)
        evaluation: Evaluation = trainer.last_evaluation
        record.setdefault("figures", {})[key] = evaluation.figures
        record.setdefault("signatures", {})[key] = evaluation.signature
        record.setdefault("examples", {})[key] = study.examples
        if run.method == "mle" and before is None and trainer.scorer is not None:
            human = human_figures(trainer.processing_class, data, trainer.scorer)
            record.setdefault("human", {})[key] = human
        prefixes = texts(trainer.processing_class, [example.prefix for example in data])
        decoded[key] = [described(p, text) for p, text in zip(prefixes, evaluation.hypotheses, strict=True)]
        write_json(folder / CONTINUATIONS, decoded)
        if keeps_outputs(study, run, out):
            lines = output_lines(trainer.processing_class, data, evaluation.hypotheses, record["updates"], NUM_OUTPUTS)
            write_lines(folder / OUTPUTS, lines)
        write_json(folder / RECORD, record)


def keeps_outputs(study: Study, run: Run, out: Path) -> bool:
    """Whether the page shows what this study decodes. A decoder of its own gives way to that of training, wherever the
    run or its start has been measured by that: texts side by side are to be of one kind."""
    runs = [each for each in (run, study.before(run)) if each is not None]
    measured = {split for each in runs for split in read_json(out / each.name / RECORD).get("figures", {})}
    return study.decoder is None or measured.isdisjoint(study.splits)


def described(prefix: Text, continuation: Text) -> dict[str, Any]:
    return {
        "prefix": prefix,
        "text": continuation,
        "ended": continuation.ended,
        "length": len(continuation.token_ids),
        "repetition": repeated_share(continuation.token_ids) or 0.0,
    }


def candidate_texts(trainer: Any, step: int) -> list[dict[str, Any]]:
    """The first candidate of each component, of the update that would have come next: its cost, pooled over the batch,
    and what it makes of every prefix that scores it."""
    method, model, args = trainer.method, trainer.model, trainer.args
    how = {"by_length": args.by_length, "num_batches": step + 1, "by_side": is_encoder_decoder(model)}
    stream = BatchStream(trainer.train_dataset, args.batch_tokens, args.seed, **how)
    batch, key, task = stream[step], Key(args.seed, step), method.task
    proposal, batch, *_ = method.propose(model, batch, key)
    first = {component: k for k, component in reversed(list(enumerate(proposal.components)))}
    rows = method.candidates.decode(model, proposal, list(first.values()), batch, key)
    prefixes = texts(task.tokenizer, batch.prefixes)
    found = []
    for component, k in sorted(first.items()):
        decoded = texts(task.tokenizer, rows[k])
        cost = task.cost.mean(decoded, task.references(batch), **task.columns(batch))
        lines = [described(prefix, text) for prefix, text in zip(prefixes, decoded, strict=True)]
        found.append({"component": component, "cost": cost, "continuations": lines})
    return found
