# SPDX-License-Identifier: Apache-2.0
"""Plans for Hugging Face's Trainer with FSDP2 or DDP: transformers' model by the configuration that MPT exports, with PEFT's adapters where it
has them, split by accelerate's functions or by PyTorch's DDP."""

import contextlib
import importlib.util
import json
import os
import tempfile
import types
from typing import Any, ContextManager, Dict, List, Tuple
from unittest import mock

import torch
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, convert_outputs_to_fp32
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_model
from torch.nn.parallel import distributed
from transformers import AutoModelForCausalLM, masking_utils

from .._door import wrong
from ._pytorch import configured
from ._rank import MOST_MICRO_BATCHES, Watch, measure

# Keys of train.json, and of TRL's sft.yaml, which are the Trainer's and these. The Trainer's other arguments may change memory.
KNOWN = {"config_name", "block_size", "per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16", "accelerator_config", "max_grad_norm",
         "activation_checkpointing", "activation_checkpointing_kwargs", "dtype"}
KNOWN_BESIDE_ADAPTERS = {"accelerate_config", "model_name_or_path", "attn_implementation", "max_length", "gradient_checkpointing", "use_peft", "lora_r",
                         "lora_alpha", "lora_dropout", "lora_target_modules", "datasets", "output_dir", "report_to"}
# Keys that a plan may have with these values alone.
VALUES = {"packing": False, "optim": "adamw_torch_fused"}
GROUPS = {"dp_replicate": "replicas", "dp_shard": "shards", "dp_shard_cp": "shards"}
ADAPTERS = ("r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters", "modules_to_save")


def _summed(watch: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DDP does with a bucket. A group of fake processes has no result for it."""
    torch.distributed.all_reduce(bucket.buffer())
    watch.counting.see(bucket.buffer(), "optimizer")  # as MPT counts it: it is there all the time
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _adapted(model: Any, arguments: Dict[str, Any]) -> Any:
    import peft
    return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))


class Trained:
    """What the Trainer does in a step, with accelerate's plugin set by hand: accelerate leaves FSDP out where there is no GPU."""

    def __init__(self, plan: Any, arguments: Dict[str, Any], config: Any):
        self.layout, rounds = plan.layout, arguments["gradient_accumulation_steps"]
        self.precision = "no" if self.layout.precision == "fp32" else self.layout.precision
        self.shape, self.micro_batches = (arguments["per_device_train_batch_size"], arguments["block_size"]), min(rounds, MOST_MICRO_BATCHES)
        self.stages, self.repeated = [0], rounds - self.micro_batches
        self.names: Dict[str, str] = {}
        self.adapts, self.checkpoints, self.replicated = "adapters" in arguments, arguments["activation_checkpointing"], plan.layout.execution.framework == "transformers-ddp"
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, arguments["dtype"])).train()
            model.config.use_cache = False
            if self.adapts:
                model = _adapted(model, arguments["adapters"])
        if self.checkpoints:  # by the Trainer, of every n-th layer or of all, and not by accelerate
            model.activation_checkpointing_enable(**arguments.get("activation_checkpointing_kwargs", {}))
            if self.adapts:
                model.enable_input_require_grads()
        self.wraps = self.replicated and self.layout.data > 1
        self.model = model if self.replicated else self._sharded(model)

    def _sharded(self, model: Any) -> Any:
        layout, shard = self.layout, self.layout.shard or self.layout.data
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=layout.zero == 3, auto_wrap_policy="transformer_based_wrap",
                                                cpu_ram_efficient_loading=False, activation_checkpointing=layout.recompute == "full" and not self.checkpoints)
        if self.precision != "no":
            plugin.set_mixed_precision(self.precision)
        sizes = ParallelismConfig(dp_replicate_size=layout.data // shard, dp_shard_size=shard)
        mesh = sizes.build_device_mesh("cpu") if layout.data > 1 else None
        self.names = {mesh[axis].get_group().group_name: GROUPS[axis] for axis in mesh.mesh_dim_names} if mesh else {}
        accelerator = types.SimpleNamespace(state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh=mesh, parallelism_config=sizes,
                                            mixed_precision=self.precision, is_main_process=False, device=torch.device("cpu"))
        plugin.set_auto_wrap_policy(model)
        return fsdp2_prepare_model(accelerator, fsdp2_apply_ac(accelerator, model) if plugin.activation_checkpointing else model)

    def allocate(self) -> None:
        self.model.to_empty(device="cpu")
        (self.model.get_base_model() if self.adapts else self.model).tie_weights()
        self.weights = list(self.model.parameters())
        self.parameters = [weight for weight in self.weights if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, fused=True)  # the Trainer's since torch 2.8
        if self.replicated and self.precision != "no":  # accelerate/accelerator.py, prepare_model
            self.model.forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16 if self.precision == "bf16" else torch.float16)(self.model.forward))
        if self.wraps:
            self.names = {torch.distributed.group.WORLD.group_name: "replicas"}
            # Ranks compare shapes and send weights at the start, by values.
            with mock.patch.multiple(distributed, _verify_param_shape_across_processes=lambda *_: True, _sync_module_states=lambda **_: None):
                self.model = distributed.DistributedDataParallel(self.model)

    def forward_and_backward(self, watch: Watch) -> None:
        watch.counting.see(self.weights, "parameters")
        if self.wraps:
            self.model.register_comm_hook(watch, _summed)
        tokens = torch.zeros(self.shape, dtype=torch.int64)
        for number in range(self.micro_batches):
            apart: ContextManager[Any] = self.model.no_sync() if self.wraps and number + 1 < self.micro_batches else contextlib.nullcontext()
            with apart:
                # One sequence in a row: transformers finds that from values, which fake tensors do not have.
                with watch.forward(0), mock.patch.object(masking_utils, "find_packed_sequence_indices", lambda _: None):
                    loss = self.model(input_ids=tokens, labels=tokens)["loss"]
                (loss / (self.micro_batches + self.repeated)).backward()
            watch.marks.append(watch.counting.calls.copy())

    def update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def _adapts(plan: Any) -> bool:
    return bool(plan.layout.training and plan.layout.training.adapter_rank)


