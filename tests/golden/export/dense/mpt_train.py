#!/usr/bin/env python3
# Note: step time and memory are those of megatron-core, not of pytorch: mpt-plan --framework pytorch plans for it.
"""llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. For PyTorch 2.15.

Trains this plan's model with PyTorch alone, over NCCL on GPUs and over gloo on CPUs:

    torchrun --nproc-per-node 8 mpt_train.py --data FILES --init MODEL_FOLDER --save FOLDER --log-file run.jsonl

The constants below are the plan. The functions behind them build its model, split it over the ranks, and run its schedule.
"""

import argparse
import contextlib
import functools
import json
import math
import mmap
import os
import struct
import sys
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module

MODEL = {
    "hidden": 8192,
    "vocab": 128256,
    "max_positions": 131072,
    "norm": "rms_norm",
    "norm_bias": True,
    "norm_epsilon": 1e-05,
    "position": "rotary",
    "layers": {"kinds": {"attention_mlp": {"attention": {"heads": 64, "kv_heads": 8, "head_dim": 128, "rotary": {"base": 500000.0, "scaling": {"kind": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_positions": 8192, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.0, "mscale_all_dim": 0.0, "whole_dimensions": True}}}, "mlp": {"ffn_hidden": 28672, "gated": True, "activation": "silu"}}}, "order": [{"repeat": 80, "of": ["attention_mlp"]}]},
    "tied_embeddings": False,
}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 28672, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 128256}  # config.json of a saved model
MESH = [4, 1, 4, 1, 4]
AXES = ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
SEQUENCE = 4096  # tokens
GLOBAL_BATCH = 128  # sequences per step
MICRO_BATCH = 1  # sequences
MICRO_BATCHES = 32  # per data-parallel rank and step
PRECISION = "bf16"
SEQUENCE_PARALLEL = True
CONTEXT_METHOD = "ring"
RESHARD_AFTER_FORWARD = False
LAYERS = [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]  # of each stage, in model order
RECOMPUTED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]  # of them, the first ones
SCHEDULE = "interleaved"
RANK_OF_STAGE = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]  # its pipeline rank
LAYOUT = "tp4+sp pp4 dp4 zero1 mbs1 interleaved x5"
PROGRAM_DIGEST = "19e738413f8945fd"
REFUSED = "PyTorch FSDP2 has no ZeRO 1 with pipeline parallelism"

KINDS = [MODEL["layers"]["kinds"][name] for run in MODEL["layers"]["order"] for name in run["of"] * run["repeat"]]  # of each layer
ATTENTION = KINDS[0]["attention"]  # every layer's