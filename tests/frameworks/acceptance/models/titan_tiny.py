# SPDX-License-Identifier: Apache-2.0
"""A configuration of torchtitan 0.3 for a tiny Llama: replicas in two groups that share weights out."""

from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer


def llama3_tiny() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("tiny"),
        training=TrainingConfig(
            local_batch_size=2,
            global_batch_size=8,
            seq_len=64,
            mixed_precision_param="float32",
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=2,
            fsdp_reshard_after_forward="always",
        ),
    )
