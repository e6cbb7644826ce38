#!/usr/bin/env bash
# llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks
# Run it on every node with NODE_RANK (or under Slurm) and MASTER_ADDR set, in a clone of Megatron-LM (core_v0.19.2). Data and
# training options are yours: what follows the script's name is passed on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
node=${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}}
mapfile -t plan < <(tr ' ' '\n' < "$here/megatron_args.txt")
# Gradient reduction and tensor-parallel overlap rely on the order in which kernels were launched.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
exec torchrun --nproc-per-node 8 --nnodes 1 --node-rank "$node" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
  pretrain_gpt.py "${plan[@]}" "$@"
