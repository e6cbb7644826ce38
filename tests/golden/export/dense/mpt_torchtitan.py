# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. For torchtitan 0.3.0."""

import os

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

HERE = os.path.dirname(os.path.abspath(__file__))


def mpt_plan() -> Trainer.Config:
    """The plan's model and layout. Data, optimizer and checkpoints are yours to add."""
    model_spec = model_registry("70B")
    return Trainer.Config(
        model_spec=model_spec,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        training=TrainingConfig(
            local_batch_size=32,
            global_batch_size=128,
            seq_len=4096,
            mixed_precision_param="bfloat16",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=1,
            data_parallel_shard_degree=4,
            fsdp_reshard_after_forward="never",
            tensor_parallel_degree=4,
            context_parallel_degree=1,
            pipeline_parallel_degree=4,
            pipeline_parallel_schedule="Interleaved1F1B",
            pipeline_parallel_microbatch_size=1,
            module_fqns_per_model_part=[
                ["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3"],
                ["layers.4", "layers.5", "layers.6", "layers.7"],
                ["layers.8", "layers.9", "layers.10", "layers.11"],
                ["layers.12", "layers.13", "layers.14", "layers.15"],
                ["layers.16", "layers.17", "layers.18", "layers.19"],
                ["layers.20", "layers.21", "layers.22", "layers.23"],
                ["layers.24", "layers.25", "layers.26", "layers.27"],
                ["layers.28", "layers.29", "layers.30", "layers.31"],
                ["layers.32", "layers.33", "layers.34", "layers.35"],
                ["layers.36", "layers.37", "layers.38", "layers.39"],
                ["layers.40", "layers.41", "layers.42", "layers.43"],
                ["layers.44", "layers.45", "layers.46", "layers.47"],
                ["layers.48", "layers.49", "layers.50", "layers.51"],
                ["layers.52", "layers.53", "layers.54", "layers.55"],
                ["layers.56", "layers.57", "layers.58", "layers.59"],
                ["layers.60", "layers.61", "layers.62", "layers.63"],
                ["layers.64", "layers.65", "layers.66", "layers.67"],
                ["layers.68", "layers.69", "layers.70", "layers.71"],
                ["layers.72", "layers.73", "layers.74", "layers.75"],
                ["layers.76", "layers.77", "layers.78", "layers.79", "norm", "lm_head"],
            ],
        ),
        compile=CompileConfig(enable=False, enable_async_tensor_parallel=False),
        activation_checkpoint=None,
    )
