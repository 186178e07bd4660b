"""Options of the four trainers, on top of `transformers.TrainingArguments`. Each option's help is its documentation."""

from __future__ import annotations

import inspect
import math
import signal
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import chain
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.training_args import trainer_log_levels

from mgs.decoding import EVALUATION_LENGTH, Decoder
from mgs.errors import UserError, unknown
from mgs.methods.budget import UNITS
from mgs.methods.centres import GUIDES
from mgs.methods.parts import SPLITS
from mgs.methods.walk import Walk
from mgs.ranks import connect, launched
from mgs.search import ProposalForm, Temperature
from mgs.training.ranges import check_ranges, check_unused
from mgs.training.recipes import PAPER, RECIPES, with_recipes

#: Figures that are better when they are greater. All others are costs.
SCORES = ("bleu", "sbleu", "meteor", "chrf")
#: Options of the library that belong into every resolved configuration.
ALWAYS_SHOWN = ("optim", "bf16", "max_grad_norm")
#: Options of ours that `--help` leaves to `--help-all`.
RARE = (
    *("log_level", "logging_steps", "restore_callback_states_from_checkpoint", "remove_unused_columns"),
    *("save_total_limit", "log_level_replica", "log_base", "stratified", "cost_timeout", "ema"),
    *(
        "score_apart",
        "halvings",
        "likelihood_weight",
        "likelihood_pace",
        "length_unit",
        "probe_transfer",
        "guide_prefixes",
        "walk_steps",
        "walk_rate",
        "walk_weight",
        "walk_rows",
    ),
)
NONFINITE = ("stop", "skip")


def option(default: Any, help: str, **more: Any) -> Any:
    """A dataclass field with its help."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help, **more})
    return field(default=default, metadata={"help": help, **more})


def own_options(cls: type) -> dict[str, list[str]]:
    """The options that this project declares, under the first line of the class that does, the most special first;
    not those only inherited from the library."""
    ours = [c for c in cls.__mro__ if not issubclass(TrainingArguments, c)]
    return {(c.__doc__ or "").splitlines()[0]: list(inspect.get_annotations(c)) for c in ours}


def default_of(f: Field) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


@dataclass
class SequenceConfig(TrainingArguments):
    """Training, for all methods. Where defaults differ from the library's they are the paper's."""

    batch_tokens: int = option(1024, "Tokens in a batch, padding counted.")
    by_length: bool = option(False, "Put sequences of similar length into a batch together.")
    context: int = option(10, "Tokens of each sequence that are given; the rest is to be continued.")
    decoder: str = option("greedy", "Decoding algorithm: greedy, beam-N, or sample[,top_k=..,top_p=..,temperature=..].")
    max_new_tokens: int | None = option(None, "Decoding cap in training (default: 1.3 x the batch's longest target).")
    eval_max_new_tokens: int | None = option(
        None, f"Decoding cap in evaluation (default: {EVALUATION_LENGTH}; for translation twice the source)."
    )
    patience: int = option(
        10, "With keep_best: stop after this many evaluations without a better best_by; 0 never stops early."
    )
    keep_best: bool = option(True, "End with the weights of the best evaluation instead of the last.")
    best_by: str | None = option(
        None, "Figure that tells the best evaluation (default: bleu for translation; else perplexity for mle, or cost)."
    )
    ema: float | None = option(
        None, "Decay of an average of the weights, which is evaluated and saved (default: none)."
    )
    shard_data: bool = option(False, "Deal rows of batches to processes instead of MGS's candidates.")
    nonfinite: str = option("stop", "Where a gradient or a cost is not finite: stop, or skip the update.")
    cost_timeout: float | None = option(None, "Seconds that one call of the cost may take (default: any time).")

    output_dir: str | None = option(None, "Folder for the final model, checkpoints and logs.")
    max_steps: int = option(-1, "Updates in all; -1 trains for num_train_epochs.")
    num_train_epochs: float = option(1.0, "Passes through the data, if max_steps is not given.")
    gradient_accumulation_steps: int = option(1, "Batches an update.")
    seed: int = option(42, "Seed of everything: batches, candidates, samples, dropout.")
    learning_rate: float = option(6.25e-5, "Step size of the optimizer.")
    weight_decay: float = option(0.01, "Weight decay.")
    lr_scheduler_type: str = option("constant", "Schedule of the learning rate.")
    logging_steps: float = option(1, "Updates between log entries; should divide save_steps.")
    eval_strategy: str = option("steps", "When to evaluate by decoding: no or steps.")
    eval_steps: float | None = option(100, "Updates between evaluations.")
    save_steps: float = option(100, "Updates between checkpoints; each evaluation writes one as well.")
    save_total_limit: int | None = option(2, "Checkpoints kept beside the best.")
    log_level: str = option("error", "How much the library itself reports: error, warning, ...")
    log_level_replica: str = option("error", "The same for all processes but the first.")
    report_to: str = option("tensorboard", "Where logs go beside metrics.jsonl: tensorboard, wandb, none, ...")
    restore_callback_states_from_checkpoint: bool = option(True, "Early stopping goes on counting where it was.")
    remove_unused_columns: bool = option(False, "Columns of the dataset reach the cost.")

    own_best = "cost"

    def __post_init__(self) -> None:
        if self.output_dir is None:  # the library would make one up
            raise UserError("a run needs a folder to write to: set output_dir")
        check_ranges(self)
        if self.log_level not in trainer_log_levels:
            raise unknown("log_level", self.log_level, trainer_log_levels)
        self.reports = self.report_to  # as given: the library makes a list of it
        given = {f: getattr(self, f.name) for f in fields(self) if f.init}
        self.changed = [f.name for f, value in given.items() if value not in (default_of(f), None, "", [])]
        check_unused(self, self.changed)
        self.load_best_model_at_end = False  # set below: the library's check wants save_steps tied to eval_steps
        # Said to the library, or it would not connect processes, nor allow bf16.
        self.use_cpu |= not torch.accelerator.is_available()
        if launched() > 1:
            connect(self.ddp_backend, self.use_cpu, self.ddp_timeout)
        super().__post_init__()
        if launched() > self.world_size:
            raise UserError(
                f"{launched()} processes were launched that are not connected on this device: add --use_cpu"
            )
        if self.fp16:
            raise UserError("fp16 is not supported (its gradient scaler and parameter search do not mix): use bf16")
        for what in ("eval", "save", "logging"):
            if getattr(self, f"{what}_strategy") == "epoch":  # to the library, all passes through the data are one
                raise UserError(f"{what}_strategy cannot be epoch: use steps, and {what}_steps between them")
        if self.gradient_accumulation_steps < 1:
            raise UserError(f"gradient_accumulation_steps must be at least 1, got {self.gradient_accumulation_steps}")
        if self.context < 1:
            raise UserError(f"context must be at least 1 token, got {self.context}")
        if self.batch_tokens < 1:
            raise UserError(f"batch_tokens must be at least 1, got {self.batch_tokens}")
        Decoder.parse(self.decoder)
        if self.nonfinite not in NONFINITE:
            raise unknown("nonfinite", self.nonfinite, NONFINITE)
        if self.cost_timeout is not None and not (0 < self.cost_timeout < math.inf and hasattr(signal, "setitimer")):
            raise UserError(f"cost_timeout must be a time in seconds, on a system with alarms; got {self.cost_timeout}")
        if self.fsdp or self.deepspeed:
            raise UserError("every process holds the whole model: leave fsdp and deepspeed out")
        self.disable_tqdm = self.disable_tqdm or self.process_index > 0  # one bar is enough
        if self.keep_best and self.eval_strategy != "no":
            self.load_best_model_at_end = True
            self.choose_best_by(self.best_by or self.own_best)

    def choose_best_by(self, figure: str) -> None:
        self.metric_for_best_model = f"eval_{figure}"
        self.greater_is_better = figure in SCORES

    def resolved(self) -> dict[str, Any]:
        """Every option that is ours or differs from the library's default, as plain values."""
        shown = {*chain(*own_options(type(self)).values()), *ALWAYS_SHOWN, *self.changed}
        values = self.to_dict() | {"report_to": self.reports}
        return {name: value for name, value in sorted(values.items()) if name in shown}


