#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: without sequence parallelism tensor ranks train the out_norm of a gated delta net apart.
#
# Expected: all tensor ranks hold one weight of out_norm, with the gradient of all heads. So it is for q_layernorm and k_layernorm,
#   whose one weight serves the heads of all ranks, too.
# Seen, a GPTModel in the manner of Qwen3-Next, 3 layers of gated delta net and 1 of attention, 2 tensor ranks, Megatron's own buffers,
#   schedule and optimizer. Each rank has the gradient of its own heads alone, 59 to 89 % off that of all heads; the two add up to that.
#   After 60 steps of Adam the two copies are apart by 0.8 to 1.3 times the way that they went. The loss is 0.172. With rank 0's copies
#   on both ranks, which is what a checkpoint keeps, it is 0.188.
# Controls: with sequence_parallel=True and nothing else changed both ranks have the sum, and one weight to the last bit; the loss is 0.092.
#   Without it, and with one line that sums these gradients over the ranks, so it is, too. q_layernorm and k_layernorm of the same
#   model have one gradient on both ranks in each case.
# Why: gradients are summed over tensor ranks for weights marked for sequence parallelism, if it is on, and for two norms by their
#   names. out_norm works on the heads of its rank as these two do, and its name is not among them.
# Why it matters: it happens in silence, with the default sequence_parallel=False. The model that trains is not the one that is saved. A
#   resumed or exported model has rank 0's copy, and another loss. The norm that clips gradients counts rank 0's part alone.
# Usage: ./megatron_parts_delta_rule_norms_on_tensor_ranks.sh (three minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/norms.py" <<'END'
import contextlib
import importlib.metadata
import logging
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # so that nothing is compiled; the numbers are the same
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
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules, common
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, random
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

logging.disable(logging.WARNING)
RANKS, LENGTH, WORDS, STEPS = 2, 16, 64, 60
random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
# The delta rule itself is Megatron's, by deterministic_mode; the normalization of queries and keys stands in for a kernel of fla.
common.HAVE_FLA, common.l2norm = True, lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)


