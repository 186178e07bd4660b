"""MLE, MGS, MRT and PG: each turns a batch into a gradient."""

from mgs.methods.method import Key, Method, Outcome
from mgs.methods.mgs import MGS
from mgs.methods.mixed import Mixed
from mgs.methods.mle import MLE, mle_loss
from mgs.methods.mrt import MRT
from mgs.methods.parallel import DataParallel
from mgs.methods.pg import PG

__all__ = ["MGS", "MLE", "MRT", "PG", "DataParallel", "Key", "Method", "Mixed", "Outcome", "mle_loss"]
