#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Megatron-LM's arguments for a tiny GPT on four ranks.
TP=${TP:-2}
PP=${PP:-2}

GPT_MODEL_ARGS=(
    --num-layers 4
    --hidden-size 64
    --num-attention-heads 4
    --seq-length 64
    --max-position-embeddings 64
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --untie-embeddings-and-output-weights
    --vocab-size 256
    --make-vocab-size-divisible-by 1
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 8
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --sequence-parallel
)

torchrun --nproc-per-node 4 pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]}
