#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: unload() keeps what modules_to_save trained. It is not the base model.
#
# Expected: unload() returns the base model, as its documentation says, without all that PEFT added and trained.
# Seen, Llama with LoRA and modules_to_save=["lm_head"], 20 steps. LoRA is gone, the trained head stays: logits of the unloaded model
#   are off those of the base by 191 %, and its loss is 1.89 where the base has 5.87 and the trained model 0.56. Nothing warns.
#   The same for ["embed_tokens", "lm_head"], and for a classifier's head.
#   Controls: disable_adapter() gives the base exactly. unload() of LoRA alone, of LoRA with trainable_token_indices, and after
#   set_adapter() to a second adapter without modules_to_save gives the base exactly.
# Why: the wrapper of such a module holds the original and a trained copy. unload() puts the copy of the active adapter in place, as
#   merge_and_unload() does, and throws the original away.
# Why it matters: a "base model" from unload() that serves as reference of DPO or KL, as baseline of an evaluation, or as start of the
#   next adapter has the head, and with added tokens the embedding, of the fine-tuned one. The base has to be loaded anew.
# Usage: ./peft_unload_keeps_trained_modules.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2 \
    accelerate==1.15.0 numpy==2.4.6
cat >"$folder/unload.py" <<'END'
import warnings

import peft
import torch
import transformers as hf

hf.logging.set_verbosity_warning()
torch.set_num_threads(1)
print("peft", peft.__version__, "transformers", hf.__version__, "torch", torch.__version__)
assert peft.__version__ == "0.21.2" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
tokens = torch.randint(0, 256, (4, 16), generator=torch.Generator().manual_seed(3))
SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "initializer_range": 0.1, "tie_word_embeddings": False}


def base(classifier=False):
    torch.manual_seed(0)
    kind = hf.LlamaForSequenceClassification if classifier else hf.LlamaForCausalLM
    model = kind(hf.LlamaConfig(**SIZES, **({"num_labels": 4, "pad_token_id": 0} if classifier else {})))
    return model.eval(), torch.arange(4) if classifier else tokens


@torch.no_grad()
def run(model, labels):
    result = model.eval()(input_ids=tokens, labels=labels)
    return result.logits, result.loss.item()


def off(logits, right):
    return ((logits - right).norm() / right.norm()).item()


def trained(options, classifier=False):
    model, labels = base(classifier)
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"],
                             task_type="SEQ_CLS" if classifier else "CAUSAL_LM", **options)
    model = peft.get_peft_model(model, config)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=5e-3)
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
    return model, labels


CASES = {"LoRA alone": ({}, False), "trainable_token_indices": ({"trainable_token_indices": [1, 2, 3]}, False),
         "modules_to_save lm_head": ({"modules_to_save": ["lm_head"]}, False),
         "modules_to_save embed_tokens, lm_head": ({"modules_to_save": ["embed_tokens", "lm_head"]}, False),
         "modules_to_save score, a classifier": ({"modules_to_save": ["score"]}, True)}
for name, (options, classifier) in CASES.items():
    right, at_start = run(*base(classifier))
    model, labels = trained(options, classifier)
    loss = run(model, labels)[1]
    with model.disable_adapter():
        disabled = off(run(model, labels)[0], right)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        unloaded = model.unload()
    logits, unloaded_loss = run(unloaded, labels)
    difference = off(logits, right)
    print(f"{name}: off the base by {difference:.4f} after unload(), {disabled:.4f} in disable_adapter();",
          f"loss {at_start:.3f} of the base, {loss:.3f} trained, {unloaded_loss:.3f} unloaded; {len(said)} warnings", flush=True)
    assert disabled == 0 and not said and not any("lora" in key for key, _ in unloaded.named_parameters())
    if "modules_to_save" in options:
        assert difference > 0.3 and unloaded_loss < at_start - 0.1, "the behaviour changed"
    else:
        assert difference == 0

right = run(*base())[0]
model, labels = trained({"modules_to_save": ["lm_head"]})
model.add_adapter("other", peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
model.set_adapter("other")
difference = off(run(model.unload(), labels)[0], right)
print(f"modules_to_save lm_head, another adapter is active: off the base by {difference:.4f} after unload()")
assert difference == 0
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/unload.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
