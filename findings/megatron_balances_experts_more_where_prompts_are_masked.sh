#!/usr/bin/env bash
# megatron-core 0.19.2, torch 2.15.0: with calculate_per_token_loss masked tokens multiply the balance loss and the z-loss of experts.
#
# Expected: moe_aux_loss_coeff weighs the balance loss, a mean over all tokens that are routed. A mask of prompts changes cross-entropy alone.
# Seen, a GPTModel with 4 experts, 8 micro-batches of a sequence of 32 tokens, Megatron's own buffers and schedule. The loss function returns
#   the sum over the answers and the number of their tokens. Answers are 16, 8 and 4 of the 32 tokens. The routers' gradient of the
#   balance loss is then 2.000, 4.000 and 8.000 times that without a mask. "aux_loss", "seq_aux_loss" and the z-loss agree.
#   The log has the same balance loss in each case.
# Controls: without calculate_per_token_loss, and the same masks, each gradient is 1.000. With it and no mask it is 1.000.
#   Where 16 of 32 tokens are padding, and the model gets them as padding_mask, the gradient equals that without calculate_per_token_loss.
# Why: the router multiplies its loss by the tokens that it routes, since all gradients are divided at the end by a number of tokens.
#   The loss functions return that number: tokens that count in the loss. The two cancel where no token is masked. A comment
#   in the router says that the weight should be that without the option.
# Why it matters: the option is meant for masked tokens, and fine-tuning on long prompts with short answers is such a run. With a tenth of the
#   tokens in answers a coefficient of 0.01 acts as one of 0.1. It changes with each global batch, and the log shows nothing of it.
# Usage: ./megatron_balances_experts_more_where_prompts_are_masked.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6 packaging==26.4
# It asks for Python 3.12, and has a wheel for 3.11.
python3 -m pip install --quiet --root-user-action ignore --no-deps --ignore-requires-python --target "$folder/megatron" \
  megatron-core==0.19.2
cat >"$folder/masks.py" <<'END'
import contextlib
import importlib.metadata
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
LOGS = {"aux_loss": "load_balancing_loss", "seq_aux_loss": "seq_load_balancing_loss", "z-loss": "z_loss"}
random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
off = dict.fromkeys(("bias_dropout_fusion", "bias_activation_fusion", "masked_softmax_fusion", "gradient_accumulation_fusion", "apply_rope_fusion",
                     "persist_layer_norm", "add_bias_linear"), False)


def step(kind, weight, per_token, answer, padded):
    """The routers' gradient of one global batch, and the loss of the routers that is logged."""
    balance = {"moe_router_load_balancing_type": "aux_loss" if kind == "z-loss" else kind,
               "moe_z_loss_coeff" if kind == "z-loss" else "moe_aux_loss_coeff": weight}
    config = TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=48, hidden_dropout=0.0, attention_dropout=0.0, init_method_std=0.2,
        num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=16, moe_token_dispatcher_type="allgather", use_cpu_initialization=True,
        transformer_impl="local", calculate_per_token_loss=per_token, finalize_model_grads_func=finalize_model_grads, **balance, **off)
    torch.manual_seed(0)
    model = GPTModel(config, get_gpt_layer_local_spec(4, False), WORDS, LENGTH, position_embedding_type="rope").train()
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    rows = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    # A prompt, and an answer whose tokens count; or a sample whose end is padding.
    mask = ((torch.arange(LENGTH) < answer) if padded else (torch.arange(LENGTH) >= LENGTH - answer))[None]
    get_moe_metrics_tracker().clear()

    def forward(batches, model):
        tokens = next(batches)
        losses = model(tokens, torch.arange(LENGTH)[None], None, labels=tokens * 5 % WORDS, padding_mask=~mask if padded else None)

        def loss(output):
            total, count = (output * mask).sum(), mask.sum().int()
            return total, count, {"loss": (total.detach(), count)}
        return losses, loss

    get_forward_backward_func()(forward_step_func=forward, data_iterator=iter(rows.split(1)), model=model, num_microbatches=ROWS, seq_length=LENGTH,
                                micro_batch_size=1, forward_only=False)
    logged = get_moe_metrics_tracker().metrics[LOGS[kind]].values.mean().item() / ROWS if weight else 0.0
    return torch.cat([weight.main_grad.flatten() for name, weight in model.named_parameters() if "router.weight" in name]), logged


def part(kind, *task):
    """The gradient of the routers' own loss: that of a step with it less that of a step without it."""
    with_it, logged = step(kind, 0.1, *task)
    return with_it - step(kind, 0.0, *task)[0], logged


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=0, world_size=1)
parallel_state.initialize_model_parallel()
print("megatron-core", importlib.metadata.version("megatron-core"), "torch", torch.__version__, flush=True)
assert torch.__version__.startswith("2.15.0")
for kind in LOGS:
    for padded, answers in ((False, (LENGTH, 16, 8, 4)), (True, (16,))):
        first, logged_first = part(kind, False, answers[0], padded)
        for per_token in (False, True):
            for answer in answers:
                seen, logged = part(kind, per_token, answer, padded)
                times = (seen.norm() / first.norm()).item()
                cosine = torch.nn.functional.cosine_similarity(seen, first, dim=0).item()
                print(f"{kind}, calculate_per_token_loss={per_token}, {answer} of {LENGTH} tokens count{', the others are padding' if padded else ''}: "
                      f"the routers' gradient of it is {times:.3f} times, cosine {cosine:.4f}; logged {logged:.4f}", flush=True)
                assert abs(logged - logged_first) < 1e-4
                expected = LENGTH / answer if per_token and not padded else 1
                assert abs(times / expected - 1) < 2e-3 and cosine > 0.999, "the behaviour changed"
END
PYTHONPATH="$folder/megatron" OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/masks.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
