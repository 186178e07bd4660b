"""`MLETrainer`, `MGSTrainer`, `MRTTrainer`, `PGTrainer`: each a method, made from its configuration."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from torch import nn

from mgs.candidates import Task
from mgs.costs import Cost, CostFunction, LanguageModelCost
from mgs.data import Completions, drawn_apart
from mgs.decoding import Decoder
from mgs.methods import MGS, MLE, MRT, PG, Key, Method, Mixed
from mgs.models.likelihood import is_encoder_decoder
from mgs.training.checks import check_given
from mgs.training.config import MGSConfig, MLEConfig, MRTConfig, PGConfig, SamplingConfig, SequenceConfig
from mgs.training.trainer import SequenceTrainer
from mgs.types import Batch


class MLETrainer(SequenceTrainer):
    """Maximum likelihood; the best model is the one of the lowest perplexity."""

    config_type = MLEConfig

    def __init__(self, model: nn.Module, args: MLEConfig, train_dataset: Any, **kwargs: Any):
        check_given(self, model, args, kwargs)
        self.method = self.over_rows(MLE(args.loss_on_prefix, args.bf16, args.label_smoothing_factor, args.shortest))
        super().__init__(model, args, train_dataset, **kwargs)


class CostTrainer(SequenceTrainer):
    """A method that minimises a task cost under a decoder."""

    def __init__(
        self, model: nn.Module, cost: str | CostFunction, args: SequenceConfig, train_dataset: Any, **kwargs: Any
    ):
        check_given(self, model, args, kwargs)
        if cost == "lm" or not is_encoder_decoder(model):  # whose table has columns for it
            self.scorer = frozen(model)  # the starting point, before anything changes
        chosen = Cost("lm", LanguageModelCost(self.scorer)) if self.scorer and cost == "lm" else Cost.of(cost)
        dealt = "shard_data" if args.shard_data and self.ranks.size > 1 else None
        chosen = dataclasses.replace(chosen, seconds=args.cost_timeout, by_sequence=dealt)
        self.task = Task(kwargs["processing_class"], Decoder.parse(args.decoder), chosen, args.max_new_tokens)
        self.method = self.make_method(args, model)
        super().__init__(model, args, train_dataset, **kwargs)
        if self.scorer is not None:
            self.scorer.to(self.args.device)

    def make_method(self, args: Any, model: nn.Module) -> Method:
        raise NotImplementedError

    def mixed(self, method: Method, args: SamplingConfig) -> Method:
        """The method and MLE by a coin, which falls the same for all processes."""
        mle = MLE(bf16=args.bf16, label_smoothing=args.label_smoothing_factor)
        both = Mixed(method, mle, args.mle_share) if args.mle_share else method
        return self.over_rows(both)

    def known_figures(self, translates: bool) -> list[str]:
        return ["cost", *super().known_figures(translates)]

    def figures(self, data: Completions) -> dict[str, float]:
        figures = super().figures(data)
        assert self.last_evaluation is not None
        cost = self.task.cost
        if isinstance(cost.function, LanguageModelCost) and cost.function.model is self.scorer:
            return {"cost": figures["lm"]} | figures  # all other costs take less time than what they are asked about
        batch, hypotheses = Batch(data.examples), self.last_evaluation.hypotheses
        return {"cost": cost.mean(hypotheses, self.task.references(batch), **self.task.columns(batch))} | figures


class MGSTrainer(CostTrainer):
    """MLE-guided parameter search.

    `cost` is one of `mgs.costs.COST_NAMES` or a function `cost(hypotheses, references, **columns) -> list[float] |
    float`; hypotheses are strings that know their tokens.
    """

    config_type = MGSConfig

    def make_method(self, args: MGSConfig, model: nn.Module) -> Method:
        budget, walk = args.likelihood_budget, args.walk()
        compared = budget is not None or walk is not None
        return MGS(
            self.task,
            args.proposal_form(),
            args.num_candidates,
            args.search_temperature(),
            guides=tuple(args.guides),
            guide_prefixes=args.guide_prefixes,
            num_samples=args.num_samples,
            walk=walk,
            num_gradients=args.num_gradients,
            split=args.split,
            score_prefixes=args.score_prefixes,
            score_apart=args.score_apart,
            halvings=args.halvings,
            likelihood_weight=args.likelihood_weight,
            likelihood_budget=budget,
            likelihood_pace=args.likelihood_pace,
            length_unit=args.length_unit,
            anchor=(self.scorer or frozen(model).to(args.device)) if compared else None,
            probe_transfer=args.probe_transfer,
            fresh=self._fresh,
            max_gradient_norm=args.gradient_norm,
            log_base=args.log_base,
            bf16=args.bf16,
            label_smoothing=args.label_smoothing_factor,
            ranks=self.ranks,
            shard_data=args.shard_data,
            progress=not args.disable_tqdm,
        )

    def _fresh(self, num: int, batch: Batch, key: Key) -> Batch:
        """Training examples that are not in this batch."""
        return drawn_apart(self.train_dataset, num, batch, *key)


class MRTTrainer(CostTrainer):
    """Minimum risk training, mixed with MLE."""

    config_type = MRTConfig

    def make_method(self, args: MRTConfig, model: nn.Module) -> Method:
        return self.mixed(
            MRT(
                self.task,
                args.num_samples,
                args.risk_temperature,
                args.greedy_candidate,
                args.gold_candidate,
                args.length_normalised,
                args.bf16,
            ),
            args,
        )


class PGTrainer(CostTrainer):
    """Policy gradient, mixed with MLE."""

    config_type = PGConfig

    def make_method(self, args: PGConfig, model: nn.Module) -> Method:
        return self.mixed(PG(self.task, args.num_samples, args.baseline_decay, args.bf16, ranks=self.ranks), args)


def frozen(model: nn.Module) -> nn.Module:
    """A copy that stays as the model is now."""
    return copy.deepcopy(model).eval().requires_grad_(False)


#: Method → its configuration and its trainer.
METHODS: dict[str, tuple[Any, Any]] = {
    "mle": (MLEConfig, MLETrainer),
    "mgs": (MGSConfig, MGSTrainer),
    "mrt": (MRTConfig, MRTTrainer),
    "pg": (PGConfig, PGTrainer),
}
