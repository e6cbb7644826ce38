#!/usr/bin/env bash
# llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. For Megatron-Bridge 0.6.2: run_bridge_trial.sh STEPS.
# Run it on every node with NODE_RANK (or under Slurm) and MASTER_ADDR set.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
node=${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}}
exec torchrun --nproc-per-node 8 --nnodes 8 --node-rank "$node" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" "$here/mpt_bridge_trial.py" "$@"
