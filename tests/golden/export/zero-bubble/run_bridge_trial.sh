#!/usr/bin/env bash
# llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For Megatron-Bridge 0.6.2: run_bridge_trial.sh STEPS.
# Run it on every node with NODE_RANK (or under Slurm) and MASTER_ADDR set.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
node=${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}}
exec torchrun --nproc-per-node 8 --nnodes 1 --node-rank "$node" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" "$here/mpt_bridge_trial.py" "$@"
