#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: add_weighted_adapter() changes adapters of rsLoRA, DoRA and LoRA with a bias.
#
# Expected: add_weighted_adapter([a], [1.0], "copy") makes an adapter that does what a does, and two at 0.5 give their mean.
# Seen, a small Llama, adapters of rank 16 after 20 steps: for plain LoRA the copy gives the same logits. For the others it does not,
#   and nothing warns. rsLoRA's weights become 4.00 times as large. With "cat" those of two become 5.66 times their mean.
#   DoRA keeps BA and loses the trained magnitudes, LoRA with lora_bias keeps BA and loses the bias.
# Why: the new adapter has the rank as its alpha, for a scale of 1, and copies use_rslora, which makes that the square root of the rank.
#   Only the matrices A and B are combined: magnitudes and biases of the new adapter are those of a fresh one.
# Why it matters: adapters of several tasks are combined and served this way. By the same rule rank 64 makes rsLoRA 8 times as strong.
#   A weight found by trial hides the factor until the rank changes.
# Usage: ./peft_combines_adapters_at_another_strength.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2
cat >"$folder/combine.py" <<'END'
import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
RANK = 16
tokens = torch.randint(0, 64, (4, 16), generator=torch.Generator().manual_seed(1))


def train(model, adapter):
    model.set_adapter(adapter)
    model.train()
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 0.01)
    for _ in range(20):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def combine(**how):
    """How far the copy's logits are off, and how often it holds the weights of a, and a combination those of the mean."""
    torch.manual_seed(0)
    base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                                              num_attention_heads=4, initializer_range=0.2, attention_bias=True))
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["q_proj", "v_proj"], **how)
    model = peft.get_peft_model(base, config, "a")
    train(model, "a")
    model.add_adapter("b", config)
    train(model, "b")
    model.add_weighted_adapter(["a"], [1.0], "copy")
    model.add_weighted_adapter(["a", "b"], [0.5, 0.5], "mean", combination_type="cat")
    with torch.no_grad():
        logits = {}
        for name in ("a", "copy"):
            model.set_adapter(name)
            logits[name] = model(input_ids=tokens).logits
        layer = model.base_model.model.model.layers[0].self_attn.v_proj
        a, b, copy, mean = (layer.get_delta_weight(name) for name in ("a", "b", "copy", "mean"))
        times = [((new * old).sum() / (old * old).sum()).item() for new, old in ((copy, a), (mean, (a + b) / 2))]
        return ((logits["copy"] - logits["a"]).norm() / logits["a"].norm()).item(), *times


print("torch", torch.__version__, "transformers", hf.__version__, "peft", peft.__version__)
expected = {"plain": (False, 1, 1), "use_rslora": (True, RANK**0.5, (2 * RANK) ** 0.5), "use_dora": (True, 1, 1), "lora_bias": (True, 1, 1)}
for option, (off, once, twice) in expected.items():
    error, copy, mean = combine(**({} if option == "plain" else {option: True}))
    print(f"{option:12}logits of the copy off by {error:.4f}, its BA {copy:.2f} times that of a, the mean's {mean:.2f} times the mean")
    assert (error > 0.01) == off and (off or error < 1e-4) and abs(copy - once) < 1e-3 and abs(mean - twice) < 1e-3
END
"$folder/env/bin/python" -W ignore "$folder/combine.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
