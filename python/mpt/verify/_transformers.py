# SPDX-License-Identifier: Apache-2.0
"""Plans for Hugging Face's Trainer with FSDP2: transformers' model by the configuration that MPT exports, split by accelerate's functions."""

from __future__ import annotations

import json
import os
import tempfile
import types
from typing import Any, Dict, List
from unittest import mock

import torch
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_model
from transformers import AutoModelForCausalLM, masking_utils

from .._door import wrong
from ._pytorch import configured
from ._rank import MOST_MICRO_BATCHES, Watch, measure

# Keys of train.json. The Trainer's other arguments may change memory.
KNOWN = {"config_name", "block_size", "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "accelerator_config", "max_grad_norm",
         "activation_checkpointing", "activation_checkpointing_kwargs"}
GROUPS = {"dp_replicate": "replicas", "dp_shard": "shards", "dp_shard_cp": "shards"}


class Trained:
    """What the Trainer does in a step, with accelerate's plugin set by hand: accelerate leaves FSDP out where there is no GPU."""

    def __init__(self, plan: Any, arguments: Dict[str, Any], config: Any):
        layout, rounds = plan.layout, arguments["gradient_accumulation_steps"]
        precision, shard = "no" if layout.precision == "fp32" else layout.precision, layout.shard or layout.data
        self.shape, self.micro_batches = (arguments["per_device_train_batch_size"], arguments["block_size"]), min(rounds, MOST_MICRO_BATCHES)
        self.stages, self.repeated = [0], rounds - self.micro_batches
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=layout.zero == 3, auto_wrap_policy="transformer_based_wrap",
                                                cpu_ram_efficient_loading=False, activation_checkpointing=layout.recompute == "full" and not arguments["activation_checkpointing"])
        if precision != "no":
            plugin.set_mixed_precision(precision)
        sizes = ParallelismConfig(dp_replicate_size=layout.data // shard, dp_shard_size=shard)
        mesh = sizes.build_device_mesh("cpu") if layout.data > 1 else None
        self.names = {mesh[axis].get_group().group_name: GROUPS[axis] for axis in mesh.mesh_dim_names} if mesh else {}
        accelerator = types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh=mesh, parallelism_config=sizes,
                                            mixed_precision=precision, is_main_process=False, device=torch.device("cpu"))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
        model.config.use_cache = False
        if arguments["activation_checkpointing"]:  # every n-th layer, by the Trainer and not by accelerate
            model.activation_checkpointing_enable(**arguments.get("activation_checkpointing_kwargs", {}))
        plugin.set_auto_wrap_policy(model)
        self.model = fsdp2_prepare_model(accelerator, fsdp2_apply_ac(accelerator, model) if plugin.activation_checkpointing else model)

    def allocate(self) -> None:
        self.model.to_empty(device="cpu")
        self.model.tie_weights()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, fused=True)  # the Trainer's since torch 2.8

    def forward_and_backward(self, watch: Watch) -> None:
        tokens = torch.zeros(self.shape, dtype=torch.int64)
        for _ in range(self.micro_batches):
            # One sequence in a row: transformers finds that from values, which fake tensors do not have.
            with watch.forward(0), mock.patch.object(masking_utils, "find_packed_sequence_indices", lambda _: None):
                loss = self.model(input_ids=tokens, labels=tokens)["loss"]
            (loss / (self.micro_batches + self.repeated)).backward()
            watch.marks.append(watch.counting.calls.copy())

    def update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def measured(plan: Any) -> List[Dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        plan.export("transformers-fsdp", folder)
        with open(os.path.join(folder, "train.json"), encoding="utf-8") as file:
            arguments = json.load(file)
        other = [f"{key}: {value}" for key, value in arguments.items() if key not in KNOWN] + ["context ranks"] * (plan.layout.context > 1)
        if other:
            raise wrong("plan for transformers-fsdp", f"{other[0]}; MPT cannot verify that yet", "a plan without it", "compare a run with mpt-plan diagnose")
        config = configured(plan, folder, arguments["config_name"])
    return [measure(0, plan.layout.data, plan.cluster.device.kind == "gpu", lambda: Trained(plan, arguments, config))]
