#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: global_aux_loss balances experts with a gradient that is divided by the number of data ranks.
#
# Expected: moe_aux_loss_coeff weighs the balance loss, however many ranks share the same global batch. The log shows this loss as it is.
# Seen, a GPTModel with 4 experts, 8 sequences in one step, one micro-batch a rank, in Megatron's own buffers and schedule.
#   The log has the same balance loss of the global batch on 1, 2 and 4 data ranks. The routers' gradient of it is 1.000, 0.500 and 0.250 of
#   that of one rank, in the same direction.
# Controls: the gradient of cross-entropy is 1.000 for each number of ranks. Where all ranks read the same sequences, "aux_loss"
#   has 1.000 for each, too, and "global_aux_loss", which is the same number there, 0.500 and 0.250.
#   With the coefficient multiplied by the ranks the gradient is 1.000.
# Why: each rank's loss has the probabilities of its own tokens over the tokens of all ranks, which is its part of a sum. The gradient
#   buffers take the mean over data ranks. "aux_loss" counts tokens within a rank's own tensor and context group.
# Why it matters: on 512 data ranks a coefficient of 0.001 acts as one of 0.000002. After a small trial a
#   run on many ranks has next to no balancing. The log shows the right loss.
# Usage: ./megatron_global_balance_loss_shrinks_with_data_ranks.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/balance.py" <<'END'
import contextlib
import importlib.metadata
import os
import sys

import torch


def cpu_for_cuda():
    """Megatron asks CUDA for its device and its streams; neither changes a number here."""
    def on_cpu(make):
        return lambda *values, **options: make(*values, **{**options, **({"device": "cpu"} if options.get("device") == "cuda" else {})})

    for name in ("zeros", "ones", "empty", "tensor"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    kind_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *kind, **options: kind_of(self, *kind, **options) if kind else kind_of(self).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.cuda.current_device, torch.cuda.current_stream = lambda: torch.device("cpu"), lambda *_: None


cpu_for_cuda()
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe.moe_logging import get_moe_metrics_tracker

ROWS, LENGTH, WORDS = 8, 32, 64
LOGS = {"aux_loss": "load_balancing_loss", "global_aux_loss": "global_load_balancing_loss"}
random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)


def gradient(kind, coefficient, alike, entropy):
    """The routers' gradient of the balance loss alone, or of cross-entropy alone, and the balance loss that is logged."""
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    config = TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=48, hidden_dropout=0.0, attention_dropout=0.0, init_method_std=0.2,
        num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=16, moe_token_dispatcher_type="allgather", use_cpu_initialization=True,
        moe_router_load_balancing_type=kind, moe_aux_loss_coeff=coefficient, transformer_impl="local",
        finalize_model_grads_func=finalize_model_grads, **off)
    torch.manual_seed(0)
    model = GPTModel(config, get_gpt_layer_local_spec(4, False), WORDS, LENGTH, position_embedding_type="rope").train()
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    rows = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    mine = rows if alike else rows.chunk(ranks)[rank]
    get_moe_metrics_tracker().clear()

    def step(batches, model):
        tokens = next(batches)
        losses = model(tokens, torch.arange(LENGTH).expand(len(tokens), -1), None, labels=tokens * 5 % WORDS)
        return losses, lambda output: (output.mean() * entropy, {"loss": output.detach().mean()})

    get_forward_backward_func()(forward_step_func=step, data_iterator=iter([mine]), model=model, num_microbatches=1, seq_length=LENGTH,
                                micro_batch_size=len(mine), forward_only=False)
    logged = torch.zeros(2)
    if coefficient:
        logged += get_moe_metrics_tracker().metrics[LOGS[kind]].values
        torch.distributed.all_reduce(logged)  # the log has the sum over ranks of the global kind, and the mean of the other
    logged = logged.mean() / (ranks if kind == "aux_loss" else 1)
    return torch.cat([weight.main_grad.flatten() for name, weight in model.named_parameters() if "router.weight" in name]), logged.item()


def run(rank, ranks, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet{ranks}", rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel()
    tasks = {"cross-entropy": ("global_aux_loss", 0.0, False, 1), "global_aux_loss": ("global_aux_loss", 1.0, False, 0),
             "global_aux_loss, the coefficient times the ranks": ("global_aux_loss", float(ranks), False, 0),
             "aux_loss, all ranks read the same": ("aux_loss", 1.0, True, 0),
             "global_aux_loss, all ranks read the same": ("global_aux_loss", 1.0, True, 0)}
    found = {name: gradient(*task) for name, task in tasks.items()}
    if rank == 0:
        torch.save(found, f"{folder}/found{ranks}")
    torch.distributed.barrier()


if __name__ == "__main__":
    print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    for ranks in (1, 2, 4):
        torch.multiprocessing.spawn(run, (ranks, sys.argv[1]), nprocs=ranks)
        found = torch.load(f"{sys.argv[1]}/found{ranks}")
        first = found if ranks == 1 else first
        for name, (seen, logged) in found.items():
            before, logged_before = first[name]
            part = (seen.norm() / before.norm()).item()
            cosine = torch.nn.functional.cosine_similarity(seen, before, dim=0).item()
            print(f"{ranks} data ranks, {name}: the routers' gradient is {part:.3f} of that on one rank, cosine {cosine:.4f}; logged {logged:.4f}",
                  flush=True)
            assert abs(logged - logged_before) < 1e-4
            shrinks = name.startswith("global") and "times" not in name
            assert abs(part - (1 / ranks if shrinks else 1)) < 2e-3 and cosine > 0.999, "the behaviour changed"
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/balance.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
