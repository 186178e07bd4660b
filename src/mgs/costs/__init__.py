"""Task costs C. Lower is better everywhere."""

from mgs.costs.cost import COST_NAMES, COSTS, Cost, CostFunction
from mgs.costs.lm import LanguageModelCost
from mgs.costs.sequence import edit, nontermination, repeated_share, repetition

__all__ = [
    "COSTS",
    "COST_NAMES",
    "Cost",
    "CostFunction",
    "LanguageModelCost",
    "edit",
    "nontermination",
    "repeated_share",
    "repetition",
]
