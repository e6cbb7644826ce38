#!/usr/bin/env bash
# torchtitan 0.3.0 (torch 2.15.0): with its default loss a zero-bubble or DualPipeV schedule drops the gradient of the final norm.
#
# Expected: a schedule changes the order of the work, not the gradients. GPipe and ZBVZeroBubble give the same ones.
# Seen: with ChunkedLossWrapper, the loss of torchtitan's own configurations, ZBVZeroBubble leaves norm.weight without a gradient.
#   The loss ends with lm_head.reshard(). Head and final norm are one group of fully_shard, also where nothing is sharded, so the norm's
#   weight is another object when the split backward looks it up among the module's parameters. With CrossEntropyLoss all is well.
#   No warning: the optimizer leaves a weight without a gradient as it is.
# Why it matters: the final norm stays at its first values for the whole run, in the schedules that large runs choose.
# Usage: ./torchtitan_zero_bubble_loses_the_final_norms_gradient.sh (about 2 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0
cat >"$folder/norm.py" <<'END'
import dataclasses
import types
import zlib

import torch
import torch.nn.functional as F

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks for it when it is imported
from torch.distributed.fsdp import FSDPModule
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims, utils
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.llama3 import model_registry, parallelize_llama

LENGTH, ROWS, WORDS = 16, 4, 2048
STAGES = {"GPipe": [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "layers.3", "norm", "lm_head"]],
          "ZBVZeroBubble": [["tok_embeddings", "layers.0"], ["layers.1"], ["layers.2"], ["layers.3", "norm", "lm_head"]]}


def attend(self, q_BLNH, k_BLNH, v_BLNH, *, enable_gqa=False, **_):  # FlexAttention has no backward on CPUs
    q, k, v = (heads.transpose(1, 2) for heads in (q_BLNH, k_BLNH, v_BLNH))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=enable_gqa).transpose(1, 2)


def gradient(schedule, chunked):
    """The size of the final norm's gradient after a step; 0 where there is none."""
    parallelism = ParallelismConfig(pipeline_parallel_degree=2, data_parallel_shard_degree=1, pipeline_parallel_schedule=schedule,
                                    module_fqns_per_model_part=STAGES[schedule])
    whole = CrossEntropyLoss.Config(global_vocab_size=WORDS)
    loss = (ChunkedLossWrapper.Config(loss_fn=whole) if chunked else whole).build(compile_config=CompileConfig())
    config = model_registry("debugmodel").model
    config = dataclasses.replace(config, layers=config.layers[:4])
    config.update_from_config(config=types.SimpleNamespace(parallelism=parallelism))
    with torch.device("meta"):
        model = config.build()
    built, parts, first, last = pipeline_llm(
        model, parallel_dims=dims, training=TrainingConfig(local_batch_size=ROWS, seq_len=LENGTH, mixed_precision_param="float32"),
        parallelism=parallelism, compile_config=CompileConfig(), ac_config=None, dump_folder="", device=torch.device("cpu"),
        model_config=config, parallelize_fn=parallelize_llama, loss_fn=loss)
    for part in parts:
        part.to_empty(device="cpu")
        with torch.no_grad():
            part.init_weights()
            for name, weight in part.named_parameters():  # the same in each schedule
                weight.to_local().copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) * 0.1)
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply by torchtitan's factor of 1
    if chunked and last:
        loss.set_lm_head(parts[-1].lm_head)
        parts[-1]._skip_lm_head = True
    torch.manual_seed(1)
    tokens = torch.randint(WORDS, (ROWS, LENGTH + 1))
    rows = [tokens[row:row + 1] for row in range(ROWS)]
    with utils.get_spmd_context(parallel_dims=dims)():
        built.step(arg_mbs=[(row[:, :-1],) for row in rows] if first else None, kwarg_mbs=[{"positions": torch.arange(LENGTH)[None]} for _ in rows],
                   target_mbs=[row[:, 1:] for row in rows] if last else None, losses=[] if last else None,
                   loss_kwargs={"global_valid_tokens": torch.tensor(ROWS * LENGTH)}, return_outputs=False)
    if not last:
        return None
    found = parts[-1].norm.weight.grad
    return 0.0 if found is None else found.full_tensor().norm().item()


torch.set_num_threads(1)
FlexAttention.forward = attend
torch.distributed.init_process_group("gloo")
torch.autograd.set_multithreading_enabled(False)  # as torchtitan's init_distributed has it
dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=1, pp=2, ep=1, world_size=2)
dims.build_mesh()
for schedule, chunked, there in (("GPipe", True, True), ("ZBVZeroBubble", False, True), ("ZBVZeroBubble", True, False)):
    size = gradient(schedule, chunked)
    if size is not None:
        print(f"{schedule:14s} {'ChunkedLossWrapper' if chunked else 'CrossEntropyLoss':18s} gradient of norm.weight: {size:.4f}", flush=True)
        assert (size > 0) == there, "the behaviour changed"
    torch.distributed.barrier()
END
"$folder/tool/bin/uv" pip list --python "$folder/env/bin/python" 2>/dev/null | grep -E '^(torch|torchtitan) '
timeout 500 "$folder/env/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/norm.py" \
  2>"$folder/errors" || { tail -30 "$folder/errors"; exit 1; }
