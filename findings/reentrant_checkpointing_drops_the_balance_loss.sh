#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0, mixture of experts: with use_reentrant=True the load-balancing loss is in the loss and in no gradient.
#
# Expected: gradient checkpointing changes memory and time. Both kinds give the gradient of a run without it.
# Seen, Mixtral, Qwen3-MoE, OLMoE and GPT-OSS with output_router_logits=True. The loss and aux_loss are the same in all three runs.
#   Without checkpointing, and with use_reentrant=False, the balance loss gives the routers a gradient. With use_reentrant=True
#   gradients are those of a run with router_aux_loss_coef=0: 0.000 of the balance loss's gradient is left. Nothing warns.
# Why: a hook collects the router's logits while the layer runs. Reentrant checkpointing runs it without autograd, so they have no history.
#   The model adds their loss to the sum. The second run of the layer, with autograd, is not collected.
# Why it matters: Trainer takes gradient_checkpointing_kwargs={"use_reentrant": True} (the default is False). The balance loss is in the
#   log and looks alive, and router_aux_loss_coef does nothing.
# Usage: ./reentrant_checkpointing_drops_the_balance_loss.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", hf.__version__)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "num_experts_per_tok": 2, "pad_token_id": 0, "initializer_range": 0.2}
KINDS = {"Mixtral": (hf.MixtralConfig, {"num_local_experts": 4}),
         "Qwen3-MoE": (hf.Qwen3MoeConfig, {"num_experts": 4, "moe_intermediate_size": 32}),
         "OLMoE": (hf.OlmoeConfig, {"num_experts": 4}), "GPT-OSS": (hf.GptOssConfig, {"num_local_experts": 4, "head_dim": 8})}
torch.manual_seed(1)
tokens = torch.randint(1, 64, (2, 16))


def run(kind, coefficient, reentrant):
    config, options = KINDS[kind]
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(
        config(**SIZES, **options, output_router_logits=True, router_aux_loss_coef=coefficient)).train()
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()  # as reentrant checkpointing asks for, and Trainer does
    result = model(input_ids=tokens, labels=tokens, use_cache=False)
    result.loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    return result.loss.item(), result.aux_loss.item(), torch.cat([p.grad.flatten() for p in model.parameters()])


for kind in KINDS:
    loss, balance, right = run(kind, 1.0, None)
    entropy = run(kind, 0.0, None)[2]
    whole = (right - entropy).norm()
    assert whole > 1e-2
    for reentrant in (False, True):
        seen_loss, seen_balance, seen = run(kind, 1.0, reentrant)
        part = ((seen - entropy).norm() / whole).item()
        print(f"{kind}, use_reentrant={reentrant}: loss {seen_loss:.4f} ({loss:.4f} without checkpointing), "
              f"aux_loss {seen_balance:.4f} ({balance:.4f}), "
              f"gradient of the balance loss {part:.3f} of that without")
        assert abs(seen_loss - loss) < 1e-5 and abs(seen_balance - balance) < 1e-5
        assert part < 1e-4 if reentrant else (seen - right).norm() < 1e-4 * right.norm(), (kind, reentrant, part)
END
