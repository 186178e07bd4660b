"""Candidate models θ + Δ_k and their task costs."""

from mgs.candidates.engine import Candidates
from mgs.candidates.perturbed import perturbed
from mgs.candidates.task import Task

__all__ = ["Candidates", "Task", "perturbed"]