def _arguments(plan: Any, folder: str) -> Tuple[Dict[str, Any], List[str]]:
    """The Trainer's arguments of a plan, and what else its files say. Plans with adapters are TRL's."""
    if not _adapts(plan):
        plan.export(plan.layout.execution.framework, folder)
        with open(os.path.join(folder, "train.json"), encoding="utf-8") as file:
            arguments = json.load(file)
        return {"dtype": "float32", **arguments}, [f"{key}: {value}" for key, value in arguments.items() if key not in KNOWN]
    import yaml
    plan.export("trl", folder)
    with open(os.path.join(folder, "sft.yaml"), encoding="utf-8") as file:
        recipe = yaml.safe_load(file)
    adapters = {name: recipe[key] for name in ADAPTERS for key in (name, f"lora_{name}") if key in recipe}
    other = [f"{key}: {value}" for key, value in recipe.items() if key not in KNOWN | KNOWN_BESIDE_ADAPTERS and VALUES.get(key) != value]
    return {**recipe, "config_name": "config.json" if recipe["model_name_or_path"] == "." else recipe["model_name_or_path"], "block_size": recipe["max_length"], "activation_checkpointing": recipe["gradient_checkpointing"],
            "adapters": adapters}, other


def measured(plan: Any) -> List[Dict[str, Any]]:
    if _adapts(plan) and importlib.util.find_spec("peft") is None:
        raise wrong("plan with adapters", "no package peft in this Python", "peft 0.21", "pip install peft")
    with tempfile.TemporaryDirectory() as folder:
        arguments, other = _arguments(plan, folder)
        other += ["context ranks"] * (plan.layout.context > 1)
        if other:
            raise wrong(f"plan for {plan.layout.execution.framework}", f"{other[0]}; MPT cannot verify that yet", "a plan without it",
                        "compare a run with mpt-plan diagnose")
        config = configured(plan, folder, arguments["config_name"])
    return [measure(0, plan.layout.data, plan.cluster.device.kind == "gpu", lambda: Trained(plan, arguments, config))]
