#!/usr/bin/env python3
# Note: step time and memory are those of megatron-core, not of pytorch: mpt-plan --framework pytorch plans for it.
"""llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For PyTorch 2.15.

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
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

MODEL = {
    "hidden": 4096,
    "vocab": 128256,
    "max_positions": 131072,
    "norm": "rms_norm",
    "norm_bias": True,
    "norm_epsilon": 1e-05,
    "position": "rotary",
    "layers": {"kinds": {"attention_mlp": {"attention": {"heads": 32, "kv_heads": 8, "head_dim": 128, "rotary": {"base": 500000.0, "scaling": {"kind": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0, "original_positions": 8192, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.0, "mscale_all_dim": 0.0, "whole_dimensions": True}}}, "mlp": {"ffn_hidden": 14336, "gated": True, "activation": "silu"}}}, "order": [{"repeat": 32, "of": ["attention_mlp"]}]},
    "tied_embeddings": False,
}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 128256}  # config.json of a saved model
MESH = [4, 1, 2, 1, 1]
AXES = ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
SEQUENCE = 4096  # tokens
GLOBAL_BATCH = 32  # sequences per step
MICRO_BATCH = 1  # sequences
MICRO_BATCHES = 16  # per data-parallel rank and step
PRECISION = "bf16"
SEQUENCE_PARALLEL = False
CONTEXT_METHOD = "ring"
RESHARD_AFTER_FORWARD = False
LAYERS = [1, 4, 5, 5, 5, 5, 5, 2]  # of each stage, in model order
RECOMPUTED = [0, 0, 0, 0, 0, 0, 0, 0]  # of them, the first ones
SCHEDULE = "zb-v"
RANK_OF_STAGE = [0, 1, 2, 3, 3, 2, 1, 0]  # its pipeline rank
LAYOUT = "tp1 pp4 dp2 zero1 mbs1 zb-v x2"
PROGRAM_DIGEST = "d5270a1a3cf65d20"
REFUSED = "PyTorch FSDP2 has no ZeRO 1 with pipeline parallelism"

KINDS = [MODEL["layers"]["kinds"][name] for run in MODEL["layers"]["order"] for name in run["of"] * run["repeat"]]  # of each layer
ATTENTION = KINDS[0]["attention"]  # every layer's