# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: its configuration class, its meshes and its pipeline module read the export as deepspeed.initialize() does."""

import importlib.util
import json
import os
import shutil
import tempfile
import types

from judging import judge

import stubs  # noqa: E402

stubs.use()
os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.module_inject.auto_ep_config import validate_autoep_config  # noqa: E402
from deepspeed.pipe import LayerSpec  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from training import compare_training, run_ranks  # noqa: E402
from transformers_fields import compare_model  # noqa: E402


class DecoderLayer(torch.nn.Module):
    """Stands for the decoder layer of a user's model."""


def exported_module(folder):
    spec = importlib.util.spec_from_file_location("mpt_deepspeed", os.path.join(folder, "mpt_deepspeed.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def handed_over(module, model):
    """What the exported engine() gives to deepspeed.initialize()."""
    real, given = deepspeed.initialize, {}
    deepspeed.initialize = lambda **options: given.update(options)
    try:
        module.engine(model, **({"loss_fn": None} if isinstance(model, list) else {}))
    finally:
        deepspeed.initialize = real
    return given


class Ulysses:
    """Stands for DeepSpeed's class; context_ranks_test.py runs that one."""

    @staticmethod
    def register_with_transformers(model, attention, ranks, micro_batch):
        return {"attention": attention, "ranks": ranks, "micro_batch": micro_batch}


class Model(torch.nn.Module):
    recomputes = False
    config = types.SimpleNamespace(_attn_implementation="flash_attention_2")

    def gradient_checkpointing_enable(self):
        self.recomputes = True


def compare_layers_of_stages(c, pipeline):
    """PipelineModule's own division of the layers."""
    kinds = [spec.typename for spec in pipeline._layer_specs]
    bounds = pipeline.parts
    held = [sum(kind is DecoderLayer for kind in kinds[start:end]) for start, end in zip(bounds, bounds[1:])]
    c.same("layers of stages", c.layers_of_stages, held)


def open_pipeline(c, module):
    specs = [LayerSpec(torch.nn.Identity)] + [LayerSpec(DecoderLayer) for _ in range(c.model["layers"])] + [LayerSpec(torch.nn.Identity)]
    given = handed_over(module, specs)
    pipeline = given["model"]
    c.same("pipeline", c.layout["pipeline"], pipeline.num_stages)
    c.same("data", c.layout["data"], pipeline.mpu().get_data_parallel_world_size())
    every = pipeline.activation_checkpoint_interval
    c.same("recompute", {"full": 1, "none": 0}.get(c.layout["recompute"]), every)
    compare_layers_of_stages(c, pipeline)
    return given, pipeline.mpu()


def open_model(c, module):
    model = Model()
    module.UlyssesSPAttentionHF = Ulysses
    given = handed_over(module, model)
    registered = {"attention": "flash_attention_2", "ranks": c.layout["context"], "micro_batch": c.layout["micro_batch"]}
    c.same("context ranks that the model gets", registered if c.layout["context"] > 1 else None, given.get("mpu"))
    c.same("recompute", c.layout["recompute"], "full" if model.recomputes else "none")
    c.same("pipeline", c.layout["pipeline"], 1)
    return given, None


def compare(c, config):
    layout, zero = c.layout, config.zero_config
    c.same("micro_batch", layout["micro_batch"], config.train_micro_batch_size_per_gpu)
    c.same("micro_batches", c.micro_batches, config.gradient_accumulation_steps)
    c.same("global_batch", c.workload["global_batch"], config.train_batch_size)
    c.same("zero", layout["zero"], int(zero.stage))
    c.same("shard", layout["shard"] if layout["zero"] > 0 else c.replicas, c.replicas)
    c.same("tensor", layout["tensor"], max(1, config.tensor_parallel_config.autotp_size))
    c.same("offload_optimizer", layout["offload_optimizer"], zero.offload_optimizer is not None)
    c.same("offloaded weights", None, zero.offload_param)
    if layout["zero"] > 0 and c.replicas > 1:
        c.same("overlap_gradient_reduce", layout["overlap_gradient_reduce"], bool(zero.overlap_comm))
    precision = "fp16" if config.float16_config.enabled else "bf16" if config.bfloat16_config.enabled else "fp32"
    c.same("precision", layout["precision"], precision)
    bytes_of = {"fp32": 4, "fp16": 2, "bf16": 2}
    planned = c.execution["gradient_bytes"]
    c.same("bytes of a summed gradient", 4 if precision == "fp32" else planned, bytes_of[config.grad_accum_dtype or precision])


def compare_experts(c, config):
    experts = config.expert_parallel_config
    c.same("expert", c.layout["expert"], experts.autoep_size if experts.enabled else 1)
    if experts.enabled:
        validate_autoep_config(experts, c.ranks, c.layout["pipeline"], c.layout["tensor"], c.layout["context"],
                               zero_stage=c.layout["zero"], zero_offload_optimizer=c.layout["offload_optimizer"])
        c.same("expert_split", 1, experts.expert_tensor_parallel_size)


def with_pytorchs_optimizer(folder, settings):
    """DeepSpeed's own optimizer for offload is C++ that takes minutes to compile; its documented key lets PyTorch's in."""
    if "offload_optimizer" not in settings["zero_optimization"]:
        return folder
    copy = os.path.join(tempfile.mkdtemp(), "export")
    shutil.copytree(folder, copy)
    with open(os.path.join(copy, "deepspeed.json"), "w", encoding="utf-8") as file:
        json.dump({**settings, "zero_force_ds_cpu_optimizer": False}, file)
    return copy


def compare_trial(c, folder):
    """The trial that mpt-plan prints, on CPU ranks; its script starts it as Megatron-Bridge's does, whose judge reads that."""
    c.same("steps in the log of a trial", [10, 20], run_ranks("trial_deepspeed.py", folder, c.ranks)["reports"])


def check(folder, c):
    os.chdir("/")
    dist.init_process_group("fake", rank=0, world_size=c.ranks, store=FakeStore())
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(c.ranks))
    stubs.plain_gloo()
    deepspeed.init_distributed(dist_backend="gloo", dist_init_required=False)
    module = exported_module(folder)
    c.same("sequence", c.workload["sequence"], module.SEQUENCE)
    given, unit = (open_pipeline if c.layout["pipeline"] > 1 else open_model)(c, module)
    with open(given["config"], encoding="utf-8") as file:
        settings = json.load(file)
    mesh = None
    if "sequence_parallel_size" in settings and "data_parallel_size" in settings:  # deepspeed/__init__.py asks so
        degrees = (settings["data_parallel_size"], settings["sequence_parallel_size"])
        mesh = deepspeed.comm.initialize_mesh_device(degrees, ("data_parallel", "sequence_parallel"))
        c.same("data", c.layout["data"], degrees[0])
    c.same("context", c.layout["context"], mesh.size(1) if mesh is not None else 1)
    c.same("context_method", "all_to_all" if c.layout["context"] > 1 else c.layout["context_method"], c.layout["context_method"])
    c.same("gradient_clipping, which a plan does not hold", False, "gradient_clipping" in settings)
    config = DeepSpeedConfig(settings, unit, mesh_device=mesh)
    compare(c, config)
    compare_experts(c, config)
    compare_model(c, folder, module.MODEL)
    if os.path.basename(folder).startswith("trained"):
        compare_training(c, "train_deepspeed.py", with_pytorchs_optimizer(folder, settings))
    if os.path.basename(folder) in ("trained-zero3", "tried-context"):
        compare_trial(c, folder)


judge(check)
