#!/usr/bin/env bash
# torchtitan 0.3.0 (torch 2.15.0): tensor parallelism multiplies the down-projection biases of GPT-OSS's experts by its degree.
#
# Expected: a layer's result is that of one process, whatever the tensor-parallel degree. Each rank holds a part of an expert's
#   matrices, and the sum over ranks has to hold the bias once. ScaleBiasForward divides it by the degree for this.
# Seen: with all weights 0 and that bias 1, a mixture-of-experts layer gives 1 on one process and 2 on two tensor ranks.
#   GptOssGroupedExperts.forward() learns the degree from its weight, if that is a DTensor. By the default backend, spmd_types, it is a
#   plain tensor there, so the degree is 1. With expert parallelism each expert is whole
#   on a rank (read, not run). Biases start at 0: it shows later.
# Why it matters: fine-tuning published GPT-OSS weights with tensor parallelism computes another model. Its weights are
#   wrong wherever it is served. No warning.
# Usage: ./torchtitan_multiplies_expert_biases_by_tensor_ranks.sh (about 2 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 torchtitan==0.3.0
cat >"$folder/bias.py" <<'END'
import dataclasses
import os
import types

import torch

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan asks for it when it is imported
from torchtitan.config import ParallelismConfig
from torchtitan.distributed import ParallelDims, utils
from torchtitan.models.gpt_oss import model_registry

RANKS = int(os.environ["WORLD_SIZE"])


def result(tp):
    parallelism = ParallelismConfig(tensor_parallel_degree=tp, enable_sequence_parallel=False)
    dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=tp, pp=1, ep=1, world_size=tp)
    dims.build_mesh()
    config = model_registry("debugmodel", attn_backend="flex").model
    config = dataclasses.replace(config, layers=config.layers[:1])
    config.update_from_config(config=types.SimpleNamespace(parallelism=parallelism))
    with torch.device("meta"):
        model = config.build()
    model.parallelize(dims)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights()
        for weight in model.parameters():
            weight.zero_()
        model.layers["0"].moe.routed_experts.inner_experts.mlp2_bias_ED.fill_(1.0)
    with utils.get_spmd_context(parallel_dims=dims)(), torch.no_grad():
        return model.layers["0"].moe(torch.ones(1, 16, config.dim)).mean().item()


torch.set_num_threads(1)
torch.set_default_dtype(torch.bfloat16)  # experts compute in it
torch.distributed.init_process_group("gloo")
value = result(RANKS)
if torch.distributed.get_rank() == 0:
    print(f"{RANKS} tensor ranks: a bias of 1 becomes {value:.3f}", flush=True)
assert abs(value - RANKS) < 1e-2, "the behaviour changed"
END
"$folder/tool/bin/uv" pip list --python "$folder/env/bin/python" 2>/dev/null | grep -E '^(torch|torchtitan) '
for ranks in 1 2; do
  timeout 500 "$folder/env/bin/python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$folder/bias.py" \
    2>"$folder/errors" || { tail -30 "$folder/errors"; exit 1; }
done
