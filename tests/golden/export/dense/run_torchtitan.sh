#!/usr/bin/env bash
# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
# llama3-70b on dgx-h100:8: tp4+sp pp4 dp4 zero1 mbs1 interleaved x5, 64 ranks. For torchtitan 0.3.0.
# Start it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set. More options go to torchtitan.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
exec torchrun --nnodes=8 --nproc-per-node=8 --node-rank="${NODE_RANK:-0}" \
  --master-addr="${MASTER_ADDR:-localhost}" --master-port="${MASTER_PORT:-29500}" \
  -m torchtitan.train --module mpt_torchtitan --config mpt_plan "$@"
