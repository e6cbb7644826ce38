# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
"""llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For torchtitan 0.3.0."""

import os

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEDULE = "zb-v"  # of schedule.csv


def mpt_plan() -> Trainer.Config:
    """The plan's model and layout. Data, optimizer and checkpoints are yours to add."""
    model_spec = model_registry("8B")
    return Trainer.Config(
        model_spec=model_spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        training=TrainingConfig(
            local_batch_size=16,
            global_batch_size=32,
            seq_len=4096,
            mixed_precision_param="bfloat16",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=1,
            data_parallel_shard_degree=2,
            fsdp_reshard_after_forward="never",
            tensor_parallel_degree=1,
            context_parallel_degree=1,
            pipeline_parallel_degree=4,
            pipeline_parallel_schedule="ZBVZeroBubble",
            # The name above only says which stages a rank has.
            pipeline_parallel_schedule_csv=os.path.join(HERE, "schedule.csv"),
            pipeline_parallel_microbatch_size=1,
            module_fqns_per_model_part=[
                ["tok_embeddings", "layers.0"],
                ["layers.1", "layers.2", "layers.3", "layers.4"],
                ["layers.5", "layers.6", "layers.7", "layers.8", "layers.9"],
                ["layers.10", "layers.11", "layers.12", "layers.13", "layers.14"],
                ["layers.15", "layers.16", "layers.17", "layers.18", "layers.19"],
                ["layers.20", "layers.21", "layers.22", "layers.23", "layers.24"],
                ["layers.25", "layers.26", "layers.27", "layers.28", "layers.29"],
                ["layers.30", "layers.31", "norm", "lm_head"],
            ],
        ),
        compile=CompileConfig(enable=False, enable_async_tensor_parallel=False),
        activation_checkpoint=None,
    )
