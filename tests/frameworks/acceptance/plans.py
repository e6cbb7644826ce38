# SPDX-License-Identifier: Apache-2.0
"""The plans that the frameworks judge: a name, and the options of mpt-plan. Each list is for the frameworks that read the same plan."""

import os

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")


def plan(model, cluster, batch, more="", seq=4096):
    return f"--model {model} --cluster {cluster} --global-batch {batch} --seq {seq} {more}".split()


# Megatron-LM and Megatron-Bridge.
MEGATRON = {
    "llama3-8b": plan("llama3-8b", "dgx-h100:2", 128),
    "llama3-8b-single": plan("llama3-8b", "dgx-h100:1", 64, "--tp 1 --pp 1 --zero 1"),
    "llama3-8b-tensor": plan("llama3-8b", "dgx-h100:2", 64, "--tp 8 --sp on --zero 1"),
    "llama3-8b-zero0": plan("llama3-8b", "dgx-h100:2", 64, "--tp 4 --pp 2 --zero 0"),
    "llama3-8b-zero2": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2"),
    "llama3-8b-zero3": plan("llama3-8b", "dgx-h100:2", 128, "--zero 3", seq=8192),
    "llama3-8b-offload": plan("llama3-8b", "dgx-h100:1", 64, "--zero 1 --offload on", seq=8192),
    "llama3-8b-context-ring": plan("llama3-8b", "dgx-h100:2", 16, "--cp 4 --cp-method ring", seq=32768),
    "llama3-8b-context-heads": plan("llama3-8b", "dgx-h100:2", 16, "--cp 4 --cp-method all_to_all", seq=32768),
    "llama3-8b-interleaved": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --chunks 2 --schedule interleaved"),
    "llama3-8b-rounds": plan("llama3-8b", "dgx-h100:2", 56, "--pp 4 --dp 4 --schedule interleaved --chunks 2 --micro-batch 1"),
    "llama3-8b-two-stages": plan("llama3-8b", "dgx-h100:2", 64, "--pp 2 --chunks 2 --schedule interleaved"),
    "llama3-8b-blocking": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule 1f1b --overlap none"),
    "llama3-8b-recompute-full": plan("llama3-8b", "dgx-h100:1", 64, "--recompute full", seq=8192),
    "llama3-8b-recompute-core": plan("llama3-8b", "dgx-h100:1", 64, "--recompute selective"),
    "llama3-8b-recompute-norms": plan("llama3-8b", "dgx-h100:1", 64,
                                      "--precision fp8 --recompute selective --recompute-modules core_attn,layernorm"),
    "llama3-8b-fp8": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp8"),
    "llama3-8b-mxfp8": plan("llama3-8b", "dgx-b200:1", 64, "--precision mxfp8"),
    "llama3-8b-data-outermost": plan("llama3-8b", "dgx-h100:2", 64, "--pp 2 --order data_outermost --schedule 1f1b"),
    "llama3-70b": plan("llama3-70b", "dgx-h100:8", 128),
    "llama3-70b-interleaved": plan("llama3-70b", "dgx-h100:8", 128, "--tp 4 --sp on --pp 4 --schedule interleaved --chunks 5 --zero 1"),
    "llama3-70b-tensor-overlap": plan("llama3-70b", "dgx-h100:8", 128, "--tp 8 --pp 2 --overlap gradient-reduce,parameter-gather,tensor,transfer"),
    "llama3-405b": plan("llama3-405b", "dgx-h100:126", 448, "--pp 9 --tp 8 --ranks 1008", seq=8192),
    "llama3-405b-fp8": plan("llama3-405b", "dgx-h100:128", 512, "--precision fp8 --schedule interleaved", seq=8192),
    "llama3.2-1b-tied": plan("llama3.2-1b", "dgx-h100:1", 64),
    "gpt3-175b": plan("gpt3-175b", "dgx-a100:64", 1536, "--schedule interleaved", seq=2048),
    "gpt2-fp16": plan("gpt2-1.5b", "dgx-a100:1", 64, "--pp 2 --precision fp16", seq=1024),
    "qwen2.5-72b": plan("qwen2.5-72b", "dgx-h100:8", 256),
    "mistral-7b": plan("mistral-7b", "dgx-h100:1", 64),
    "gemma2-27b": plan("gemma2-27b", "dgx-h100:4", 128),
    "mixtral-8x7b": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 8 --tp 1 --pp 2 --schedule interleaved"),
    "mixtral-8x7b-exchange": plan("mixtral-8x7b", "dgx-h100:4", 64,
                                  "--ep 8 --tp 1 --pp 2 --schedule interleaved --overlap gradient-reduce,parameter-gather,transfer,exchange"),
    "mixtral-8x7b-once": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 8 --dispatch once"),
    "mixtral-8x7b-expert-tensor": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 4 --tp 2 --etp 2 --sp on"),
    "qwen3-30b-a3b": plan("qwen3-30b-a3b", "dgx-h100:4", 256),
    "qwen3-235b-a22b": plan("qwen3-235b-a22b", "dgx-b200:16", 1024),
    "gpt-oss-20b": plan("gpt-oss-20b", "dgx-h100:1", 32),
    "deepseek-v2": plan("deepseek-v2", "dgx-h100:16", 128, "--ep 8 --pp 4 --tp 1 --schedule 1f1b"),
    "deepseek-v3": plan("deepseek-v3", "dgx-h100:128", 4096),
    "deepseek-v3-one-stage": plan("deepseek-v3", "dgx-h100:128", 4096, "--pp 1"),
}

