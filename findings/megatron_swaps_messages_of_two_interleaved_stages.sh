#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: with the default communication two interleaved stages take gradients for activations, and say nothing.
#
# Expected: virtual_pipeline_model_parallel_size=2 on two stages gives the loss and the gradients of one process, as on four stages.
# Seen, a GPTModel of 8 layers, 2 pipeline ranks with 2 chunks each, 8 micro-batches, Megatron's own schedule, buffers and optimizer.
#   overlap_p2p_comm=False and batch_p2p_comm=True are the defaults. No weight has its gradient: they are off by 66 % at least, and by factors.
#   The first loss is 4.259, and 4.319 in one process. After 20 steps it is 4.14, which is that of a guess, and 1.84 in one process.
#   Where each rank sends 1 on and 2 back, 2 comes from in front and 1 from behind.
# Controls: with batch_p2p_comm=False, with overlap_p2p_comm=True besides, on two stages of one chunk, and on four stages of two chunks
#   with the defaults all gradients and losses are those of one process.
# Why: in the middle of a step a stage exchanges one tensor with the next rank and one with the rank before, of one shape. On two stages both
#   are the same process. Each rank lists the exchange with the rank before first, and messages of a pair are matched in their order. So the
#   gradient that a rank sends back meets the activation that the other one waits for.
# Why it matters: nothing raises or warns in megatron-core, and no field's text names it. Megatron-LM's command line refuses two
#   interleaved stages without overlap; a loop of one's own over megatron-core, with its defaults, trains on noise.
# Usage: ./megatron_swaps_messages_of_two_interleaved_stages.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/stages.py" <<'END'
import contextlib
import importlib.metadata
import logging
import sys
import types

import torch


def cpu_for_cuda():
    """Megatron asks CUDA for its device and its streams; neither changes a number here."""
    def on_cpu(make):
        return lambda *values, **options: make(*values, **{**options, **({"device": "cpu"} if str(options.get("device")) == "cuda" else {})})

    for name in ("zeros", "ones", "empty", "tensor"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    kind_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *kind, **options: kind_of(self, *kind, **options) if kind else kind_of(self).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.cuda.current_device, torch.cuda.current_stream = lambda: torch.device("cpu"), lambda *_: types.SimpleNamespace(wait_stream=lambda _: None)
    torch.cuda.synchronize = lambda *_: None


cpu_for_cuda()
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig

logging.disable(logging.WARNING)
ROWS, LENGTH, WORDS, WIDTH, STEPS = 16, 16, 64, 32, 20
random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)


def named(parts):
    """The weights by their names in the whole model."""
    for part in parts:
        for name, weight in part.module.named_parameters():
            if ".layers." in name:
                front, rest = name.split(".layers.")
                place, rest = rest.split(".", 1)
                name = f"{front}.layers.{part.module.decoder.layers[int(place)].layer_number - 1}.{rest}"
            yield name, weight


def build(stages, chunks, options):
    config = TransformerConfig(
        num_layers=8, hidden_size=WIDTH, num_attention_heads=4, ffn_hidden_size=64, normalization="RMSNorm", hidden_dropout=0.0,
        attention_dropout=0.0, use_cpu_initialization=True, transformer_impl="local", pipeline_model_parallel_size=stages,
        pipeline_dtype=torch.float32, finalize_model_grads_func=finalize_model_grads,
        virtual_pipeline_model_parallel_size=chunks, **options, **off)
    parts = []
    for stage in range(chunks) if chunks else [None]:
        ends = {"pre_process": parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
                "post_process": parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage)}
        model = GPTModel(config, get_gpt_layer_local_spec(None, False, normalization="RMSNorm"), WORDS, LENGTH,
                         share_embeddings_and_output_weights=False, position_embedding_type="rope", vp_stage=stage, **ends)
        parts.append(DistributedDataParallel(config, DistributedDataParallelConfig(), model.train()))
    for name, weight in named(parts):
        if weight.ndim > 1:
            with torch.no_grad():
                weight.copy_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(sum(map(ord, name)))))
    return config, parts


