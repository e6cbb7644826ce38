#!/usr/bin/env bash
# heavyball 3.2.1, torch 2.15.0, transformers 5.24.0: the first step of Scion replaces all weights by random ones, also those of a checkpoint.
#
# Expected: an optimizer's step moves weights by a rate times an update. With a rate of 0 it leaves them as they are.
# Seen, a small Llama that AdamW has trained to a loss of 0.006, saved and loaded, then one step of heavyball.Scion at 1e-4. The loss is
#   4.159 then, ln 64, that of a guess among 64 words. Matrices are random orthogonal ones, the same in each run: their cosines with the
#   loaded ones are within 0.03 of 0. The largest weight of a norm falls from 1.2156 to 0.0004. With a rate of 0 it is the same.
# Controls: the first step of heavyball's Muon and AdamW at the same rate leaves the loss at 0.006. So does one of a Scion that
#   has loaded the state of another one: in that state weights count as initialized.
# Why: the method's paper has an initialization of its own. Here the first step makes it for each weight, whatever the weight holds.
#   Vectors become zeros, norms as biases are. README, docstring and log do not speak of it.
# Why it matters: a fine-tuning, or a run that goes on without the optimizer's state, starts from nothing. The first loss in the log is
#   still right. Norms of zeros end gradients of all layers below. Nothing warns.
# Usage: ./heavyball_scion_replaces_the_weights_it_is_given.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" \
  torch==2.15.0 transformers==5.24.0 heavyball==3.2.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - "$folder" 2>"$folder/errors" <<'PYTHON' || { tail "$folder/errors"; exit 1; }
import importlib.metadata
import math
import sys

import heavyball
import heavyball.utils
import torch
import transformers as hf

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
heavyball.utils.compile_mode = None  # its switch for no compilation, which takes minutes and changes nothing here
print("heavyball", importlib.metadata.version("heavyball"), "torch", torch.__version__, "transformers", hf.__version__)
assert importlib.metadata.version("heavyball") == "3.2.1" and torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
WORDS, RATE, PLACE = 64, 1e-4, sys.argv[1] + "/checkpoint"
draws = torch.Generator().manual_seed(1)


def batch():
    """Rows that count on from a random word, so that each word tells the next."""
    return (torch.randint(WORDS, (16, 1), generator=draws) + torch.arange(16)) % WORDS


def loss(model, tokens):
    return model(input_ids=tokens, labels=tokens, use_cache=False).loss


torch.manual_seed(0)
model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                           num_attention_heads=4, num_key_value_heads=2, pad_token_id=0))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(200):
    optimizer.zero_grad()
    loss(model, batch()).backward()
    optimizer.step()
model.save_pretrained(PLACE)
test = batch()


def step(kind, rate, state=None):
    """The loss before and after a step on loaded weights, cosines of matrices with the loaded ones, the largest weight of a norm, and the state."""
    model = hf.AutoModelForCausalLM.from_pretrained(PLACE)
    loaded = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = getattr(heavyball, kind)(model.parameters(), lr=rate)
    if state is not None:
        optimizer.load_state_dict(state)
    first = loss(model, batch())
    first.backward()
    optimizer.step()
    cosines = [torch.nn.functional.cosine_similarity(loaded[name].flatten(), weight.detach().flatten(), 0).item()
               for name, weight in model.named_parameters() if weight.ndim == 2]
    norms = max(weight.detach().abs().max().item() for weight in model.parameters() if weight.ndim == 1)
    with torch.no_grad():
        last = loss(model, test).item()
    print(f"{kind}, rate {rate}{', state loaded' if state is not None else ''}: loss {first.item():.3f} before the step, {last:.3f} after;",
          f"cosines of matrices with the loaded {min(cosines):.3f} to {max(cosines):.3f}; largest weight of a norm {norms:.4f}", flush=True)
    return first.item(), last, cosines, norms, optimizer.state_dict()


guess = math.log(WORDS)
for kind in ("AdamW", "Muon"):
    first, last, cosines, norms, _ = step(kind, RATE)
    assert abs(last - first) < 0.1 < guess / 10 and min(cosines) > 0.99 and norms > 0.5
for rate in (RATE, 0.0):
    first, last, cosines, norms, state = step("Scion", rate)
    assert first < 0.3 and abs(last - guess) < 0.3, "the behaviour changed"
    assert max(map(abs, cosines)) < 0.1 and norms < 0.01
first, last, cosines, norms, _ = step("Scion", RATE, state)
assert abs(last - first) < 0.1 and min(cosines) > 0.99
PYTHON
