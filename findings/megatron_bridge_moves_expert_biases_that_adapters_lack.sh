#!/usr/bin/env bash
# megatron-bridge 0.6.2, megatron-core 0.19.2, torch 2.15.0: LoRA trains on biases of experts that move, and that are not saved.
#
# Expected: LoRA freezes the base model. The base model and the saved adapter are together the model that was trained.
# Seen, a GPTModel of 2 layers with 16 experts, sigmoid scores and expert biases as DeepSeek-V3 has, and Bridge's LoRA on its linear layers,
#   400 steps at the default moe_router_bias_update_rate of 0.001. All weights of the base model are as before.
#   Its expert biases moved by up to 0.26, 0.06 on average. The adapter's keys have no bias. The loss of what was trained is 0.012, and
#   0.073 of the base model with the saved adapter: 44 % of the choices of experts are others. No warning.
# Control: with frozen_expert_bias set on each router, megatron-core's own mark that nothing in Bridge sets, both losses are the same.
# Why: biases are buffers, and change by the counts of tokens at the end of each step, not by gradients. requires_grad=False does not stop that.
#   The filter of what is saved keeps keys of adapters.
# Why it matters: DeepSeek-V3, Ling 2.0 and Kimi-K2 come from Bridge with these biases and this rate. A step moves each bias by 0.001 whatever the
#   learning rate, where scores lie between 0 and 1. The loss in the log is that of a model that nobody can load again.
#   moe_router_bias_update_rate=0 avoids it. Bridge sets that for GLM-4.5, GLM-4.7-Flash and Hy3, and for no other family.
# Usage: ./megatron_bridge_moves_expert_biases_that_adapters_lack.sh (two minutes of a free core, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4 omegaconf==2.4.0 einops==0.8.2 \
  PyYAML==6.0.4
# Both ask for Python 3.12, and run on 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2 megatron-bridge==0.6.2
cat >"$folder/biases.py" <<'END'
import contextlib
import importlib.machinery
import importlib.metadata
import logging
import os
import sys
import types
import typing

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


