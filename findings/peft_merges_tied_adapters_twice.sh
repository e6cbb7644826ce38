#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: with ensure_weight_tying merging adds LoRA twice to tied embeddings.
#
# Expected: ensure_weight_tying=True is for models that share the embedding table with the head. One pair A, B adapts both uses, merge_and_unload()
#   makes W + BA of the table, and the merged model computes what the adapted one did.
# Seen, a small tied Llama, rank 4 on the embedding, 10 steps: both adapters add the same BA. The merged table is W + 2.00 BA, whichever
#   of the two layers is named, and the loss goes from 2.840 to 3.361. An adapter of q_proj alone merges to the last digit.
#   merge_adapter() followed by unmerge_adapter() comes back to W: the fault is in what is merged, not in how it is taken off.
# Why: embedding and head are merged one after the other, each adds its BA in place, and the table that both hold is one tensor.
# Why it matters: PEFT's warning advises the flag against trouble with tied weights when merging. Without it PEFT warns; with it
#   nothing does, the model is saved and served, and is not the one that was evaluated. Small Llama, Qwen and Gemma models tie weights.
# Usage: ./peft_merges_tied_adapters_twice.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2
cat >"$folder/merge.py" <<'END'
import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
tokens = torch.randint(0, 64, (4, 16), generator=torch.Generator().manual_seed(1))


def merge(targets, **how):
    """Loss of the adapted and of the merged model, and how often the merged table holds the adapters' product."""
    torch.manual_seed(0)
    base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
                                              tie_word_embeddings=True, initializer_range=0.2))
    table = base.lm_head.weight.detach().clone()
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=4, target_modules=targets, **how))
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], 0.5)
    for _ in range(10):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        times, embedding, head = 0.0, model.base_model.model.model.embed_tokens, model.base_model.model.lm_head
        adapted = model(input_ids=tokens, labels=tokens).loss.item()
        if how:
            product = embedding.get_delta_weight("default")
            assert torch.equal(product, head.get_delta_weight("default"))
            assert torch.allclose(embedding(torch.arange(64)), table + product)
            model.merge_adapter()
            model.unmerge_adapter()
            assert torch.allclose(embedding.base_layer.weight, table, atol=1e-5)
        merged = model.merge_and_unload()
        assert merged.lm_head.weight is merged.model.embed_tokens.weight
        if how:
            times = (((merged.lm_head.weight - table) * product).sum() / (product * product).sum()).item()
        return adapted, merged(input_ids=tokens, labels=tokens).loss.item(), times


print("torch", torch.__version__, "transformers", hf.__version__, "peft", peft.__version__)
plain = merge(["q_proj"])
print(f"q_proj: loss {plain[0]:.3f}, merged {plain[1]:.3f}")
assert abs(plain[0] - plain[1]) < 1e-4
for targets in (["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"]):
    adapted, merged, times = merge(targets, ensure_weight_tying=True)
    print(f"{' and '.join(targets)}, tied: loss {adapted:.3f}, merged {merged:.3f}, the table holds BA {times:.2f} times")
    assert abs(times - 2) < 1e-3 and abs(adapted - 2.840) < 0.02 and abs(merged - 3.361) < 0.02
END
"$folder/env/bin/python" -W ignore "$folder/merge.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
