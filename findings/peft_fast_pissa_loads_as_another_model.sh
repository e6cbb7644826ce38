#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: an adapter of fast PiSSA (pissa_niter_16) is another model when it is loaded again.
#
# Expected: save_pretrained() and PeftModel.from_pretrained() on the same base model give the trained model back, as for any adapter.
# Seen, r=16 on Llama's layers of 256, 20 steps. With pissa_niter_16 the logits of the loaded model are off by 54 % for weights as
#   initialized (the loss goes from 0.64 to 1.46), and by 27 % for singular values that fall as 1/sqrt(i) (from 0.92 to 1.06).
#   With pissa_niter_4 it is 85 % and 54 %. Merging the loaded adapter writes the same wrong weights. Nothing warns.
#   Controls: exact `pissa` is off by 0, and so is pissa_niter_16 if the generator is seeded as before training.
#   Saved with path_initial_model_for_weight_conversion, as plain LoRA, it is off by less than 1e-5.
# Why: PiSSA takes the start of the adapter out of the base weight. This rest is not saved: loading computes it again.
#   The fast decomposition starts from a random matrix of the global generator, and has exactly r columns, so it is not converged.
#   The saved adapter is added to another rest than that which it was trained with.
# Why it matters: PEFT's documentation offers pissa_niter_16 for models of 7B. A script that seeds otherwise, loads with no seed, or
#   draws one number before it, evaluates, resumes or ships another model than was trained.
# Usage: ./peft_fast_pissa_loads_as_another_model.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 peft==0.21.2 \
    accelerate==1.15.0 numpy==2.4.6
cat >"$folder/fast.py" <<'END'
import sys

import peft
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("peft", peft.__version__, "transformers", hf.__version__, "torch", torch.__version__)
assert peft.__version__ == "0.21.2" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
tokens = torch.randint(0, 256, (2, 16), generator=torch.Generator().manual_seed(3))


def base(falling):
    """The same model for each call. falling: singular values of the projections fall as 1/sqrt(i)."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                                               num_attention_heads=4, num_key_value_heads=4, initializer_range=0.05))
    for name, weight in model.named_parameters():
        if falling and "proj" in name:
            left, values, right = torch.linalg.svd(weight.data, full_matrices=False)
            wanted = torch.arange(1.0, len(values) + 1) ** -0.5
            weight.data = left @ torch.diag(wanted * values.norm() / wanted.norm()) @ right
    return model.eval()


@torch.no_grad()
def run(model):
    result = model.eval()(input_ids=tokens, labels=tokens)
    return result.logits, result.loss.item()


def load(folder, falling, seed):
    model = base(falling)
    torch.manual_seed(seed)
    return peft.PeftModel.from_pretrained(model, folder)


def check(kind, falling):
    """Differences of logits: loaded, loaded with the seed of training, merged, and loaded as converted. The losses before and after."""
    config = peft.LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj", "gate_proj"], task_type="CAUSAL_LM",
                             init_lora_weights=kind)
    model, start, end = base(falling), f"{sys.argv[1]}/start", f"{sys.argv[1]}/end"
    torch.manual_seed(42)
    model = peft.get_peft_model(model, config)
    model.peft_config["default"].init_lora_weights = True  # as the documentation saves the start, for the conversion
    model.save_pretrained(start)
    model.peft_config["default"].init_lora_weights = kind
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-3)
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    right, trained = run(model)
    model.save_pretrained(end)

    def off(logits):
        return ((logits - right).norm() / right.norm()).item()

    other, loss = run(load(end, falling, 7))
    same = run(load(end, falling, 42))[0]
    merged = run(load(end, falling, 7).merge_and_unload())[0]
    model.save_pretrained(f"{end}_converted", path_initial_model_for_weight_conversion=start)
    converted = run(load(f"{end}_converted", falling, 7))[0]
    return [off(logits) for logits in (other, same, merged, converted)], trained, loss


for falling in (False, True):
    for kind in ("pissa", "pissa_niter_4", "pissa_niter_16"):
        (other, same, merged, converted), trained, loss = check(kind, falling)
        print(f"{kind}, {'falling' if falling else 'initialized'} weights: loaded off by {other:.4f}, merged {merged:.4f},",
              f"with the seed of training {same:.1e}, as converted {converted:.1e};",
              f"loss {trained:.3f} as trained, {loss:.3f} as loaded", flush=True)
        assert same < 1e-5 and converted < 1e-4
        if kind == "pissa":
            assert other < 1e-5
        else:
            assert other > 0.2 and merged > 0.2 and loss > trained + 0.1, "the behaviour changed"
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/fast.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
