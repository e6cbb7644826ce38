#!/usr/bin/env bash
# accelerate 1.15.0 (torch 2.15.0): the answer to "What should be your sharding strategy?" of `accelerate config` has no effect.
#
# Expected: the questions for FSDP 1 write the strategy as fsdp_reshard_after_forward (commands/config/cluster.py), and the launch follows it. A
#   strategy under its old key, fsdp_sharding_strategy, is followed or refused by FSDP 2.
# Seen: with fsdp_version 1 the launch always sets FSDP_SHARDING_STRATEGY, to FULL_SHARD where the file does not name it, and the plugin takes
#   that first (utils/dataclasses.py). SHARD_GRAD_OP and HYBRID_SHARD become FULL_SHARD. With fsdp_version 2 fsdp_sharding_strategy is dropped: both
#   reshard after forward, over all ranks. No warning names the value.
# Why it matters: HYBRID_SHARD over 2 nodes holds twice the bytes of states, and its gathers stay in a node. What runs instead gathers each layer
#   over the network. Replicas under FSDP 2 need parallelism_config with dp_replicate_size and dp_shard_size.
# Usage: ./accelerate_loses_the_sharding_strategy_it_asked_for.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 accelerate==1.15.0
cat >"$folder/plugin.py" <<'END'
from accelerate.utils import FullyShardedDataParallelPlugin

plugin = FullyShardedDataParallelPlugin()
strategy = plugin.sharding_strategy
print("SEEN", strategy.name if strategy is not None else f"reshard {plugin.reshard_after_forward}")
END
# Loading on one rank alone is switched off: FSDP 1 asks for a GPU to send weights from there.
seen() {
  cat >"$folder/config.yaml" <<END
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
machine_rank: 0
num_machines: 1
num_processes: 1
mixed_precision: bf16
fsdp_config:
  fsdp_version: $1
  $2: $3
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: false
  fsdp_sync_module_states: false
END
  "$folder/env/bin/accelerate" launch --config_file "$folder/config.yaml" "$folder/plugin.py" 2>/dev/null | sed -n 's/^SEEN //p'
}
status=0
check() {
  local found
  found=$(seen "$1" "$2" "$3")
  echo "fsdp_version $1, $2: $3 -> $found"
  [ "$found" = "$4" ] || { echo "expected $4" >&2; status=1; }
}
check 1 fsdp_sharding_strategy SHARD_GRAD_OP SHARD_GRAD_OP
check 1 fsdp_reshard_after_forward SHARD_GRAD_OP FULL_SHARD
check 1 fsdp_reshard_after_forward HYBRID_SHARD FULL_SHARD
check 2 fsdp_sharding_strategy SHARD_GRAD_OP "reshard True"
check 2 fsdp_sharding_strategy HYBRID_SHARD "reshard True"
exit "$status"
