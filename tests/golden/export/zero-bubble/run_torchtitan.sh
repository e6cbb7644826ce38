#!/usr/bin/env bash
# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
# llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For torchtitan 0.3.0.
# Run it on every node with NODE_RANK (or under Slurm) and MASTER_ADDR set. More options go to torchtitan.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
node=${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}}
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
exec torchrun --nproc-per-node 8 --nnodes 1 --node-rank "$node" \
  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
  -m torchtitan.train --module mpt_torchtitan --config mpt_plan "$@"
