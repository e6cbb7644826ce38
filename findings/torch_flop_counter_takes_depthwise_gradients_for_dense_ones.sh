#!/usr/bin/env bash
# torch 2.15.0, transformers 5.24.0: FlopCounterMode counts the weight gradient of a depthwise convolution as that of a dense one.
#
# Expected: a convolution's weight gradient takes as many operations as its forward pass, with groups as without.
# Seen, the real sizes on the meta device, 16 tokens. Mamba 2.8B: the backward pass counts 4.88 times the forward pass, not 2, and a
#   step 1.96 times what it is. Mamba-2 2.7B: 5.12 and 2.04 times. Convolutions are 0.06 % of the forward pass, and 59 and 61 % of the
#   backward pass as counted. One layer of 64 channels in 64 groups: 65 times the forward pass. In 8 groups 9 times, in one 2.
# Controls: with the convolutions' backward put at twice their forward pass, a step is 1.00 and 1.04 of 6 operations for each weight and
#   token. A depthwise weight's gradient written as sums of products is the same, and takes as many operations as the forward pass.
# Why: the forward formula takes the weight's shape, in which the input channels are divided by the groups. The one of the weight
#   gradient takes the shapes of input and gradient, in which they are not, and nothing divides.
# Why it matters: the utilisation of a Mamba looks twice as high as it is. So do hybrids such as Falcon-H1, Jamba and Qwen3-Next
#   in their share of such layers. The forward pass is counted rightly, so that a check of it finds nothing.
# Usage: ./torch_flop_counter_takes_depthwise_gradients_for_dense_ones.sh (two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore - 2>"$folder/errors" <<'END' || { tail "$folder/errors"; exit 1; }
import torch
import transformers as hf
from torch.utils.flop_counter import FlopCounterMode

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
print("torch", torch.__version__, "transformers", hf.__version__)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
aten = torch.ops.aten


def count(work):
    with FlopCounterMode(display=False) as counter:
        result = work()
    return result, counter.get_total_flops(), counter.get_flop_counts()["Global"]


# One layer. The counted gradients are those of the input and of the weight.
for groups in (1, 8, 64):
    layer = torch.nn.Conv1d(64, 64, 4, padding=3, groups=groups, bias=False)
    batch = torch.randn(2, 64, 100, requires_grad=True)
    output, forward, _ = count(lambda: layer(batch))
    by_hand = 2 * output.shape[0] * output.shape[2] * layer.weight.numel()
    _, backward, _ = count(lambda: output.sum().backward())
    print(f"Conv1d of 64 channels in {groups} groups: forward {forward:,} (by hand {by_hand:,}), backward {backward / forward:.0f} times that")
    assert forward == by_hand and backward == forward * (1 + groups), "the behaviour changed"

# The gradient of a depthwise weight is one sum of products for each of its elements: as many operations as the forward pass.
upstream = torch.randn_like(output)
layer.weight.grad = None
layer(batch).backward(upstream)
padded = torch.nn.functional.pad(batch.detach(), (3, 3))
sums = torch.stack([(padded[:, :, shift:shift + upstream.shape[2]] * upstream).sum((0, 2)) for shift in range(4)], 1)
assert torch.allclose(sums, layer.weight.grad[:, 0], atol=1e-3)
print(f"  its weight gradient by hand: {2 * upstream.numel() * 4:,} operations, and the same gradient")
assert 2 * upstream.numel() * 4 == forward

TOKENS = 16
KINDS = {"Mamba 2.8B": hf.MambaConfig(vocab_size=50280, hidden_size=2560, num_hidden_layers=64, state_size=16),
         "Mamba-2 2.7B": hf.Mamba2Config(vocab_size=50288, hidden_size=2560, num_hidden_layers=64, state_size=128, num_heads=80, head_dim=64,
                                         n_groups=1, chunk_size=16, tie_word_embeddings=True)}
for kind, config in KINDS.items():
    with torch.device("meta"):
        model, tokens = hf.AutoModelForCausalLM.from_config(config).train(), torch.zeros(1, TOKENS, dtype=torch.long)
        output, forward, parts = count(lambda: model(tokens, use_cache=False).logits)
        convolutions = parts[aten.convolution]
        _, backward, parts = count(lambda: output.sum().backward())
    counted, weights = parts[aten.convolution_backward], sum(weight.numel() for weight in model.parameters())
    step = forward + backward
    right = step - counted + 2 * convolutions
    print(f"{kind}: backward {backward / forward:.2f} times the forward pass, of which convolutions {counted / backward:.2f}"
          f" (of the forward pass {convolutions / forward:.4f}); a step counted {step / right:.2f} times as large as it is;"
          f" right {right / (6 * TOKENS * weights):.3f} of 6 for each weight and token", flush=True)
    assert backward / forward > 4.5 and 1.9 < step / right < 2.1, "the behaviour changed"
    assert convolutions < 0.001 * forward and 0.99 < right / (6 * TOKENS * weights) < 1.05
END
