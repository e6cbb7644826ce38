#!/usr/bin/env bash
# peft 0.21.2, transformers 5.24.0, torch 2.15.0: training the rows of two tokens copies whole embedding tables and takes their gradients.
#
# Expected: trainable_token_indices trains the rows of a few new tokens with LoRA, at the price of these rows: 2 of 16,384 here.
# Seen, a small Llama, all memory besides weights, in embedding tables. LoRA on q_proj holds 0.28 after the forward pass and at most
#   0.40 in the backward pass. With two tokens of a tied model it is 1.28 and 2.15: the forward pass makes two copies of the table with
#   the new rows written in. The backward pass makes two gradients of all rows, the head's with a matrix product that LoRA spares.
#   Without tied weights it is one copy and one gradient, 0.28 and 1.00.
#   No optimizer state is kept for other rows: 256 trained values more than LoRA's 2,048.
# Why: the layer writes its rows into a copy of the whole weight in each forward pass, and autograd goes back through this copy.
# Why it matters: the table of Llama 3.2 1B has 525 MB in bf16. The two tokens cost 0.9 GB of memory, and a product of hidden states
#   and vocabulary, in each micro-batch. With FSDP or ZeRO 3 it comes on top of the gathered weights.
# Usage: ./peft_trains_two_tokens_with_gradients_of_all.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 peft==0.21.2
cat >"$folder/tokens.py" <<'END'
import collections

import peft
import torch
import transformers as hf
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and peft.__version__ == "0.21.2"
VOCABULARY, HIDDEN = 16384, 128
TABLE = VOCABULARY * HIDDEN * 4


class Memory(TorchDispatchMode):
    """Bytes that live in tensors other than weights, their peak, and the operators that make a tensor as large as the table."""

    def __init__(self, model):
        super().__init__()
        self.weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
        self.live, self.bytes, self.peak, self.whole = {}, 0, 0, collections.Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            known = self.live.get(storage._cdata)
            if storage._cdata in self.weights or known and not known[0].expired():
                continue
            self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
            if sorted(tensor.shape) == [HIDDEN, VOCABULARY]:
                self.whole[str(operator.overloadpacket).removeprefix("aten.")] += 1
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.bytes = sum(size for _, size in self.live.values())
        self.peak = max(self.peak, self.bytes)
        return result


def measure(tied, **how):
    torch.manual_seed(0)
    base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=256, num_hidden_layers=2,
                                              num_attention_heads=4, tie_word_embeddings=tied))
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"], **how))
    tokens = torch.randint(0, 64, (1, 16))
    with Memory(model) as memory:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        held, forward = memory.bytes / TABLE, dict(memory.whole)
        memory.peak = 0
        memory.whole.clear()
        loss.backward()
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return trained, round(held, 2), round(memory.peak / TABLE, 2), forward, dict(memory.whole)


print("torch", torch.__version__, "transformers", hf.__version__, "peft", peft.__version__)
seen = {(tied, tokens): measure(tied, **({"trainable_token_indices": {"embed_tokens": [3, 4]}} if tokens else {}))
        for tied in (True, False) for tokens in (0, 2)}
for (tied, tokens), (trained, held, peak, forward, backward) in seen.items():
    print(f"{'tied' if tied else 'untied'}, {tokens} tokens: {trained} trained; tables held after forward {held}, most in backward {peak};",
          f"whole tables made in forward {forward}, in backward {backward}")
both, one = {"mm": 1, "embedding_dense_backward": 1}, {"embedding_dense_backward": 1}
assert seen == {(True, 0): (2048, 0.28, 0.4, {}, {}), (True, 2): (2304, 1.28, 2.15, {"index_copy": 2}, both),
                (False, 0): (2048, 0.28, 0.4, {}, {}), (False, 2): (2304, 0.28, 1.0, {"index_copy": 1}, one)}
END
"$folder/env/bin/python" -W ignore "$folder/tokens.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
