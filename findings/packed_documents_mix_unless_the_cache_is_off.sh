#!/usr/bin/env bash
# transformers 5.24.0 (torch 2.15.0), packed sequences with SDPA: documents attend to each other unless use_cache=False is passed.
#
# Expected: DataCollatorWithFlattening packs documents and marks them by position_ids; the model then keeps them apart, or refuses.
# Seen: model(**batch) in train() mode lets the second document see the first. Its logits are off by more than 1 (of about 6),
#   and each step keeps a cache of keys and values that nobody reads. With use_cache=False the logits are those of the document alone.
#   The mask is built from position_ids only if no cache exists, and the cache is on by default (config.use_cache), in training too.
#   Trainer sets use_cache=False itself. A loop of one's own, with accelerate or FSDP2, gets the wrong mask. No warning.
# Why it matters: packed fine-tuning trains on conversations that begin with other people's conversations. The loss looks plausible,
#   and the same data through Trainer gives another model. FlashAttention takes its bounds from position_ids elsewhere (read, not run).
# Usage: ./packed_documents_mix_unless_the_cache_is_off.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0
"$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", hf.__version__)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
SIZES = dict(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, initializer_range=0.2)
MODELS = [hf.LlamaForCausalLM, hf.MistralForCausalLM, hf.Qwen3ForCausalLM]
torch.manual_seed(2)
documents = [torch.randint(3, 64, (length,)).tolist() for length in (12, 20)]
batch = dict(hf.DataCollatorWithFlattening()([{"input_ids": document} for document in documents]))
assert batch["position_ids"].tolist() == [[*range(12), *range(20)]] and "attention_mask" not in batch
for kind in MODELS:
    torch.manual_seed(0)
    model = kind._from_config(kind.config_class(**SIZES), attn_implementation="sdpa").train()
    alone = model(input_ids=torch.tensor([documents[1]])).logits
    packed = model(**batch)
    without = model(**batch, use_cache=False)
    mixed, apart = ((result.logits[:, 12:] - alone).abs().max().item() for result in (packed, without))
    print(f"{kind.__name__}: second document's logits (up to {alone.abs().max().item():.1f}) off by {mixed:.2f} as called, "
          f"by {apart:.0e} with use_cache=False; loss {packed.loss.item():.3f} and {without.loss.item():.3f}")
    assert mixed > 1 and packed.past_key_values is not None, "packed documents are kept apart: the behaviour changed"
    assert apart < 1e-4 and without.past_key_values is None
END
