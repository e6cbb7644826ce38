# SPDX-License-Identifier: Apache-2.0
"""Plans for Hugging Face's Trainer with FSDP2 or DDP: transformers' model by the configuration that MPT exports, with PEFT's adapters, weights in
4 bits and TRL's loss where it has them, split by accelerate's functions or by PyTorch's DDP."""

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
KNOWN_OF_TRL = {"accelerate_config", "model_name_or_path", "attn_implementation", "max_length", "gradient_checkpointing", "use_peft", "lora_r",
                "lora_alpha", "lora_dropout", "lora_target_modules", "datasets", "output_dir", "report_to", "load_in_4bit", "bnb_4bit_quant_type",
                "use_bnb_nested_quant", "bnb_4bit_quant_storage"}
# Keys that a plan may have with these values alone.
VALUES = {"packing": False, "optim": "adamw_torch_fused"}
GROUPS = {"dp_replicate": "replicas", "dp_shard": "shards", "dp_shard_cp": "shards"}
ADAPTERS = ("r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters", "modules_to_save")
# Packages that some plans need in addition to the Trainer's.
PACKAGES = {"peft": "0.21", "bitsandbytes": "0.50", "trl": "1.16"}


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


def _products(model: Any) -> List[Any]:
    """Those of bitsandbytes. PEFT's wrappers of them have the same name."""
    return [module for module in model.modules() if type(module).__name__ == "Linear4bit" and type(module).__module__.startswith("bitsandbytes")]


def _in_4_bits(model: Any, arguments: Dict[str, Any], dtype: torch.dtype) -> None:
    """As transformers loads a model, with weights of the shapes that bitsandbytes gives them."""
    import bitsandbytes
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert
    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype, bnb_4bit_quant_type=arguments["bnb_4bit_quant_type"],
                                  bnb_4bit_use_double_quant=arguments["use_bnb_nested_quant"], bnb_4bit_quant_storage=arguments.get("bnb_4bit_quant_storage"))
    replace_with_bnb_linear(model, get_keys_to_not_convert(model), settings)
    model.is_loaded_in_4bit = True
    # A fake weight has no class of bitsandbytes, which would be made again in each forward.
    bitsandbytes.nn.modules.fix_4bit_weight_quant_state_from_module = lambda module: setattr(module.weight, "quant_state", module.quant_state)
    for module in _products(model):
        storage = settings.bnb_4bit_quant_storage
        weight = torch.empty(module.weight.numel() // 2 // storage.itemsize, 1, dtype=storage)
        module.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", quant_storage=storage, bnb_quantized=True, module=module)


def _scales(module: Any, dtype: torch.dtype) -> List[torch.Tensor]:
    """Gives a product its scales: 8 bits for 64 weights, and 32 for 256 of these."""
    from bitsandbytes.functional import QuantState
    blocks = module.out_features * module.in_features // 64
    nested = QuantState(absmax=torch.empty(-(-blocks // 256)), code=torch.empty(256), blocksize=256, dtype=torch.float32)
    held = module.quant_state = QuantState(absmax=torch.empty(blocks, dtype=torch.uint8), shape=torch.Size((module.out_features, module.in_features)),
                                           code=torch.empty(16), blocksize=64, quant_type="nf4", dtype=dtype, offset=torch.empty(()), state2=nested)
    return [held.absmax, held.code, held.offset, nested.absmax, nested.code]


def _add_loss_of_trl(model: Any) -> None:
    from trl.kernels import chunked_logprob
    from trl.trainer.utils import add_fused_lm_head
    for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):  # on GPUs in place, by Triton and cuBLAS
        setattr(chunked_logprob, name, lambda *_, **__: None)
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))  # as SFTTrainer asks for it


class Trained:
    """What the Trainer does in a step, with accelerate's plugin set by hand: accelerate leaves FSDP out where there is no GPU."""

    def __init__(self, plan: Any, arguments: Dict[str, Any], config: Any):
        self.layout, rounds = plan.layout, arguments["gradient_accumulation_steps"]
        self.precision = "no" if self.layout.precision == "fp32" else self.layout.precision
        self.shape, self.micro_batches = (arguments["per_device_train_batch_size"], arguments["block_size"]), min(rounds, MOST_MICRO_BATCHES)
        self.stages, self.repeated = [0], rounds - self.micro_batches
        self.names: Dict[str, str] = {}
        self.adapts, self.checkpoints, self.replicated = _adapts(plan), arguments["activation_checkpointing"], plan.layout.execution.framework == "transformers-ddp"
        self.dtype, self.tiles, narrow = getattr(torch, arguments["dtype"]), plan.layout.execution.loss == "chunked", "load_in_4bit" in arguments
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=self.dtype).train()
            model.config.use_cache = False
            if narrow:
                _in_4_bits(model, arguments, self.dtype)
            if self.tiles:
                _add_loss_of_trl(model)
            if self.adapts:
                model = _adapted(model, arguments["adapters"])
            for weight in model.parameters() if narrow else ():
                if weight.requires_grad:
                    weight.data = weight.data.to(torch.bfloat16)  # trl/trainer/sft_trainer.py
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
        self.weights = [*self.model.parameters(), *(scale for module in _products(self.model) for scale in _scales(module, self.dtype))]
        self.parameters = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, fused=True)  # the Trainer's since torch 2.8
        if self.replicated and self.precision != "no":  # accelerate/accelerator.py, prepare_model
            self.model.forward = convert_outputs_to_fp32(torch.autocast("cpu", torch.bfloat16 if self.precision == "bf16" else torch.float16)(self.model.forward))
        if self.wraps:
            self.names = {torch.distributed.group.WORLD.group_name: "replicas"}
            # Ranks compare shapes and send weights at the start, by values.
            with mock.patch.multiple(distributed, _verify_param_shape_across_processes=lambda *_: True, _sync_module_states=lambda **_: None):
                self.model = distributed.DistributedDataParallel(self.model)

    def _loss(self, tokens: torch.Tensor) -> torch.Tensor:
        if not self.tiles:
            return self.model(input_ids=tokens, labels=tokens)["loss"]
        result = self.model(input_ids=tokens, labels=tokens, fused_lm_head=True)
        return -result.log_probs.sum() / result.label_mask.sum().clamp(min=1)

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
                    loss = self._loss(tokens)
                (loss / (self.micro_batches + self.repeated)).backward()
            watch.marks.append(watch.counting.calls.copy())

    def update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def _adapts(plan: Any) -> bool:
    return bool(plan.layout.training and plan.layout.training.adapter_rank)


