# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge: its recipe of the model, changed by the exported apply(), goes through what pretrain() does before it allocates.

Recipes take the model's sizes from a Hugging Face configuration. The hub is out of reach, so the files under tests/models/configs stand
in for it; sizes of models that have no file there come from the plan.
"""

import importlib
import importlib.util
import json
import os

from judging import judge

import stubs  # noqa: E402

stubs.use("transformer_engine", "transformer_engine_torch", "nvidia_resiliency_ext", "modelopt", "megatron.energon", "diffusers")
from megatron.bridge import AutoBridge  # noqa: E402
from megatron.bridge.training.config import runtime_config_update  # noqa: E402
from megatron_fields import compare_layout, compare_model  # noqa: E402
from transformers import AutoConfig  # noqa: E402

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/configs")
RECIPES = {
    "llama3-8b": ("llama.llama3", "llama31_8b_pretrain_config", "meta-llama--Meta-Llama-3.1-8B"),
    "llama3-70b": ("llama.llama3", "llama31_70b_pretrain_config", "meta-llama--Meta-Llama-3.1-70B"),
    "llama3-405b": ("llama.llama3", "llama31_405b_pretrain_config", "meta-llama--Meta-Llama-3.1-70B"),
    "qwen3-30b-a3b": ("qwen.qwen3_moe", "qwen3_30b_a3b_pretrain_config", "Qwen--Qwen3-30B-A3B"),
    "deepseek-v3": ("deepseek.deepseek_v3", "deepseek_v3_pretrain_config", "deepseek-ai--DeepSeek-V3"),
    "gpt-oss-20b": ("gpt_oss.gpt_oss", "gpt_oss_20b_pretrain_config", "openai--gpt-oss-20b"),
}


def sizes(file, model):
    """The Hugging Face configuration, with the plan's sizes where the file is of a smaller model."""
    with open(os.path.join(CONFIGS, file + ".json"), encoding="utf-8") as stream:
        values = json.load(stream)
    values.update(hidden_size=model["hidden"], num_hidden_layers=model["layers"], intermediate_size=values["intermediate_size"]
                  if model.get("moe") else model["ffn_hidden"], num_attention_heads=model["heads"])
    return AutoConfig.for_model(values.pop("model_type"), **values)


def recipe(c):
    name = c.model["name"]
    module, function, file = RECIPES[name]
    AutoBridge.from_hf_pretrained = classmethod(lambda cls, path, **_: cls.from_hf_config(sizes(file, c.model)))
    return getattr(importlib.import_module(f"megatron.bridge.recipes.{module}"), function)()


def exported(folder):
    spec = importlib.util.spec_from_file_location("mpt_layout", os.path.join(folder, "mpt_layout.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(folder, c):
    stubs.gpu(c.plan["cluster"]["device"]["name"])
    os.environ.update(RANK="0", WORLD_SIZE=str(c.ranks), LOCAL_RANK="0")
    module = exported(folder)
    name = RECIPES[c.model["name"]][1]
    c.same("recipe in the instructions", True, name in module.__doc__ or name.replace("llama31", "llama3") in module.__doc__)
    config = module.apply(recipe(c))
    runtime_config_update(config)
    c.same("data", c.layout["data"], config.data_parallel_size)
    c.same("micro_batch", c.layout["micro_batch"], config.train.micro_batch_size)
    c.same("global_batch", c.workload["global_batch"], config.train.global_batch_size)
    c.same("sequence", c.workload["sequence"], config.dataset.seq_length)
    c.same("sequence of the model", c.workload["sequence"], config.model.seq_length)
    c.same("tied_embeddings", c.model["tied_embeddings"], config.model.share_embeddings_and_output_weights)
    c.same("order", c.layout["order"] == "data_outermost", bool(config.dist.use_tp_pp_dp_mapping))
    c.same("offload_optimizer", c.layout["offload_optimizer"], bool(config.optimizer.optimizer_cpu_offload))
    compare_model(c, config.model)
    compare_layout(c, config.model, config.ddp)


# Imports all model families here, so that the process of each plan need not.
AutoBridge.from_hf_config(AutoConfig.for_model("llama", architectures=["LlamaForCausalLM"]))
judge(check)
