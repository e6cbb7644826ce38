# Note: step time and memory are those of megatron-core, not of deepspeed: mpt-plan --framework deepspeed plans for it.
"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. For DeepSpeed 0.19.8."""

import os

import deepspeed
from deepspeed.pipe import PipelineModule

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = os.path.join(HERE, "deepspeed.json")
MODEL = "meta-llama/Llama-3.1-70B"  # on the hub, or a file beside this one
SEQUENCE = 4096  # tokens
CONTEXT = 1  # ranks that share a sequence
RECOMPUTE = False  # every layer
STAGES = 4
LAYER = "DecoderLayer"


def engine(model, **options):
    """DeepSpeed's engine of the plan. Optimizer and data are yours: deepspeed.initialize() takes them as options."""
    # `model`: the LayerSpecs of embedding, decoder layers and head; LAYER is the class of the decoder layers.
    model = PipelineModule(layers=model, num_stages=STAGES, partition_method=f"type:{LAYER}",
                           loss_fn=options.pop("loss_fn"), activation_checkpoint_interval=int(RECOMPUTE))
    return deepspeed.initialize(model=model, config=SETTINGS, **options)
