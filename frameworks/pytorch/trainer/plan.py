# SPDX-License-Identifier: Apache-2.0
"""The plan: constants that an export replaces by those of its plan."""

import math
import os

import torch

# body
# plan
MODEL = {"hidden": 64, "vocab": 256, "max_positions": 64, "norm": "rms_norm", "norm_bias": False, "norm_epsilon": 1e-5,
         "position": "rotary", "tied_embeddings": False,
         "layers": {"kinds": {"attention_mlp": {"attention": {"heads": 4, "kv_heads": 2, "head_dim": 16, "rotary": {"base": 10000.0}},
                                                "mlp": {"ffn_hidden": 128, "gated": True, "activation": "silu"}}},
                    "order": [{"repeat": 4, "of": ["attention_mlp"]}]}}
CONFIG = {}  # config.json of a saved model
MESH = (1, 1, 1, 1, 1)
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
SEQUENCE = 64  # tokens
GLOBAL_BATCH = 8  # sequences per step
MICRO_BATCH = 1  # sequences
MICRO_BATCHES = 8  # per data-parallel rank and step
PRECISION = "fp32"
SEQUENCE_PARALLEL = False
CONTEXT_METHOD = "ring"
RESHARD_AFTER_FORWARD = True
LAYERS = (4,)  # of each stage, in model order
RECOMPUTED = (0,)  # of them, the first ones
SCHEDULE = "1f1b"
RANK_OF_STAGE = (0,)
ROWS = ()  # of a schedule that PyTorch has no class of: a line for each pipeline rank
PREDICTED_STEP_S = 1.0
PROGRAM_DIGEST = ""
LAYOUT = ""
REFUSED = ""
# end plan

KINDS = [MODEL["layers"]["kinds"][name] for run in MODEL["layers"]["order"] for name in run["of"] * run["repeat"]]  # of each layer
ATTENTION = KINDS[0]["attention"]  # every layer's
NAME = __doc__.split(" on ")[0]
AXIS = dict(zip(AXES, MESH))
STAGES = len(LAYERS)
RANKS = math.prod(MESH)
RANKS_OF_STAGE = RANKS // AXIS["pp"]
TYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[PRECISION]
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
