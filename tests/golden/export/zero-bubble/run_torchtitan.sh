#!/usr/bin/env bash
# Note: step time and memory are those of megatron-core, not of torchtitan: mpt-plan --framework torchtitan plans for it.
# llama3-8b on dgx-h100:1: tp1 pp4 dp2 zero1 mbs1 zb-v x2, 8 ranks. For torchtitan 0.3.0.
# Start it on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set. More options go to torchtitan.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
exec torchrun --nnodes=1 --nproc-per-node=8 --node-rank="${NODE_RANK:-0}" \
  --master-addr="${MASTER_ADDR:-localhost}" --master-port="${MASTER_PORT:-29500}" \
  -m torchtitan.train --module mpt_torchtitan --config mpt_plan "$@"