def train(stages, chunks, options):
    """The gradients of the first step by their names in the whole model, and the losses of all steps."""
    config, parts = build(stages, chunks, options)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=3e-3, min_lr=3e-3, weight_decay=0.0, clip_grad=1.0), parts)
    rows = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    losses = []

    def forward(batches, model):
        tokens = next(batches)
        output = model(tokens, torch.arange(LENGTH)[None], None, labels=tokens.roll(1, 1) * 5 % WORDS)
        return output, lambda output: (output.mean(), {"loss": output.detach().mean().item()})

    for step in range(STEPS):
        for part in parts:
            part.zero_grad_buffer()
        data = [iter(rows.split(2)) for _ in parts]
        said = get_forward_backward_func()(forward_step_func=forward, data_iterator=data if chunks else data[0], num_microbatches=8,
                                           model=parts if chunks else parts[0], seq_length=LENGTH, micro_batch_size=2, forward_only=False)
        losses.append(sum(entry["loss"] for entry in said) / 8 if said else 0.0)
        if step == 0:
            found = {name: weight.main_grad.clone() for name, weight in named(parts)}
        optimizer.step()
    swapped = None
    if chunks:
        # What a stage sends on is 1, what it sends back is 2.
        one, two = torch.full((LENGTH, 2, WIDTH), 1.0), torch.full((LENGTH, 2, WIDTH), 2.0)
        link = P2PCommunicator(parallel_state.get_pipeline_model_parallel_group(), config)
        got = link.send_forward_backward_recv_forward_backward(one, two, recv_prev=True, recv_next=True, tensor_shape=one.shape)
        swapped = [tensor.unique().item() for tensor in got]
    return found, losses, swapped


TASKS = [("one process", 1, None, {}), ("2 stages with 2 chunks, defaults", 2, 2, {}),
         ("2 stages with 2 chunks, batch_p2p_comm=False", 2, 2, {"batch_p2p_comm": False}),
         ("2 stages with 2 chunks, batch_p2p_comm=False, overlap_p2p_comm=True", 2, 2, {"batch_p2p_comm": False, "overlap_p2p_comm": True}),
         ("2 stages, defaults", 2, None, {}), ("4 stages with 2 chunks, defaults", 4, 2, {})]


def run(rank, number, folder):
    name, stages, chunks, options = TASKS[number]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet{number}", rank=rank, world_size=stages)
    parallel_state.initialize_model_parallel(1, stages, chunks)
    parts = [None] * stages
    torch.distributed.all_gather_object(parts, train(stages, chunks, options))
    if rank == 0:
        found = {key: value for part in parts for key, value in part[0].items()}
        torch.save((found, [sum(losses) for losses in zip(*(part[1] for part in parts))], parts[0][2]), f"{folder}/{number}")


print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__, flush=True)
assert torch.__version__.startswith("2.15.0")
for number, (name, stages, _, _) in enumerate(TASKS):
    torch.multiprocessing.start_processes(run, (number, sys.argv[1]), nprocs=stages, start_method="fork")
    found, losses, swapped = torch.load(f"{sys.argv[1]}/{number}")
    if number == 0:
        alone, losses_alone = found, losses
    assert found.keys() == alone.keys()
    errors = [((found[key] - alone[key]).norm() / alone[key].norm()).item() for key in alone]
    print(f"{name}: gradients are off by {min(errors):.4f} to {max(errors):.4f}; the loss is {losses[0]:.4f}, and {losses[-1]:.4f} after {STEPS} steps"
          + (f"; from in front comes {swapped[0]:.0f}, from behind {swapped[1]:.0f}" if swapped else ""), flush=True)
    if number == 1:
        assert min(errors) > 0.3 and losses[-1] > losses_alone[-1] + 1 and swapped == [2, 1], "the behaviour changed"
    else:
        assert max(errors) < 1e-3 and abs(losses[-1] - losses_alone[-1]) < 1e-3 and swapped in (None, [1, 2]), "the behaviour changed"
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/stages.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
