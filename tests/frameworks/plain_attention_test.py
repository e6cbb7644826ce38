# SPDX-License-Identifier: Apache-2.0
"""Compares what a plan says that the plain attention of transformers keeps of its scores with what PyTorch keeps, by its hooks on saved tensors.

Usage: plain_attention_test.py PROGRAMS [NAMES]. PROGRAMS is the folder of mpt-plan; it runs in the Python that has transformers
(build/frameworks, or MPT_FRAMEWORKS). Exit code 77: transformers is not installed, which is said.

Three lengths of a tiny model in bf16 give the bytes of each pair of tokens, which nothing but scores has."""

import json
import os
import subprocess
import sys
import tempfile

SKIPPED = 77
LENGTHS = (256, 384, 512)
HEADS, LAYERS = 4, 2
TINY = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 64, "max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
# Type and class of the model, its values that TINY has not, and options of mpt-plan.
MODELS = {
    "gemma2, caps": ("gemma2", "Gemma2ForCausalLM", {"query_pre_attn_scalar": 16, "sliding_window": 512}, []),
    "gpt_oss, sinks": ("gpt_oss", "GptOssForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128}, []),
    "llama, asked for": ("llama", "LlamaForCausalLM", {}, ["--execution", "attention=plain"]),
    "qwen3, asked for": ("qwen3", "Qwen3ForCausalLM", {}, ["--execution", "attention=plain"]),
}


def of_a_pair(short, middle, long):
    """Bytes of a pair of tokens, in a head of a layer: the second difference has neither those of a token nor those of the model."""
    return (long - 2 * middle + short) / (LENGTHS[2] ** 2 - 2 * LENGTHS[1] ** 2 + LENGTHS[0] ** 2) / HEADS / LAYERS


def predicted(program, file, length, options):
    command = [program, "estimate", "--model", file, "--framework", "transformers-ddp", "--cluster", "dgx-h100:1", "--gpus", "1", "--dp", "1", "--global-batch", "1",
               "--micro-batch", "1", "--seq", str(length), "--recompute", "none", *options, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise ValueError(" ".join(done.stderr.split())[:400])
    return json.loads(done.stdout)["footprints"][0]["saved_bytes"]


def measured(config, length):
    """Bytes of all tensors that one forward pass saves, each memory once, without the weights."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.bfloat16).train()
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if tensor.numel() > 0 and storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = (storage.nbytes(), tensor)  # kept, so that no memory is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = model(input_ids=torch.ones(1, length, dtype=torch.long)).logits
    assert kept.requires_grad
    return sum(size for size, _ in seen.values())


def main():
    try:
        from transformers import AutoConfig
    except ImportError:
        print("plain attention: skipped, because this Python has no transformers")
        return SKIPPED
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    failed = 0
    for name in sys.argv[2:] or MODELS:
        kind, architecture, more, options = MODELS[name]
        values = {**TINY, **more}
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "config.json")
            with open(file, "w", encoding="utf-8") as text:
                json.dump({"model_type": kind, "architectures": [architecture], **values}, text)
            said = of_a_pair(*(predicted(program, file, length, options) for length in LENGTHS))
        seen = of_a_pair(*(measured(AutoConfig.for_model(kind, use_cache=False, **values), length) for length in LENGTHS))
        right = abs(said - seen) < 0.02
        failed += not right
        print(f"{'ok' if right else 'FAILED'}: {name}: {seen:.2f} bytes of each pair of tokens and head, {said:.2f} predicted")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