# Megatron-Bridge has recipes for these models.
BRIDGE_MODELS = ("llama3-8b", "llama3-70b", "llama3-405b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b")
BRIDGE = {name: options for name, options in MEGATRON.items() if options[1] in BRIDGE_MODELS}

def trained(more):
    """Plans of a model that two CPU processes train for a few steps."""
    return plan("tiny-llama", "dgx-h100:1", 8, f"--ranks 2 --micro-batch 2 --precision fp32 {more}", seq=64)


# torchtitan, and the schedules of PyTorch that it runs.
EAGER = "--execution elementwise=eager"
TORCHTITAN = {
    "llama3-8b": plan("llama3-8b", "dgx-h100:2", 128, seq=8192),
    "llama3.2-1b-replicas": plan("llama3.2-1b", "dgx-h100:1", 64, "--zero 0 --tp 1 --pp 1"),
    "llama3.2-1b-tied-zero3": plan("llama3.2-1b", "dgx-h100:1", 64, "--zero 3"),
    "llama3.2-1b-tied-pipeline": plan("llama3.2-1b", "dgx-h100:1", 64, "--pp 2"),
    "llama3-8b-zero2": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2"),
    "llama3-8b-zero3": plan("llama3-8b", "dgx-h100:2", 128, "--zero 3"),
    "llama3-8b-replicas-tensor": plan("llama3-8b", "dgx-h100:2", 64, "--zero 0 --tp 4"),
    "llama3-8b-tensor": plan("llama3-8b", "dgx-h100:2", 64, "--tp 4 --sp on --zero 2"),
    "llama3-8b-tensor-only": plan("llama3-8b", "dgx-h100:1", 64, "--tp 8 --sp on --dp 1"),
    "llama3-8b-context": plan("llama3-8b", "dgx-h100:2", 16, "--cp 4 --cp-method ring", seq=32768),
    "llama3-8b-recompute": plan("llama3-8b", "dgx-h100:1", 64, "--recompute full", seq=8192),
    "llama3-8b-fp8": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp8"),
    "llama3-8b-fp8-head": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp8 --execution fp8_head=true"),
    "llama3-8b-mxfp8": plan("llama3-8b", "dgx-b200:1", 64, "--precision mxfp8"),
    "llama3-8b-fp32": plan("llama3-8b", "dgx-h100:2", 64, "--precision fp32"),
    "llama3-8b-offload": plan("llama3-8b", "dgx-h100:1", 64, "--offload on"),
    "llama3-8b-graphs": plan("llama3-8b", "dgx-h100:2", 64, "--pp 1 --execution graphs=true"),
    "llama3-8b-graphs-pipeline": plan("llama3-8b", "dgx-h100:2", 64, "--pp 2 --execution graphs=true"),
    "llama3-8b-1f1b": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule 1f1b --zero 2"),
    "llama3-8b-gpipe": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule gpipe --zero 2"),
    "llama3-8b-pipeline-only": plan("llama3-8b", "dgx-h100:1", 64, "--pp 8 --dp 1"),
    "llama3-8b-interleaved": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --chunks 2 --schedule interleaved --zero 2"),
    "llama3-8b-rounds": plan("llama3-8b", "dgx-h100:2", 56, "--pp 4 --dp 4 --chunks 2 --micro-batch 1 --schedule interleaved --zero 2"),
    "llama3-8b-zb-h1": plan("llama3-8b", "dgx-h100:2", 64, f"--pp 4 --schedule zb-h1 --zero 2 {EAGER}"),
    "llama3-8b-zb-h2": plan("llama3-8b", "dgx-h100:2", 64, f"--pp 4 --schedule zb-h2 --zero 2 {EAGER}"),
    "llama3-8b-zb-v": plan("llama3-8b", "dgx-h100:2", 64, f"--pp 4 --schedule zb-v --zero 2 {EAGER}"),
    "llama3-8b-v-half": plan("llama3-8b", "dgx-h100:2", 64, f"--pp 4 --schedule v-half --zero 2 {EAGER}"),
    "llama3-8b-v-min": plan("llama3-8b", "dgx-h100:2", 64, f"--pp 4 --schedule v-min --zero 2 {EAGER}"),
    "llama3-8b-dualpipe-v": plan("llama3-8b", "dgx-h100:1", 64, f"--pp 4 --schedule dualpipe-v --zero 2 {EAGER}"),
    "llama3-8b-dualpipe-v-few": plan("llama3-8b", "dgx-h100:1", 8, f"--pp 8 --schedule dualpipe-v --micro-batch 1 {EAGER}"),
    "llama3-8b-zb-v-compiled": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule zb-v --zero 2 --execution elementwise=compiled"),
    "llama3-8b-generated": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule generated --chunks 2 --zero 2"),
    "llama2-7b": plan("llama2-7b", "dgx-a100:2", 64),
    "llama3-70b": plan("llama3-70b", "dgx-h100:8", 128),
    "llama3-70b-async": plan("llama3-70b", "dgx-h100:8", 256,
                             "--tp 8 --pp 2 --schedule 1f1b --zero 2 --overlap gradient-reduce,parameter-gather,tensor,transfer"),
    "llama3-70b-async-zb-v": plan("llama3-70b", "dgx-h100:8", 256, "--tp 8 --pp 2 --schedule zb-v --zero 2 "
                                  "--overlap gradient-reduce,parameter-gather,tensor,transfer"),
    "mistral-7b": plan("mistral-7b", "dgx-h100:1", 64),
    "qwen2.5-72b": plan("qwen2.5-72b", "dgx-h100:8", 256),
    "gemma2-27b": plan("gemma2-27b", "dgx-h100:4", 128),
    "qwen3-8b": plan("qwen3-8b", "dgx-h100:2", 128),
    "qwen3-8b-pipeline": plan("qwen3-8b", "dgx-h100:2", 128, "--pp 2 --zero 2"),
    "qwen3-30b-a3b": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --zero 2"),
    "qwen3-30b-a3b-tensor": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --tp 2 --sp on --zero 2"),
    "qwen3-30b-a3b-replicas": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --zero 0"),
    "qwen3-30b-a3b-fp8": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --precision fp8"),
    "qwen3-30b-a3b-dualpipe-v": plan("qwen3-30b-a3b", "dgx-h100:4", 256,
                                     f"--pp 4 --ep 8 --schedule dualpipe-v --recompute full --zero 2 {EAGER}"),
    "qwen3-235b-a22b": plan("qwen3-235b-a22b", "dgx-b200:16", 1024),
    "mixtral-8x7b": plan("mixtral-8x7b", "dgx-h100:4", 64),
    "biased-experts": plan(f"{MODELS}/biased_experts.json", "dgx-h100:1", 32, "--ep 4 --zero 2"),
    "gpt-oss-20b": plan("gpt-oss-20b", "dgx-h100:1", 32, "--zero 3"),
    "gpt-oss-20b-context": plan("gpt-oss-20b", "dgx-h100:1", 32, "--cp 2"),
    "deepseek-v2": plan("deepseek-v2", "dgx-h100:16", 128),
    "deepseek-v3": plan("deepseek-v3", "dgx-h100:128", 4096),
}

