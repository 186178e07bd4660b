"""Decoding algorithms."""

from mgs.decoding.decoder import EVALUATION_LENGTH, Cap, Decoder, training_length
from mgs.decoding.noise import gumbel, row_keys

__all__ = ["EVALUATION_LENGTH", "Cap", "Decoder", "gumbel", "row_keys", "training_length"]
