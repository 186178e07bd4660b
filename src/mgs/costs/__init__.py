"""Task costs C. Lower is better everywhere."""

from mgs.costs.cost import COST_NAMES, COSTS, Cost, CostFunction
from mgs.costs.lm import LanguageModelCost
from mgs.costs.meteor import meteor
from mgs.costs.sequence import edit, nontermination, repeated_share, repetition
from mgs.costs.translation import bleu, chrf, sbleu, signature

__all__ = [
    "COSTS",
    "COST_NAMES",
    "Cost",
    "CostFunction",
    "LanguageModelCost",
    "bleu",
    "chrf",
    "edit",
    "meteor",
    "nontermination",
    "repeated_share",
    "repetition",
    "sbleu",
    "signature",
]
