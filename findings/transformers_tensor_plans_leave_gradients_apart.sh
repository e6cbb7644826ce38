#!/usr/bin/env bash
# transformers 5.24.0 (torch 2.15.0): the tensor plans of GLM-4-MoE and Apertus leave each rank its own gradient of weights that all ranks hold.
#
# Expected: tp_size=2 gives the loss and gradients of one process. The plans of Qwen3 and others name what must be summed over ranks.
# Seen: the loss is right. In GLM-4-MoE the norms of queries and keys keep each rank's own part of their gradients. In Apertus the two numbers of
#   each activation do. The errors are 9 to 86 %, and each rank has another gradient. All other gradients are right, and all of Qwen3.
#   The plans of Qwen3 have "replicated_with_grad_allreduce" for such norms. GLM-4-MoE's has no entry for its own, Apertus' none for act_fn.
# Why it matters: each rank's optimizer moves its own copy, so that the copies grow apart. A checkpoint holds one of them. Nothing warns.
# Usage: ./transformers_tensor_plans_leave_gradients_apart.sh (2 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/plans.py" <<'END'
import re
import sys

import torch
import torch.distributed as dist
import transformers as hf
from transformers.distributed import DistributedConfig

hf.logging.set_verbosity_error()
hf.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             initializer_range=0.2, pad_token_id=0, tie_word_embeddings=False, use_cache=False)
GLM = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1, n_group=1, topk_group=1, use_qk_norm=True)
MODELS = {"qwen3": ({}, set()), "glm4_moe": (GLM, {"self_attn.q_norm", "self_attn.k_norm"}),
          "apertus": ({}, {"act_fn.alpha_p", "act_fn.alpha_n"})}
dist.init_process_group("gloo")
rank = dist.get_rank()
tokens = torch.randint(1, 64, (2, 16), generator=torch.Generator().manual_seed(1))


def whole(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


if rank == 0:
    print("torch", torch.__version__, "transformers", hf.__version__)
for kind, (values, wrong) in MODELS.items():
    torch.manual_seed(3)
    alone = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(kind, **SMALL, **values), dtype=torch.float32, attn_implementation="eager")
    path = f"{sys.argv[1]}/{kind}"
    if rank == 0:
        alone.save_pretrained(path)
    dist.barrier()
    spread = hf.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager", use_cache=False,
                                                     distributed_config=DistributedConfig(tp_size=2))
    losses = []
    for model in (alone.train(), spread.train()):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        losses.append(loss.item())
    right = {name: weight.grad for name, weight in alone.named_parameters() if weight.grad is not None}
    errors, apart = {}, False
    for name, weight in spread.named_parameters():
        if name not in right:
            continue
        seen = whole(weight.grad)
        error = ((seen - right[name]).norm() / (right[name].norm() + 1e-12)).item()
        copies = [torch.empty_like(seen) for _ in range(2)]
        dist.all_gather(copies, seen.contiguous())
        if error > 1e-3:
            errors[name] = error
            apart |= not torch.allclose(*copies, rtol=1e-3)
            assert torch.allclose(sum(copies), right[name], rtol=1e-3, atol=1e-6), "the parts do not add up"
    found = {re.search(r"[^.]*\.[^.]*$", name.removesuffix(".weight"))[0] for name in errors}
    if rank == 0:
        print(f"{kind:9s} loss {losses[0]:.5f} alone, {losses[1]:.5f} on 2 ranks; {len(errors)} of {len(right)} gradients wrong"
              + (f" by {min(errors.values()):.0%} to {max(errors.values()):.0%}, other ones on each rank: {', '.join(sorted(found))}" if errors else ""))
    assert abs(losses[0] - losses[1]) < 1e-4 and found == wrong and apart == bool(wrong), (found, apart)
dist.barrier()
dist.destroy_process_group()
END
OMP_NUM_THREADS=1 timeout 400 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/plans.py" "$folder" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
