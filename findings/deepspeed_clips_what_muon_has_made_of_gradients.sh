#!/usr/bin/env bash
# deepspeed 0.19.8, torch 2.15.0: under ZeRO 1 to 3 gradient_clipping divides Muon's finished updates by their norm, which grows with the model.
#
# Expected: gradients are clipped, then Muon makes orthogonal updates of them. Their size depends on the rate alone. Clipping gradients
#   changes next to nothing: half a matrix has the same orthogonal update as the whole.
# Seen, Llama of 2 layers, rate 0.01, gradient_clipping 1.0. The first update of all Muon matrices together is 1.00 times the rate.
#   So it is under ZeRO 1, 2 and 3, and for widths of 32 and 128. Without clipping it is 22.1 and 43.2 times the rate.
#   After 20 steps of width 128 the loss is 2.46, and 1.35 without clipping.
# Control: ZeRO 0 with the same gradient_clipping clips gradients. Its updates are 22.1 and 43.2 times the rate, its loss 1.38.
# Why: ZeRO's optimizers put Muon's result in the place of the gradient before they take the norm. An orthogonal m x n matrix has
#   the norm sqrt(min(m, n)), so the sum over a model is far above 1.0 in every step. The reported gradient norm is this number, too.
# Why it matters: 1.0 is the usual value, and the default. The Muon matrices of a Llama 3 8B have a norm near 1,170 by their shapes: each
#   update is a thousandth of what muon_lr asks for. Muon's weights stand nearly still, the others train as asked, and the loss falls.
# Usage: ./deepspeed_clips_what_muon_has_made_of_gradients.sh (some minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 deepspeed==0.19.8
cat >"$folder/muon.py" <<'END'
import logging
import os

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29817", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")
os.environ["TORCHDYNAMO_DISABLE"] = "1"  # DeepSpeed compiles Muon's iteration, which takes minutes on a CPU; the result is the same.
import deepspeed
import torch
import transformers as hf
from deepspeed.utils import safe_get_full_fp32_param

logging.disable(logging.WARNING)
torch.set_num_threads(1)
print("deepspeed", deepspeed.__version__, "torch", torch.__version__, "transformers", hf.__version__, flush=True)
assert torch.__version__.startswith("2.15.0") and deepspeed.__version__ == "0.19.8"
RATE, STEPS = 0.01, 20
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
deepspeed.init_distributed("gloo", verbose=False)
tokens = torch.randint(0, 128, (4, 32), generator=torch.Generator().manual_seed(1))


def train(stage, clipping, width):
    """How far the first step moves Muon's matrices, in rates, and the loss of the last step."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=128, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=2,
                                               num_attention_heads=4, num_key_value_heads=2))
    rates = {"muon_lr": RATE, "adam_lr": 1e-3, "momentum": 0.95, "weight_decay": 0.0, "torch_adam": True}
    engine = deepspeed.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 4, "gradient_clipping": clipping, "optimizer": {"type": "Muon", "params": rates},
        "zero_optimization": {"stage": stage, "reduce_scatter": False}})[0]  # Muon under ZeRO 3 asks for no reduce-scatter
    matrices = [weight for name, weight in engine.module.named_parameters() if "_proj" in name]
    assert len(matrices) == 14 and all(weight.use_muon for weight in matrices)

    def read():
        return [(safe_get_full_fp32_param(weight) if stage else weight.detach()).clone() for weight in matrices]

    start = read()
    for step in range(STEPS):
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        if step == 0:
            moved = torch.stack([(a - b).norm() for a, b in zip(read(), start)]).norm().item() / RATE
    return moved, loss.item()


for width in (32, 128):
    whole, free = train(0, 0.0, width)
    print(f"width {width}, ZeRO 0 without clipping: the first update is {whole:.2f} times the rate, loss {free:.4f}", flush=True)
    assert whole > 20
    for stage in (0, 1, 2, 3):
        for clipping in (0.0, 1.0) if stage else (1.0,):
            moved, loss = train(stage, clipping, width)
            print(f"width {width}, ZeRO {stage}, gradient_clipping {clipping}: the first update is {moved:.2f} times the rate, loss {loss:.4f}",
                  flush=True)
            if stage and clipping:
                assert abs(moved - 1) < 0.02 and loss > free + 0.1, "the behaviour changed"
            else:
                assert abs(moved / whole - 1) < 0.01 and abs(loss - free) < 0.06
# A Llama 3 8B by its shapes: 32 layers, and a matrix with more rows than columns has its update multiplied by the root of their ratio.
shapes = 2 * [(4096, 4096)] + 2 * [(1024, 4096)] + 2 * [(14336, 4096)] + [(4096, 14336)]
norm = (32 * sum(min(m, n) * max(1, m / n) for m, n in shapes)) ** 0.5
print(f"the norm of orthogonal updates of a Llama 3 8B: {norm:.0f}")
assert 1100 < norm < 1250
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/muon.py" >"$folder/out" 2>"$folder/errors" || { cat "$folder/out"; tail "$folder/errors"; exit 1; }
grep -v "\[INFO\]\|\[WARNING\]\|^Gradient\|built successfully" "$folder/out"