class Absent(types.ModuleType):
    """Stands for Transformer Engine, which needs CUDA: its classes are named in Bridge's file of LoRA, and not used here."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name) if name == "ops" else type(name, (torch.nn.Module,), {})


cpu_for_cuda()
logging.disable(logging.CRITICAL)
typing.override = lambda function: function  # Python 3.12 has it
import megatron.core
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random
from megatron.core.transformer import TransformerConfig

engine = {name: Absent(name) for name in ("transformer_engine", "transformer_engine.pytorch")}
for name, module in engine.items():
    module.__spec__, module.__version__ = importlib.machinery.ModuleSpec(name, None), "2.11.0"
engine["transformer_engine"].pytorch = engine["transformer_engine.pytorch"]
bridge = types.ModuleType("megatron.bridge")  # the package alone, without all model families
bridge.__path__ = [os.path.join(path, "bridge") for path in megatron.__path__]
sys.modules.update(engine, **{"megatron.bridge": bridge})
from megatron.bridge.peft import utils as adapter_utils
from megatron.bridge.peft.lora import LoRA

adapter_utils.HAVE_TE = False
random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
ROWS, LENGTH, WORDS, EXPERTS = 16, 16, 32, 16
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)
config = TransformerConfig(
    num_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=48, hidden_dropout=0.0, attention_dropout=0.0, gated_linear_unit=True,
    activation_func=torch.nn.functional.silu, num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=16, transformer_impl="local",
    moe_token_dispatcher_type="allgather", moe_router_load_balancing_type="none", moe_router_score_function="sigmoid",
    moe_router_enable_expert_bias=True, use_cpu_initialization=True, finalize_model_grads_func=finalize_model_grads, **off)


def build(start=None):
    torch.manual_seed(0)
    model = GPTModel(config, get_gpt_layer_local_spec(EXPERTS, False), WORDS, LENGTH, position_embedding_type="rope").train()
    if start is not None:
        model.load_state_dict(start)
    return model


def tensors(model):
    return {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def batch(task, seed):
    """Words as frequent as in a text. Each task has its own frequent words, and another label for each word."""
    order, labels = (torch.randperm(WORDS, generator=torch.Generator().manual_seed(100 * kind + task)) for kind in (1, 2))
    draws = torch.multinomial(1 / torch.arange(1.0, WORDS + 1), ROWS * LENGTH, True, generator=torch.Generator().manual_seed(seed))
    words = order[draws.view(ROWS, LENGTH)]
    return words, labels[words]


def losses(model, words, labels):
    return model(words, torch.arange(LENGTH).expand(len(words), -1), None, labels=labels)


def train(model, task, steps):
    parallel = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, weight_decay=0.0)

    def forward(batches, model):
        return losses(model, *next(batches)), lambda output: (output.mean(), {"loss": output.detach().mean()})

    for step in range(steps):
        parallel.zero_grad_buffer()
        get_forward_backward_func()(forward_step_func=forward, data_iterator=iter([batch(task, step)]), model=parallel, num_microbatches=1,
                                    seq_length=LENGTH, micro_batch_size=ROWS, forward_only=False)
        for weight in trained:
            weight.grad = weight.main_grad.clone()
        optimizer.step()
        optimizer.zero_grad()


def routers(model):
    return [module for module in model.modules() if hasattr(module, "expert_bias")]


@torch.no_grad()
def evaluate(model, task):
    """The loss of new samples, and which experts each token has in each layer."""
    chosen = []
    hooks = [router.register_forward_hook(lambda module, given, output: chosen.append(output[1])) for router in routers(model)]
    model.eval()
    loss = torch.stack([losses(model, *batch(task, 10 ** 6 + step)).mean() for step in range(10)]).mean().item()
    for hook in hooks:
        hook.remove()
    return loss, torch.stack(chosen)


print(*(f"{name} {importlib.metadata.version(name)}" for name in ("megatron-bridge", "megatron-core", "torch")), flush=True)
assert torch.__version__.startswith("2.15.0")
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()
base = build()
train(base, 0, 300)
start = tensors(base)
print(f"base model on its own task: loss {evaluate(base, 0)[0]:.4f}", flush=True)
for frozen in (False, True):
    lora = LoRA(dim=8, alpha=16)
    torch.manual_seed(1)
    model = lora(build(start), training=True)
    lora.set_params_to_save(model)
    for router in routers(model):
        router.frozen_expert_bias = frozen
    train(model, 1, 400)
    loss, chosen = evaluate(model, 1)
    saved = {name: value for name, value in tensors(model).items() if lora.adapter_key_filter(name)}
    again = lora(build(start), training=False)
    assert not again.load_state_dict(saved, strict=False).unexpected_keys and not any("bias" in name for name in saved)
    loss_again, chosen_again = evaluate(again, 1)
    moved = torch.stack([(one.expert_bias - two.expert_bias).abs() for one, two in zip(routers(model), routers(again))])
    others = 1 - (chosen & chosen_again).sum().item() / chosen.sum().item()
    kept = dict(again.named_parameters())
    assert all(torch.equal(weight, kept[name]) for name, weight in model.named_parameters()), "a weight differs, not only a bias"
    print(f"LoRA, frozen_expert_bias={frozen}: {len(saved)} tensors saved; biases moved by {moved.max():.3f} at most, {moved.mean():.3f} on average; "
          f"loss as trained {loss:.4f}, of base and adapter {loss_again:.4f}; other experts {others:.3f}", flush=True)
    if frozen:
        assert moved.max() == 0 and loss_again == loss and others == 0
    else:
        assert moved.max() > 0.1 and loss_again > 2 * loss and others > 0.1, "the behaviour changed"
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/biases.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