@dataclass
class MLEConfig(SequenceConfig):
    """Maximum likelihood."""

    loss_on_prefix: bool = option(False, "Learn the prefix's tokens as well, e.g. when training from scratch.")
    shortest: float = option(1.0, "Share of each batch, its shortest targets, that is learned.")

    own_best = "perplexity"


@with_recipes
@dataclass
class MGSConfig(SequenceConfig):
    """MLE-guided parameter search. The defaults are the paper's text-completion settings."""

    recipe: str = option(PAPER, f"Settings that the other options start from: {', '.join(RECIPES)}.")
    num_candidates: int = option(4, "Candidates K an update.")
    temperature: str = option(
        "1.0", "Temperature of the weights: a number, or auto (see effective_share; best with stay)."
    )
    effective_share: float = option(
        0.5,
        "With temperature auto: effective sample size as a share of the candidates that may have weight: with stay, of "
        "those better than it.",
    )
    components: str = option("mixture", "Centres of the proposal: mixture, zero or mle.")
    mix: float = option(0.5, "Share of candidates around zero, the rest around MLE gradients.")
    guides: list[str] = option(
        ["mle"],
        "What the other centres are gradients of: mle, ends, loops, stops, risk (expected cost), decoded.",
    )
    walk_steps: int = option(0, "Steps of a walk to each of those centres, held to the start; 0: one down a gradient.")
    walk_rate: float = option(1e-4, "Step size of walks, which are Adam's.")
    walk_weight: float = option(0.03, "Weight in a walk of what leads it, beside the divergence from the start.")
    walk_rows: int = option(32, "Rows of each of the two a step.")
    guide_prefixes: int | None = option(None, "Prefixes that guides other than mle take (default: all).")
    num_samples: int = option(4, "With the guide risk: samples of each prefix.")
    num_gradients: int = option(1, "Parts of the batch whose gradients are centres of their own.")
    split: str = option("order", "How the batch is cut into those parts: order (as drawn) or length (of targets).")
    lengths: list[float] = option([1.0], "Lengths at which each gradient is a centre.")
    noise: float = option(1.0, "Noise level, times the noise scale; 0 leaves the centres themselves.")
    noise_scale: str = option("tensor", "Scale of the noise: mean |gradient| per tensor, global, or constant.")
    rank: int | None = option(
        None, "Rank of the noise in matrices: 1 makes hundreds of candidates cheap (default: full)."
    )
    density: str = option("unit", "Density in the weights: unit (as published), exact or none.")
    stratified: bool = option(True, "Deal candidates to centres in proportion instead of at random.")
    stay: bool = option(False, "Make candidate 0 the current weights themselves.")
    score_prefixes: int | None = option(None, "Prefixes of the batch that score candidates (default: all).")
    score_apart: bool = option(False, "Take gradients only from prefixes that do not score; a batch's last never does.")
    halvings: int = option(0, "Times that the worse half of the candidates is dropped while prefixes are scored.")
    likelihood_weight: float = option(0.0, "Weight in a candidate's cost of its -log p of a target token.")
    likelihood_budget: float | None = option(
        None, "Refuse candidates whose perplexity exceeds the start's by this share, e.g. 0.02 (default: none)."
    )
    likelihood_pace: float = option(1.0, "Share of that budget that one update may spend.")
    length_unit: str = option(
        "norm", "What lengths are shares of: norm (each gradient, clipped), or budget (how far it can go for that)."
    )
    probe_transfer: int = option(0, "Updates between those that also score candidates on fresh prefixes; 0: none do.")
    gradient_norm: float = option(1.0, "Norm to which each MLE gradient is clipped.")
    log_base: bool = option(False, "Also decode with the current weights at every update, for the log.")

    def __post_init__(self) -> None:
        self.guides = [self.guides] if isinstance(self.guides, str) else self.guides  # one may be given as it is
        self.lengths = [self.lengths] if isinstance(self.lengths, (int, float)) else self.lengths
        super().__post_init__()
        self.proposal_form()
        self.search_temperature()
        for guide in self.guides:
            if guide not in GUIDES:
                raise unknown("guide", guide, GUIDES)
        if not self.guides or len(set(self.guides)) < len(self.guides):
            raise UserError(f"guides must be one or more of {', '.join(GUIDES)}, each once, got {self.guides}")
        if self.split not in SPLITS:
            raise unknown("split", self.split, SPLITS)
        if self.length_unit not in UNITS:
            raise unknown("length_unit", self.length_unit, UNITS)
        if self.length_unit == "budget" and self.likelihood_budget is None:
            raise UserError("length_unit budget needs a likelihood_budget, e.g. 0.03")
        if self.score_apart and self.score_prefixes is None:
            raise UserError(
                "score_apart needs to know how many prefixes of a batch score candidates: give score_prefixes as well"
            )

    def proposal_form(self) -> ProposalForm:
        return ProposalForm(
            components=self.components,
            mix=self.mix,
            lengths=tuple(float(length) for length in self.lengths),
            noise=self.noise,
            noise_scale=self.noise_scale,
            density=self.density,
            stratified=self.stratified,
            stay=self.stay,
            rank=self.rank,
        )

    def walk(self) -> Walk | None:
        return Walk(self.walk_steps, self.walk_rate, self.walk_weight, self.walk_rows) if self.walk_steps else None

    def search_temperature(self) -> Temperature:
        if str(self.temperature) == "auto":
            return Temperature(None, self.effective_share)
        try:
            number = float(self.temperature)
        except (TypeError, ValueError):
            raise UserError(f"temperature must be a number or 'auto', got {self.temperature!r}") from None
        return Temperature(number)


@dataclass
class SamplingConfig(SequenceConfig):
    """Options that MRT and PG share."""

    num_samples: int = option(4, "Sampled continuations of each prefix.")
    mle_share: float = option(0.1, "Probability that a batch is used for an MLE step instead.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_samples < 1:
            raise UserError(f"num_samples must be at least 1, got {self.num_samples}")
        if not 0 <= self.mle_share <= 1:
            raise UserError(f"mle_share is a probability, got {self.mle_share}")


@dataclass
class MRTConfig(SamplingConfig):
    """Minimum risk training."""

    risk_temperature: float = option(1.0, "Sharpness of the renormalised distribution over the candidates.")
    greedy_candidate: bool = option(False, "Add the greedy continuation to the candidates.")
    gold_candidate: bool = option(False, "Add the human continuation to the candidates.")
    length_normalised: bool = option(False, "Divide log-likelihoods by length.")


@dataclass
class PGConfig(SamplingConfig):
    """Policy gradient."""

    baseline_decay: float = option(0.9, "Decay of the moving-average baseline.")