def _arguments(plan: Any, folder: str) -> Tuple[Dict[str, Any], List[str]]:
    """The Trainer's arguments of a plan, and what else its files say. Plans with adapters or a loss by chunks are TRL's."""
    if not _adapts(plan) and plan.layout.execution.loss != "chunked":
        plan.export(plan.layout.execution.framework, folder)
        with open(os.path.join(folder, "train.json"), encoding="utf-8") as file:
            arguments = json.load(file)
        return {"dtype": "float32", **arguments}, [f"{key}: {value}" for key, value in arguments.items() if key not in KNOWN]
    import yaml
    plan.export("trl", folder)
    with open(os.path.join(folder, "sft.yaml"), encoding="utf-8") as file:
        recipe = yaml.safe_load(file)
    adapters = {name: recipe[key] for name in ADAPTERS for key in (name, f"lora_{name}") if key in recipe}
    other = [f"{key}: {value}" for key, value in recipe.items() if key not in KNOWN | KNOWN_OF_TRL and VALUES.get(key) != value]
    name = recipe["model_name_or_path"]
    return {"dtype": "float32", **recipe, "config_name": "config.json" if name == "." else name, "block_size": recipe["max_length"],
            "activation_checkpointing": recipe["gradient_checkpointing"], "adapters": adapters}, other


def measured(plan: Any) -> List[Dict[str, Any]]:
    training, execution = plan.layout.training, plan.layout.execution
    used = {"peft": _adapts(plan), "bitsandbytes": _adapts(plan) and training.frozen_format == "nf4", "trl": execution.loss == "chunked"}
    for package, version in PACKAGES.items():
        if used[package] and importlib.util.find_spec(package) is None:
            raise wrong(f"plan for {execution.framework}", f"no package {package} in this Python", f"{package} {version}", f"pip install {package}")
    with tempfile.TemporaryDirectory() as folder:
        arguments, other = _arguments(plan, folder)
        other += ["context ranks"] * (plan.layout.context > 1) + ["weights in the host's memory"] * plan.layout.offload_optimizer
        if other:
            raise wrong(f"plan for {plan.layout.execution.framework}", f"{other[0]}; MPT cannot verify that yet", "a plan without it",
                        "compare a run with mpt-plan diagnose")
        config = configured(plan, folder, arguments["config_name"])
    return [measure(0, plan.layout.data, plan.cluster.device.kind == "gpu", lambda: Trained(plan, arguments, config))]
