#!/usr/bin/env bash
# deepspeed 0.19.8, peft 0.21.2, torch 2.15.0: TiledMLP draws other dropout masks in the backward pass than in the forward pass.
#
# Expected: a function that runs its forward again in the backward pass puts the generator back first, as torch.utils.checkpoint does.
# Seen, a gated MLP in 4 tiles against the same tiles in plain autograd, same seed: the loss is equal to the last digit.
#   LoRA of rank 8 with lora_dropout=0.1: the gradients of the adapters are 52 % off, that of the input 10 %.
#   All weights trained, dropout 0.1 after the MLP: 39 % and 7 %. sequence_tiled_compute, the general form, has the same errors.
#   torch.utils.checkpoint around each tile, and both functions without dropout, are right. No warning.
# Why: neither function keeps the state of the generator.
# Why it matters: tiles serve long sequences, which are often trained with LoRA and its usual dropout of 0.05 to 0.1.
#   The weights then get the gradient of another function than the one whose loss is logged.
# Usage: ./deepspeed_tiled_mlp_redraws_dropout.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 deepspeed==0.19.8 \
  peft==0.21.2 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/masks.py" <<'END'
import deepspeed
import peft
import torch
from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP, sequence_tiled_compute
from torch.utils.checkpoint import checkpoint

assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8" and peft.__version__ == "0.21.2"
torch.set_num_threads(1)
WIDTH, TOKENS, TILES = 32, 128, 4


class MLP(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(2))
        self.down_proj = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.dropout = torch.nn.Dropout(rate)
        self.way = "plain"

    def tile(self, x):
        return self.dropout(self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)))

    def forward(self, x):
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        if self.way == "TiledMLP":
            return TiledMLP.apply(MLP.tile, self, x, TILES, trained)
        if self.way == "sequence_tiled_compute":
            return sequence_tiled_compute(self.tile, x.shape[1], TILES, {"x": x}, {}, "x", trained, 1, None)
        tile = self.tile if self.way == "plain" else lambda part: checkpoint(self.tile, part, use_reentrant=False)
        return torch.cat([tile(part) for part in x.chunk(TILES, dim=1)], 1)


def train(way, rate, lora):
    """The loss of one step, the gradients of all trained weights, and that of the input."""
    torch.manual_seed(0)
    mlp = MLP(0.0 if lora else rate).train()
    if lora:
        layers = ["gate_proj", "up_proj", "down_proj"]
        peft.get_peft_model(mlp, peft.LoraConfig(r=8, target_modules=layers, lora_dropout=rate, init_lora_weights=False)).train()
    mlp.way = way
    x, target = torch.randn(1, TOKENS, WIDTH, requires_grad=True), torch.randn(1, TOKENS, WIDTH)
    loss = (x + mlp(x) - target).square().mean()
    loss.backward()
    return loss.item(), torch.cat([weight.grad.flatten() for weight in mlp.parameters() if weight.requires_grad]), x.grad


print(f"torch {torch.__version__}, deepspeed {deepspeed.__version__}, peft {peft.__version__}")
for lora in True, False:
    for rate in 0.1, 0.0:
        loss, weights, inputs = train("plain", rate, lora)
        for way in "checkpoint", "TiledMLP", "sequence_tiled_compute":
            other_loss, other_weights, other_inputs = train(way, rate, lora)
            errors = [((a - b).norm() / b.norm()).item() for a, b in ((other_weights, weights), (other_inputs, inputs))]
            print(f"{'LoRA' if lora else 'all weights'}, dropout {rate}, {way}: loss {other_loss:.6f} (plain {loss:.6f}), "
                  f"gradients of weights {errors[0]:.1%} off, of the input {errors[1]:.1%}")
            assert abs(other_loss - loss) < 1e-6
            wrong = rate and way != "checkpoint"
            assert min(errors) > 0.05 if wrong else max(errors) < 1e-5, "the behaviour changed"
END
DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES="" OMP_NUM_THREADS=1 timeout 200 "$folder/env/bin/python" -W ignore "$folder/masks.py" \
  2>"$folder/errors" || { tail -20 "$folder/errors"; exit 1; }
