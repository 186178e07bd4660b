"""Search in parameter space. Knows tensors, costs and callables; no Hugging Face."""

from mgs.search.mgs import Temperature, Update, mgs_update
from mgs.search.proposal import COMPONENTS, DENSITIES, NOISE_SCALES, Centre, Proposal, ProposalForm
from mgs.search.weights import effective_sample_size, importance_weights, temperature_for

__all__ = [
    "COMPONENTS",
    "DENSITIES",
    "NOISE_SCALES",
    "Centre",
    "Proposal",
    "ProposalForm",
    "Temperature",
    "Update",
    "effective_sample_size",
    "importance_weights",
    "mgs_update",
    "temperature_for",
]
