#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: merging adapters of replicated layers adds each copy's LoRA to all copies of the layer.
#
# Expected: LoraConfig(layer_replication=[(0, 2), (1, 3)]) makes four layers of three. The two copies of a layer share its weights,
#   and each has its adapter. The merge computes what the adapted model did, or refuses, since one weight cannot hold both.
# Seen, a small Llama, rank 4, 20 steps of Adam: nothing raises and nothing warns. The loss goes from 0.898 to
#   1.756. The shared weight becomes W + BA of one copy + BA of the other. Layers without a copy are right to the last digit.
#   A model of four layers of its own, trained in the same way without replication, merges exactly. unmerge_adapter() comes back.
# Why: PEFT has a refusal for this case. It asks the dictionary of adapters for the key "layer_replication", so that it never raises.
# Why it matters: the merged model is what is saved and served. It runs, has the right number of layers, and is not the one evaluated.
# Usage: ./peft_merges_all_copies_of_a_replicated_layer.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2
cat >"$folder/merge.py" <<'END'
import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
tokens = torch.randint(0, 64, (4, 16), generator=torch.Generator().manual_seed(1))


def projections(model):
    return [layer.self_attn.q_proj for layer in model.model.layers]


def merge(layers, replication):
    """Losses before and after, and for each layer how far its merged weight is from its own W + BA and from that of all copies."""
    torch.manual_seed(0)
    base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=layers,
                                              num_attention_heads=4, initializer_range=0.2, use_cache=False))
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj"], layer_replication=replication)
    model = peft.get_peft_model(base, config)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 0.02)
    for _ in range(20):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        adapted = model(input_ids=tokens, labels=tokens).loss.item()
        parts = projections(model.base_model.model)
        shared = [[other for other in parts if other.base_layer.weight is part.base_layer.weight] for part in parts]
        before = [part.base_layer.weight.clone() for part in parts]
        products = [part.get_delta_weight("default").clone() for part in parts]
        sums = [sum(other.get_delta_weight("default") for other in group) for group in shared]
        model.merge_adapter()
        model.unmerge_adapter()
        assert abs(model(input_ids=tokens, labels=tokens).loss.item() - adapted) < 1e-4
        merged = model.merge_and_unload()
        weights = [part.weight for part in projections(merged)]
        own = [((after - weight - product).norm() / product.norm()).item() for after, weight, product in zip(weights, before, products)]
        both = [((after - weight - total).norm() / total.norm()).item() for after, weight, total in zip(weights, before, sums)]
        return adapted, merged(input_ids=tokens, labels=tokens).loss.item(), [len(group) for group in shared], own, both


print("torch", torch.__version__, "transformers", hf.__version__, "peft", peft.__version__)
for name, layers, replication in (("4 layers", 4, None), ("3 layers replicated as 0, 1, 1, 2", 3, [[0, 2], [1, 3]])):
    adapted, merged, copies, own, both = merge(layers, replication)
    print(f"{name}: loss {adapted:.3f}, merged {merged:.3f}")
    for index, (count, alone, total) in enumerate(zip(copies, own, both)):
        print(f"  layer {index}, copies {count}: off W + its BA by {alone:.0e} of BA, off W + BA of all copies by {total:.0e}")
        assert total < 1e-4 and (alone < 1e-4) == (count == 1)
    assert copies == ([1, 2, 2, 1] if replication else [1, 1, 1, 1])
    assert abs(adapted - 0.898) < 0.05 and abs(merged - 1.756) < 0.1 if replication else abs(merged - adapted) < 1e-4
END
"$folder/env/bin/python" -W ignore "$folder/merge.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
