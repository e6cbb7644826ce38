# SPDX-License-Identifier: Apache-2.0
"""The plans that PyTorch alone trains on 2 to 8 CPU processes, as mpt-run does: a name, and the options of mpt-plan."""

import os

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
OVERLAPS = "--overlap gradient-reduce,parameter-gather,transfer"  # which FSDP and pipelines of PyTorch always have


def tiny(model, ranks, more, batch=8, seq=64):
    known = os.path.join(MODELS, model + ".json")
    name = known if os.path.exists(known) else model
    return f"--model {name} --cluster this-machine:{ranks} --global-batch {batch} --seq {seq} {more} {OVERLAPS}".split()


PYTORCH = {
    "tensor": tiny("tiny-llama", 2, "--tp 2 --sp off"),
    "tensor-sequence": tiny("tiny-llama", 2, "--tp 2 --sp on"),
    "tensor-gpt": tiny("tiny-gpt", 2, "--tp 2 --sp on"),
    "tensor-norms-on-heads": tiny("tiny-qwen", 2, "--tp 2 --sp off"),
    "zero2": tiny("tiny-llama", 2, "--dp 2 --zero 2 --micro-batch 2"),
    "zero3": tiny("tiny-gpt", 4, "--dp 4 --zero 3"),
    "1f1b": tiny("tiny-llama", 2, "--pp 2 --schedule 1f1b --micro-batch 2"),
    "gpipe-data": tiny("tiny-llama", 4, "--pp 2 --dp 2 --zero 2 --schedule gpipe --micro-batch 1"),
    "interleaved": tiny("tiny-llama", 4, "--pp 4 --chunks 2 --schedule interleaved --micro-batch 1"),
    "zb-v": tiny("tiny-llama", 2, "--pp 2 --schedule zb-v --micro-batch 2"),
    "zb-h1-uneven": tiny("tiny-llama3", 3, "--pp 3 --schedule zb-h1 --micro-batch 2"),
    "v-half-data": tiny("tiny-llama", 4, "--pp 2 --dp 2 --zero 2 --schedule v-half --micro-batch 1"),
    "dualpipe-v": tiny("tiny-llama", 2, "--pp 2 --schedule dualpipe-v --micro-batch 2"),
    "generated": tiny("tiny-llama", 2, "--pp 2 --schedule generated --chunks 2 --micro-batch 2"),
    "context-ring": tiny("tiny-llama", 2, "--cp 2 --cp-method ring --zero 3"),
    "context-heads": tiny("tiny-llama", 2, "--cp 2 --cp-method all_to_all --zero 2"),
    "context-learned-tensor": tiny("tiny-gpt", 4, "--tp 2 --sp on --cp 2 --cp-method ring --zero 2"),
    "recompute": tiny("tiny-qwen", 2, "--dp 2 --zero 3 --recompute full"),
    "recompute-stages": tiny("tiny-llama3", 4, "--pp 2 --tp 2 --sp on --schedule 1f1b --micro-batch 2 --recompute full"),
    "experts": tiny("tiny-mixtral", 2, "--dp 2 --ep 1 --zero 3"),
    "experts-plain-weights": tiny("tiny-plain-router", 2, "--dp 2 --ep 1 --zero 2"),
    "experts-pipeline-context": tiny("tiny-mixtral", 4, "--pp 2 --cp 2 --cp-method ring --ep 1 --zero 2 --schedule 1f1b --micro-batch 2"),
    "torchtitan-hybrid": ["import", os.path.join(MODELS, "titan_tiny.py"), "--model", os.path.join(MODELS, "tiny-llama3.json"),
                          "--cluster", "this-machine:4"],
    "megatron-script": ["import", os.path.join(MODELS, "megatron_tiny.sh"), "--cluster", "this-machine:4"],
    "three-ways": tiny("tiny-llama3", 8, "--tp 2 --sp on --pp 2 --dp 2 --zero 2 --schedule 1f1b --micro-batch 2"),
}
