#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: create_loraplus_optimizer ignores the weight_decay that it is given, and AdamW's default.
#
# Expected: the documentation hands all further keyword arguments to the optimizer. With AdamW and weight_decay=0.1 adapters decay.
#   Without the argument AdamW's own default of 0.01 holds.
# Seen, a small Llama, rank 8 on all linear layers, a ratio of 16, 100 steps at 1e-3. With weight_decay=0.0, with none, with 0.1 and
#   with 10.0 the weights end alike, to the last bit. Each group has a weight decay of 0, while optimizer.defaults shows 0.1.
# Controls: plain AdamW on the same adapters with weight_decay=0.1 ends elsewhere than with 0.0, by 0.003 of their way. betas, passed in the
#   same way, are used. The undocumented loraplus_weight_decay=0.1 does decay: weights are off by 0.08 of their way.
# Why: the function makes groups of its own, and writes a weight decay of 0 into each unless loraplus_weight_decay is passed. A
#   group's value goes before the optimizer's.
# Why it matters: nothing warns. A search over weight_decay compares equal runs. What modules_to_save trains in full, such as lm_head
#   and embeddings, does not decay either.
# Usage: ./peft_loraplus_ignores_weight_decay.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.16.0 peft==0.21.2
cat >"$folder/decay.py" <<'END'
import peft
import torch
import transformers as hf
from peft.optimizers import create_loraplus_optimizer

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
print("torch", torch.__version__, "transformers", hf.__version__, "peft", peft.__version__)
STEPS, RATE = 100, 1e-3


def rows(draws):
    """Texts in which each word follows from the one before."""
    words = [torch.randint(0, 64, (8, 1), generator=draws)]
    while len(words) < 16:
        words.append((words[-1] * 7 + 5) % 61)
    return torch.cat(words, dim=1)


def train(loraplus=True, **options):
    """What adapters and the head are after training, what they were, and the optimizer."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4))
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", modules_to_save=["lm_head"]))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    start = torch.cat([weight.detach().flatten() for weight in weights]).clone()
    if loraplus:
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=16, **options)
    else:
        optimizer = torch.optim.AdamW(weights, lr=RATE, **options)
    draws = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        words = rows(draws)
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([weight.detach().flatten() for weight in weights]), start, optimizer


base, start, _ = train(weight_decay=0.0)
way = (base - start).norm()


def show(name, other, reference=base):
    off = ((other[0] - reference).norm() / way).item()
    decays = sorted({group["weight_decay"] for group in other[2].param_groups})
    print(f"{name}: weights are off those without decay by {off:.3f} of their way; "
          f"decay of groups {decays}, of optimizer.defaults {other[2].defaults['weight_decay']}", flush=True)
    return off, decays


for name, options in (("LoRA+, no weight_decay", {}), ("LoRA+, weight_decay=0.1", {"weight_decay": 0.1}), ("LoRA+, weight_decay=10", {"weight_decay": 10.0})):
    other = train(**options)
    off, decays = show(name, other)
    assert off == 0 and decays == [0.0] and other[2].defaults["weight_decay"] == options.get("weight_decay", 0.01), ("the behaviour changed", name)
assert show("LoRA+, loraplus_weight_decay=0.1", train(loraplus_weight_decay=0.1))[0] > 0.01
assert show("LoRA+, betas=(0.5, 0.9)", train(betas=(0.5, 0.9)))[0] > 0.01
plain = train(False, weight_decay=0.0)
off, decays = show("AdamW, weight_decay=0.1", train(False, weight_decay=0.1), plain[0])
assert off > 0.001 and decays == [0.1]
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/decay.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