REPLICAS = "--tp 1 --pp 1 --cp 1"
# What DeepSpeed does alone and under Hugging Face's Trainer.
ZERO = {
    "llama3-8b": plan("llama3-8b", "dgx-h100:2", 128),
    "llama3-8b-b200": plan("llama3-8b", "dgx-b200:1", 64, seq=8192),
    "llama3-8b-zero0": plan("llama3-8b", "dgx-b200:1", 64, "--zero 0"),
    "llama3-8b-zero1": plan("llama3-8b", "dgx-h100:2", 128, "--zero 1"),
    "llama3-8b-zero2": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2"),
    "llama3-8b-zero3": plan("llama3-8b", "dgx-h100:2", 128, "--zero 3", seq=8192),
    "llama3-8b-blocking": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2 --overlap parameter-gather,transfer"),
    "llama3-8b-offload-zero1": plan("llama3-8b", "dgx-h100:1", 64, "--zero 1 --offload on"),
    "llama3-8b-offload-zero2": plan("llama3-8b", "dgx-h100:1", 64, "--zero 2 --offload on"),
    "llama3-8b-offload-zero3": plan("llama3-8b", "dgx-h100:1", 64, "--zero 3 --offload on"),
    "llama3-8b-context": plan("llama3-8b", "dgx-h100:2", 64, "--cp 4 --cp-method all_to_all --zero 2", seq=16384),
    "llama3-8b-context-zero3": plan("llama3-8b", "dgx-h100:2", 64, "--cp 8 --cp-method all_to_all --zero 3", seq=32768),
    "llama3-8b-ring": plan("llama3-8b", "dgx-h100:2", 64, "--cp 4 --cp-method ring --zero 2"),
    "llama3-8b-tensor": plan("llama3-8b", "dgx-h100:2", 64, "--tp 8"),
    "llama3-8b-fp16": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp16 --zero 2"),
    "llama3-8b-fp32": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp32 --zero 3"),
    "llama3-8b-fp8": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp8"),
    "llama3-8b-bf16-gradients": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2 --execution bf16_gradient_bytes=2"),
    "llama3-8b-fp32-gradients": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2 --execution bf16_gradient_bytes=4"),
    "llama3-8b-recompute": plan("llama3-8b", "dgx-h100:1", 64, "--recompute full", seq=8192),
    "llama3-8b-recompute-core": plan("llama3-8b", "dgx-h100:1", 64, "--recompute selective"),
    "llama3-70b": plan("llama3-70b", "dgx-h100:8", 128),
    "llama3.2-1b-tied": plan("llama3.2-1b", "dgx-h100:1", 64),
    "llama2-7b": plan("llama2-7b", "dgx-a100:2", 64),
    "qwen2-7b": plan("qwen2-7b", "dgx-h100:1", 64),
    "qwen2.5-72b": plan("qwen2.5-72b", "dgx-h100:8", 256),
    "qwen3-8b": plan("qwen3-8b", "dgx-h100:2", 128),
    "qwen3-30b-a3b": plan("qwen3-30b-a3b", "dgx-h100:4", 256),
    "mistral-7b": plan("mistral-7b", "dgx-h100:1", 64),
    "mixtral-8x7b": plan("mixtral-8x7b", "dgx-h100:4", 64),
    "small-mixtral": plan(f"{MODELS}/small_mixtral.json", "dgx-h100:1", 64),
    "gemma2-27b": plan("gemma2-27b", "dgx-h100:4", 128),
    "gpt2-fp16": plan("gpt2-1.5b", "dgx-a100:1", 64, "--precision fp16", seq=1024),
    "gpt-neox-20b": plan("gpt-neox-20b", "dgx-a100:4", 64, seq=2048),
    "falcon-7b": plan("falcon-7b", "dgx-a100:1", 64, seq=2048),
    "phi3-mini": plan("phi3-mini", "dgx-h100:1", 64),
    "gpt-oss-20b": plan("gpt-oss-20b", "dgx-h100:1", 32),
    "deepseek-v3": plan("deepseek-v3", "dgx-h100:128", 4096),
}
DEEPSPEED = {
    **ZERO,
    "trained-zero0": trained(f"{REPLICAS} --zero 0"),
    "trained-zero1": trained(f"{REPLICAS} --zero 1"),
    "trained-zero2": trained(f"{REPLICAS} --zero 2"),
    "trained-zero3": trained(f"{REPLICAS} --zero 3"),
    "trained-zero3-recompute": trained(f"{REPLICAS} --zero 3 --recompute full"),
    "trained-offload-zero1": trained(f"{REPLICAS} --zero 1 --offload on"),
    "trained-offload-zero3": trained(f"{REPLICAS} --zero 3 --offload on"),
    "llama3-8b-pipeline": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule 1f1b --zero 1"),
    "llama3-8b-pipeline-zero2": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule 1f1b --zero 2"),
    "llama3-8b-interleaved": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule interleaved --chunks 2"),
    "llama3-70b-pipeline": plan("llama3-70b", "dgx-h100:8", 128, "--pp 8 --zero 1"),
    "llama3.2-1b-tied-pipeline": plan("llama3.2-1b", "dgx-h100:1", 64, "--pp 2 --zero 1"),
    "mixtral-8x7b-experts": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 8 --zero 2"),
    "mixtral-8x7b-experts-zero3": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 8 --zero 3"),
    "qwen3-30b-a3b-experts": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --zero 2"),
    "gpt-oss-20b-experts": plan("gpt-oss-20b", "dgx-h100:1", 32, "--ep 4"),
}
DEEPSPEED_TRAINER = {
    **ZERO,
    "trained-zero1": trained(f"{REPLICAS} --zero 1"),
    "trained-zero3": trained(f"{REPLICAS} --zero 3"),
}
FSDP_TRAINER = {
    **{name: options for name, options in ZERO.items() if "-offload-zero1" not in name},
    "trained-zero2": trained(f"{REPLICAS} --zero 2"),
    "trained-zero3-recompute": trained(f"{REPLICAS} --zero 3 --recompute full"),
    "llama3-70b-zero3": plan("llama3-70b", "dgx-h100:8", 128, "--zero 3"),
    "llama3-8b-mxfp8": plan("llama3-8b", "dgx-b200:1", 64, "--precision mxfp8"),
    "llama3-8b-ring-zero3": plan("llama3-8b", "dgx-h100:2", 16, "--cp 8 --cp-method ring --zero 3", seq=32768),
    "mistral-7b-ring": plan("mistral-7b", "dgx-h100:1", 64, "--cp 2 --cp-method ring"),
}

