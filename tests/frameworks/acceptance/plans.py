# SPDX-License-Identifier: Apache-2.0
"""The plans that the frameworks judge: a name, and the options of mpt-plan. Each list is for the frameworks that read the same plan."""

from pytorch_plans import PYTORCH


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

# torchtitan, and the schedules of PyTorch that it runs.
TORCHTITAN = {
    "llama3-8b": plan("llama3-8b", "dgx-h100:2", 128, seq=8192),
    "llama3.2-1b-replicas": plan("llama3.2-1b", "dgx-h100:1", 64, "--zero 0 --tp 1 --pp 1"),
    "llama3-8b-tensor": plan("llama3-8b", "dgx-h100:2", 64, "--tp 4 --zero 2"),
    "llama3-8b-zero3-full": plan("llama3-8b", "dgx-h100:2", 128, "--zero 3 --pp 1 --tp 1 --recompute full"),
    "llama3-8b-offload": plan("llama3-8b", "dgx-h100:1", 64, "--zero 3 --offload on"),
    "llama3-8b-context": plan("llama3-8b", "dgx-h100:2", 16, "--cp 4 --zero 3", seq=32768),
    "llama3-8b-fp8": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp8"),
    "llama3-8b-1f1b": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule 1f1b --zero 2"),
    "llama3-8b-pipeline-only": plan("llama3-8b", "dgx-h100:1", 64, "--pp 8 --dp 1"),
    "llama3-8b-interleaved": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --chunks 2 --schedule interleaved --zero 2"),
    "llama3-8b-rounds": plan("llama3-8b", "dgx-h100:2", 56, "--pp 4 --dp 4 --chunks 2 --micro-batch 1 --schedule interleaved --zero 2"),
    "llama3-8b-zb-h1": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule zb-h1 --zero 2 --execution elementwise=eager"),
    "llama3-8b-zb-v": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule zb-v --zero 2 --execution elementwise=eager"),
    "llama3-8b-v-half": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule v-half --zero 2 --execution elementwise=eager"),
    "llama3-8b-dualpipe-v": plan("llama3-8b", "dgx-h100:1", 64, "--pp 4 --schedule dualpipe-v --zero 2 --execution elementwise=eager"),
    "llama3-8b-generated": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --schedule generated --chunks 2 --zero 2"),
    "llama3-70b": plan("llama3-70b", "dgx-h100:8", 128),
    "llama3-70b-async": plan("llama3-70b", "dgx-h100:8", 256,
                             "--tp 8 --pp 2 --schedule 1f1b --zero 2 --overlap gradient-reduce,parameter-gather,tensor,transfer"),
    "llama3-405b": plan("llama3-405b", "dgx-h100:128", 512),
    "qwen3-8b": plan("qwen3-8b", "dgx-h100:2", 128),
    "qwen3-30b-a3b": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--ep 8 --zero 2"),
    "qwen3-30b-a3b-dualpipe-v": plan("qwen3-30b-a3b", "dgx-h100:4", 256, "--pp 4 --ep 8 --schedule dualpipe-v --recompute full --zero 2 --execution elementwise=eager"),
    "gpt-oss-20b": plan("gpt-oss-20b", "dgx-h100:1", 32, "--zero 3"),
    "deepseek-v3": plan("deepseek-v3", "dgx-h100:128", 4096),
}

# DeepSpeed, alone and through accelerate.
DEEPSPEED = {
    "llama3-8b-zero0": plan("llama3-8b", "dgx-h100:2", 64, "--zero 0 --pp 1 --tp 8"),
    "llama3-8b-zero1": plan("llama3-8b", "dgx-h100:2", 128, "--zero 1 --pp 1 --tp 1 --cp 1"),
    "llama3-8b-zero2": plan("llama3-8b", "dgx-h100:2", 128, "--zero 2 --pp 1 --tp 1 --cp 1"),
    "llama3-8b-zero3": plan("llama3-8b", "dgx-h100:2", 128, "--zero 3 --pp 1 --tp 1 --cp 1", seq=8192),
    "llama3-8b-offload": plan("llama3-8b", "dgx-h100:1", 64, "--zero 2 --offload on --pp 1 --tp 1"),
    "llama3-8b-context": plan("llama3-8b", "dgx-h100:2", 64, "--cp 4 --cp-method all_to_all --zero 2 --tp 1 --pp 1"),
    "llama3-8b-pipeline": plan("llama3-8b", "dgx-h100:2", 64, "--pp 4 --tp 1 --cp 1 --schedule 1f1b --zero 1"),
    "llama3-8b-fp16": plan("llama3-8b", "dgx-h100:2", 128, "--precision fp16 --zero 2 --pp 1 --tp 1 --cp 1"),
    "mixtral-8x7b": plan("mixtral-8x7b", "dgx-h100:4", 64, "--ep 8 --zero 2 --pp 1 --tp 1"),
}

# What the framework cannot run: mpt-plan must refuse to plan it.
UNPLANNED = {
    ("megatron", "llama3-8b-rounds"), ("bridge", "llama3-8b-rounds"),
    ("torchtitan", "llama3-8b-rounds"), ("torchtitan", "llama3-8b-offload"), ("torchtitan", "llama3-8b-generated"),
    ("torchtitan", "deepseek-v3"),
    ("deepspeed", "llama3-8b-zero0"),
    ("accelerate", "llama3-8b-zero0"), ("accelerate", "llama3-8b-pipeline"), ("accelerate", "mixtral-8x7b"),
}

# --framework of the plan, --to of the export, environment, plans; judge_NAME.py asks
FRAMEWORKS = {
    "megatron": ("megatron-core", "megatron", "megatron", MEGATRON),
    "bridge": ("megatron-bridge", "megatron-bridge", "bridge", BRIDGE),
    "torchtitan": ("torchtitan", "torchtitan", "torchtitan", TORCHTITAN),
    "deepspeed": ("deepspeed", "deepspeed", "deepspeed", DEEPSPEED),
    "accelerate": ("transformers-deepspeed", "deepspeed", "accelerate", DEEPSPEED),
    "pytorch": ("pytorch", "pytorch", "torch", PYTORCH),
}
