# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge: its recipe of the model, changed by the exported apply(), goes through what pretrain() does before it allocates."""

import importlib
import importlib.util
import os
import re
import sys

import hub
from judging import judge

import stubs  # noqa: E402

stubs.use("transformer_engine", "transformer_engine_torch", "nvidia_resiliency_ext", "modelopt", "megatron.energon", "diffusers")
from megatron.bridge import AutoBridge  # noqa: E402
from megatron.bridge.training.config import runtime_config_update  # noqa: E402
from megatron.bridge.training.tokenizers.tokenizer import build_tokenizer  # noqa: E402
from megatron_fields import compare_layout, compare_model, compare_optimizer, compare_yarn, queues_of_launches  # noqa: E402
from transformers import AutoConfig  # noqa: E402


def recipe(c, text):
    """The recipe that the file's own instructions name."""
    family, name = re.search(r"from (megatron\.bridge\.recipes\.\S+) import (\S+)", text).groups()
    AutoBridge.from_hf_pretrained = classmethod(lambda cls, path, **_: cls.from_hf_config(hub.configuration(path, c.model)))
    return getattr(importlib.import_module(family), name)()


def exported(folder):
    spec = importlib.util.spec_from_file_location("mpt_layout", os.path.join(folder, "mpt_layout.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare_positions(c, model):
    scaling = c.model.get("rotary_scaling") or {}
    kind = {"rotary": "rope", "learned": "learned_absolute"}.get(c.model["position"], "none")
    yarn = scaling.get("kind") in ("yarn", "other") and c.model["attention"] != "latent"
    c.same("vocab", c.model["vocab"], model.vocab_size)
    c.same("position", "yarn" if yarn else kind, model.position_embedding_type)
    if kind != "rope":
        return
    c.same("rotary_base", float(c.model["rotary_base"]), float(model.rotary_base))
    c.same("rotary_fraction", c.model["rotary_fraction"], model.rotary_percent)
    c.same("Llama 3's scaling", scaling.get("kind") == "llama3", bool(model.rope_scaling))
    if scaling.get("kind") == "llama3":
        c.same("rotary_scaling.factor", scaling["factor"], float(model.rope_scaling_factor))
    c.same("linear scaling of positions", scaling["factor"] if scaling.get("kind") == "linear" else None, model.seq_len_interpolation_factor)
    if yarn:
        compare_yarn(c, model)


def compare_trial(c, folder):
    """The exported script of a short run, up to its first step: made-up data, and nothing read or written."""
    sys.path.insert(0, folder)
    config = importlib.import_module("mpt_bridge_trial").trial(50)
    runtime_config_update(config)
    c.same("steps of a trial", 50, config.train.train_iters)
    c.same("data, checkpoints and evaluation of a trial", [None, None, None, 0],
           [config.dataset.blend, config.checkpoint.save, config.checkpoint.load, config.validation.eval_iters])
    c.same("words of a trial", c.model["vocab"], build_tokenizer(config.tokenizer).vocab_size)


def check(folder, c):
    stubs.gpu(c.plan["cluster"]["device"]["name"])
    os.environ.update(RANK="0", WORLD_SIZE=str(c.ranks), LOCAL_RANK="0")
    module = exported(folder)
    config = module.apply(recipe(c, module.__doc__))
    if config.peft is None:
        compare_trial(c, folder)
    else:  # the user's own
        config.checkpoint.pretrained_checkpoint = folder
        targets = {"qkv": "linear_qkv", "output": "linear_proj", "up": "*.mlp.linear_fc1", "down": "*.mlp.linear_fc2"}
        wanted = c.layout["training"]["adapter_targets"]
        c.same("targets of adapters", sorted(wanted), sorted(name for name, module in targets.items() if module in config.peft.target_modules))
    c.same("rank of adapters", c.layout.get("training", {}).get("adapter_rank", 0), 0 if config.peft is None else config.peft.dim)
    os.environ.update({name: str(value) for name, value in config.env_vars.items() if name in ("NVTE_CPU_OFFLOAD_V1", "NCCL_ALGO")})
    runtime_config_update(config)
    c.same("data", c.layout["data"], config.data_parallel_size)
    c.same("micro_batch", c.layout["micro_batch"], config.train.micro_batch_size)
    c.same("global_batch", c.workload["global_batch"], config.train.global_batch_size)
    c.same("sequence", c.workload["sequence"], config.dataset.seq_length)
    c.same("sequence of the model", c.workload["sequence"], config.model.seq_length)
    c.same("tied_embeddings", c.model["tied_embeddings"], config.model.share_embeddings_and_output_weights)
    c.same("order", c.layout["order"] == "data_outermost", bool(config.dist.use_tp_pp_dp_mapping))
    queues = config.env_vars.get("CUDA_DEVICE_MAX_CONNECTIONS")
    c.same("queues of launches", queues_of_launches(c), None if queues is None else str(queues))
    compare_optimizer(c, config.optimizer)
    compare_positions(c, config.model)
    compare_model(c, config.model)
    compare_layout(c, config.model, config.ddp)


# Imports all model families here, so that the process of each plan need not.
AutoBridge.from_hf_config(AutoConfig.for_model("llama", architectures=["LlamaForCausalLM"]))
judge(check)