class Norm(torch.nn.RMSNorm):
    """Torch's norm, with the mark that Transformer Engine's norms have."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = config.sequence_parallel


def sum_out_norms_too(parts, *arguments, **options):
    """What Megatron does at the end of a step, and the sum that it leaves out."""
    for name, weight in parts[0].named_parameters():
        if "out_norm" in name:
            torch.distributed.all_reduce(weight.main_grad)
    finalize_model_grads(parts, *arguments, **options)


def build(sequence_parallel, finalize):
    config = TransformerConfig(
        num_layers=4, hidden_size=32, num_attention_heads=4, num_query_groups=2, kv_channels=8, ffn_hidden_size=48, normalization="RMSNorm",
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, qk_layernorm=True, hidden_dropout=0.0, attention_dropout=0.0,
        init_method_std=0.2, use_cpu_initialization=True, tensor_model_parallel_size=RANKS, sequence_parallel=sequence_parallel,
        experimental_attention_variant="gated_delta_net", linear_attention_freq=4, linear_conv_kernel_dim=4, linear_key_head_dim=8,
        linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, deterministic_mode=True,
        finalize_model_grads_func=finalize, **off)
    layers = [get_gpt_layer_local_spec(None, False, True, normalization="RMSNorm") for _ in range(4)]
    for number, layer in enumerate(layers):
        inside = layer.submodules
        inside.input_layernorm = inside.pre_mlp_layernorm = Norm
        inside.self_attention.submodules.q_layernorm = inside.self_attention.submodules.k_layernorm = Norm
        if number < 3:
            inside.self_attention = ModuleSpec(GatedDeltaNet, submodules=GatedDeltaNetSubmodules(ColumnParallelLinear, Norm, RowParallelLinear))
    torch.manual_seed(0)
    model = GPTModel(config, TransformerBlockSubmodules(layer_specs=layers, layer_norm=Norm), WORDS, LENGTH, position_embedding_type="rope")
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model.train())


def run_step(model, rows):
    """A forward and a backward of all sequences; the loss. Each label is the token before, by another name."""
    def forward(batches, model):
        tokens = next(batches)
        losses = model(tokens, torch.arange(LENGTH)[None], None, labels=tokens.roll(1, 1) * 5 % WORDS)
        return losses, lambda output: (output.mean(), {"loss": output.detach().mean()})

    model.zero_grad_buffer()
    said = get_forward_backward_func()(forward_step_func=forward, data_iterator=iter([rows]), model=model, num_microbatches=1,
                                       seq_length=LENGTH, micro_batch_size=len(rows), forward_only=False)
    return said[0]["loss"].item()


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(RANKS)]
    torch.distributed.all_gather(parts, tensor.detach().contiguous())
    return parts


def train(sequence_parallel, finalize=finalize_model_grads):
    model = build(sequence_parallel, finalize)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=5e-3, min_lr=5e-3, weight_decay=0.0, clip_grad=1.0), [model])
    rows = torch.randint(0, WORDS, (32, LENGTH), generator=torch.Generator().manual_seed(1))
    norms = {name.split("decoder.")[1]: weight for name, weight in model.named_parameters() if "out_norm" in name or "q_lay" in name or "k_lay" in name}
    start = {name: weight.detach().clone() for name, weight in norms.items()}
    for step in range(STEPS):
        run_step(model, rows)
        if step == 0:
            gradients = {name: gathered(weight.main_grad) for name, weight in norms.items()}
        optimizer.step()
    copies = {name: gathered(weight) for name, weight in norms.items()}
    loss = run_step(model, rows)
    saved = [entry.replica_id for entry in model.module.sharded_state_dict().values() if "out_norm" in entry.key]
    with torch.no_grad():
        for weight in norms.values():
            torch.distributed.broadcast(weight, 0)
    return gradients, copies, start, loss, run_step(model, rows), saved


TASKS = {"sequence_parallel=True": (True,), "sequence_parallel=False": (False,),
         "sequence_parallel=False and the sum": (False, sum_out_norms_too)}


def size(ours, whole):
    return (ours.norm() / whole.norm()).item()


def run(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    parallel_state.initialize_model_parallel(RANKS)
    for title, task in TASKS.items():
        gradients, copies, start, loss, loss_of_saved, saved = train(*task)
        # A checkpoint writes what has only zeros as its replica: the second number is the tensor rank.
        assert len(saved) == 3 and all(replica == (0, rank, 0) for replica in saved), saved
        if title == "sequence_parallel=True":
            whole = gradients
        parted = title == "sequence_parallel=False"
        for name, parts in gradients.items():
            errors = [size(part - whole[name][0], whole[name][0]) for part in parts]
            a, b = copies[name]
            apart = size(a - b, (a + b) / 2 - start[name])
            if rank == 0:
                print(f"{title}, {name}: the first gradients of the two ranks are off by {errors[0]:.4f} and {errors[1]:.4f}; "
                      f"after {STEPS} steps the copies are apart by {apart:.4f} of their way", flush=True)
            if parted and "out_norm" in name:
                assert min(errors) > 0.3 and apart > 0.3 and size(sum(parts) - whole[name][0], whole[name][0]) < 1e-4, "the behaviour changed"
            else:
                assert max(errors) < 1e-4 and torch.equal(a, b), "the behaviour changed"
        if rank == 0:
            print(f"{title}: the loss is {loss:.4f}, with the copies of rank 0 on both ranks {loss_of_saved:.4f}", flush=True)
        assert loss_of_saved > loss + 2e-3 if parted else loss == loss_of_saved


print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__, flush=True)
assert torch.__version__.startswith("2.15.0")
torch.multiprocessing.start_processes(run, (sys.argv[1],), nprocs=RANKS, start_method="fork")
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/norms.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
