"""Trainers and their configurations."""

from mgs.training.checkpoints import newest_checkpoint
from mgs.training.config import MGSConfig, MLEConfig, MRTConfig, PGConfig, SequenceConfig
from mgs.training.trainer import SequenceTrainer
from mgs.training.trainers import METHODS, CostTrainer, MGSTrainer, MLETrainer, MRTTrainer, PGTrainer

__all__ = [
    "METHODS",
    "CostTrainer",
    "MGSConfig",
    "MGSTrainer",
    "MLEConfig",
    "MLETrainer",
    "MRTConfig",
    "MRTTrainer",
    "PGConfig",
    "PGTrainer",
    "SequenceConfig",
    "SequenceTrainer",
    "newest_checkpoint",
]