# PyTorch's FSDP2 alone.
FSDP = {
    "llama3-8b-zero2": plan("llama3-8b", "dgx-h100:1", 64, "--zero 2"),
    "llama3-8b-zero3": plan("llama3-8b", "dgx-h100:1", 64, "--zero 3"),
    "llama3-8b-offload": plan("llama3-8b", "dgx-h100:1", 64, "--zero 3 --offload on"),
}

# What the framework cannot run: mpt-plan must refuse to plan it.
UNPLANNED = {
    ("megatron", "llama3-8b-rounds"), ("bridge", "llama3-8b-rounds"),
    ("fsdp", "llama3-8b-offload"),
}
UNPLANNED |= {(name, plan) for name, plans in {
    "torchtitan": ["llama3-8b-rounds", "llama3-8b-offload", "llama3-8b-generated", "llama3-8b-dualpipe-v-few", "llama3-8b-zb-v-compiled",
                   "llama3-8b-graphs-pipeline", "llama3-70b-async-zb-v", "llama3.2-1b-tied-pipeline", "qwen3-30b-a3b-replicas",
                   "gpt-oss-20b-context", "mistral-7b", "qwen2.5-72b", "gemma2-27b", "deepseek-v2", "deepseek-v3"],
    "deepspeed": ["llama3-8b-ring", "llama3-8b-tensor", "llama3-8b-fp8", "llama3-8b-recompute-core", "llama3-8b-pipeline-zero2",
                  "llama3-8b-interleaved", "mixtral-8x7b-experts-zero3", "gpt-oss-20b-experts", "deepseek-v3"],
    "transformers-deepspeed": ["llama3-8b-ring", "llama3-8b-tensor", "llama3-8b-fp8", "llama3-8b-recompute-core", "deepseek-v3"],
    "transformers-fsdp": ["llama3-8b-zero0", "llama3-8b-zero1", "llama3-8b-blocking", "llama3-8b-offload-zero2", "llama3-8b-offload-zero3",
                          "llama3-8b-context", "llama3-8b-context-zero3", "llama3-8b-tensor", "llama3-8b-recompute-core",
                          "llama3-8b-mxfp8", "mistral-7b-ring", "deepseek-v3"],
}.items() for plan in plans}

# --framework of the plan, --to of the export, environment, plans; judge_NAME.py asks
FRAMEWORKS = {
    "megatron": ("megatron-core", "megatron", "megatron", MEGATRON),
    "bridge": ("megatron-bridge", "megatron-bridge", "bridge", BRIDGE),
    "torchtitan": ("torchtitan", "torchtitan", "torchtitan", TORCHTITAN),
    "deepspeed": ("deepspeed", "deepspeed", "accelerate", DEEPSPEED),
    "transformers-deepspeed": ("transformers-deepspeed", "transformers-deepspeed", "accelerate", DEEPSPEED_TRAINER),
    "transformers-fsdp": ("transformers-fsdp", "transformers-fsdp", "accelerate", FSDP_TRAINER),
    "fsdp": ("pytorch", "fsdp2", "torch", FSDP),
}
