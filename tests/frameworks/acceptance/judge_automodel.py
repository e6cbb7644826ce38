# SPDX-License-Identifier: Apache-2.0
"""NeMo AutoModel: its recipe sets up training from automodel.yaml, on ranks of a fake process group and with weights on no device."""

import contextlib
import logging
import os
import sys
import tempfile
import types
import unittest.mock

import hub
from judging import apart, judge, verdict_of

import stubs  # noqa: E402

stubs.use()
stubs.untuned_kernels()
stubs.older_fsdp()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from nemo_automodel.components.checkpoint.checkpointing import Checkpointer  # noqa: E402
from nemo_automodel.components.models.common.utils import BackendConfig  # noqa: E402
from nemo_automodel.components.config.loader import load_yaml_config  # noqa: E402
from nemo_automodel.recipes.llm import train_ft  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

logging.disable(logging.CRITICAL)

MODULE_TO = torch.nn.Module.to


def change_type(module, *arguments, **options):
    """Module.to() without its move to a device."""
    types = [one for one in (*arguments, options.get("dtype")) if isinstance(one, torch.dtype)]
    return MODULE_TO(module, dtype=types[0]) if types else module


class DotProductAttention(torch.nn.Module):
    """Stands for Transformer Engine's, which has no weights."""

    def __init__(self, num_attention_heads, *_, num_gqa_groups=None, **__):
        super().__init__()
        self.num_attention_heads, self.num_gqa_groups = num_attention_heads, num_gqa_groups or num_attention_heads

    def set_context_parallel_group(self, *_, **__):
        pass

    set_tensor_parallel_group = set_context_parallel_group


@contextlib.contextmanager
def with_transformer_engine(context):
    """Context ranks need its attention, which is the default where it is installed and PyTorch finds a GPU."""
    names = ["transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.attention"]
    modules = {name: types.ModuleType(name) for name in names}
    modules[names[-1]].DotProductAttention = DotProductAttention
    default = {"attn": "te"} if context > 1 else {}
    with unittest.mock.patch.dict(sys.modules, modules), unittest.mock.patch("torch.cuda.Stream"), \
            unittest.mock.patch.dict(BackendConfig.__init__.__kwdefaults__, default):
        yield


@contextlib.contextmanager
def without_gpu():
    """Weights stay on no device; checkpoints have no groups of their own; a GPU's memory is not looked at."""
    with contextlib.ExitStack() as stack:
        for target in ("torch.cuda.reset_peak_memory_stats", "torch.cuda.empty_cache",
                       "nemo_automodel.components.checkpoint.checkpointing._new_gloo_process_group",
                       "nemo_automodel.components.distributed.utils._barrier_with_timeout",
                       "nemo_automodel._transformers.infrastructure.print_trainable_parameters",
                       "nemo_automodel.components.distributed.pipelining.functional._warmup_pipeline_stage_neighbors"):
            stack.enter_context(unittest.mock.patch(target, lambda *_, **__: None))
        stack.enter_context(unittest.mock.patch("nemo_automodel.components.quantization.fp8._has_cuda_capability",
                                                lambda *least: torch.cuda.get_device_capability() >= least))
        stack.enter_context(unittest.mock.patch.object(torch.nn.Module, "to", change_type))
        stack.enter_context(unittest.mock.patch.object(torch.nn.Module, "to_empty", lambda module, *_, **__: module))
        stack.enter_context(unittest.mock.patch.object(Checkpointer, "initialize_model_weights", lambda *_, **__: None))
        yield


def compare_sizes(c, recipe):
    layout, mesh = c.layout, recipe.mesh_context
    c.same("tensor", layout["tensor"], mesh.tp_size)
    c.same("pipeline", layout["pipeline"], mesh.pp_size)
    c.same("context", layout["context"], mesh.cp_size)
    c.same("expert", layout["expert"], mesh.ep_size)
    if mesh.device_mesh is not None:
        c.same("data", layout["data"], mesh.dp_size)
        c.same("replicas of the shards", c.replicas // layout["shard"] if layout["zero"] > 0 else 1, mesh.dp_replicate_size)
    scheduler, dataset = recipe.step_scheduler, recipe.cfg.get("dataset")
    c.same("sequence", c.workload["sequence"], dataset.seq_len)
    c.same("vocab of the data", c.model["vocab"], dataset.vocab_size)
    c.same("global_batch", c.workload["global_batch"], recipe.cfg.step_scheduler.global_batch_size)
    if layout["pipeline"] > 1:
        c.same("micro_batch", layout["micro_batch"], recipe.pipeline_config.pp_microbatch_size)
        c.same("micro_batches", c.micro_batches, recipe.pipeline_config.pp_batch_size // recipe.pipeline_config.pp_microbatch_size)
        c.same("steps of accumulation around the pipeline", 1, scheduler.grad_acc_steps)
        c.same("sequence of the pipeline", c.workload["sequence"], recipe.pipeline_config.pp_seq_len)
    else:
        c.same("micro_batch", layout["micro_batch"], recipe.cfg.get("step_scheduler.local_batch_size"))
        c.same("micro_batches", c.micro_batches, scheduler.grad_acc_steps)


def compare_model(c, recipe):
    """The model as built: its configuration and its weights."""
    part = recipe.model_parts[0]
    model, config = c.model, getattr(part, "module", part).config.get_text_config()  # DDP wraps the model
    c.same("layers", model["layers"], config.num_hidden_layers)
    c.same("hidden", model["hidden"], config.hidden_size)
    c.same("heads", model["heads"], config.num_attention_heads)
    c.same("vocab", model["vocab"], config.vocab_size)
    c.same("tied_embeddings", model["tied_embeddings"], bool(config.tie_word_embeddings))
    c.same("norm_epsilon", model["norm_epsilon"], next(
        (getattr(config, name) for name in ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps") if hasattr(config, name)), 1e-5))
    if not getattr(config, "is_heterogeneous", False) and hasattr(config, "num_key_value_heads"):
        c.same("kv_heads", model["kv_heads"], config.num_key_value_heads)
    rotary = getattr(config, "rope_parameters", None)
    if rotary and "rope_theta" in rotary:  # otherwise they differ by kind of layer
        c.same("rotary_base", model["rotary_base"], float(rotary["rope_theta"]))
        scaling = model.get("rotary_scaling") or {"kind": "default", "factor": None}
        kind = {"other": "yarn"}.get(scaling["kind"], scaling["kind"])
        c.same("rotary_scaling", [kind, scaling["factor"]], [rotary["rope_type"], rotary.get("factor")])
    if model.get("moe"):
        moe = model["moe"]
        c.same("moe.experts", moe["experts"], next(getattr(config, name) for name in ("num_experts", "num_local_experts", "n_routed_experts")
                                                   if hasattr(config, name)))
        c.same("moe.experts_per_token", moe["experts_per_token"], config.num_experts_per_tok)
    c.same("dropout", c.execution["dropout"], any((getattr(config, name, 0.0) or 0.0) > 0 for name in ("attention_dropout", "resid_pdrop")))


def compare_weights(c, recipe):
    """How FSDP holds the weights, and what it computes in."""
    layout, precision = c.layout, c.layout["precision"]
    other, meshes, resharded, compute = set(), set(), set(), set()
    for part in recipe.model_parts:
        adapts = c.layout.get("training", {}).get("adapter_rank", 0) > 0  # weights are then as the checkpoint's
        # Two numbers a head of mixers (_fp32_params) and routers (mlp.gate) stay in fp32, whatever the recipe says.
        other |= {name for name, weight in part.named_parameters()
                  if "._fp32_params." not in name and not name.endswith(".mlp.gate.weight") and weight.dtype != (torch.bfloat16 if adapts or c.execution["weight_bytes"] == 2 else torch.float32)}
        frozen = {name for name, weight in part.named_parameters() if weight.requires_grad != ("lora_" in name)}
        c.same("weights that are trained or frozen otherwise", [], sorted(frozen) if adapts else [])
        in_experts = any(".experts.lora_" in name for name, _ in part.named_parameters())
        c.same("adapters in experts", "experts" in c.layout.get("training", {}).get("adapter_targets", []), in_experts)
        meshes |= {weight.device_mesh[axis].size() for weight in part.parameters() if isinstance(weight, DTensor)
                   for axis, placement in zip(weight.device_mesh.mesh_dim_names, weight.placements)
                   if isinstance(placement, Shard) and axis not in ("tp", "ep", "ep_shard")}
        for name, module in part.named_modules():
            group = module._get_fsdp_state()._fsdp_param_group if isinstance(module, FSDPModule) else None
            if group is not None and is_layer(name):  # the embedding and the head stay gathered for the backward
                resharded.add(group.post_forward_mesh_info is not None)
                compute.add(module._get_fsdp_state()._mp_policy.param_dtype)
    c.same("weights in other types than the plan has", [], sorted(other))
    if layout["zero"] > 0 and layout["shard"] > 1:
        c.same("shard", [layout["shard"]], sorted(meshes))
        c.same("zero", [layout["zero"] == 3], sorted(resharded))
    narrow = torch.float32 if precision == "fp32" else torch.bfloat16
    if compute:
        c.same("type of compute", [str(narrow)], sorted(str(one) for one in compute))
        c.same("gradients summed in fp32", torch.float32, recipe.distributed_config.mp_policy.reduce_dtype)
    else:  # one rank, or DDP
        c.same("type of compute", narrow, recipe.distributed_config.autocast_dtype or torch.float32)
    quantized = any("Float8" in type(module).__name__ for part in recipe.model_parts for module in part.modules())
    c.same("products in 8 bits", precision == "fp8", quantized)


def is_layer(name):
    parent, _, last = name.rpartition(".")
    return last.isdigit() and parent.endswith(("layers", ".h", ".blocks"))


def recomputes(layer):
    return "Checkpoint" in type(layer).__name__ or any("Checkpoint" in type(child).__name__ for child in layer.modules())


def compare_execution(c, recipe):
    layout, config = c.layout, recipe.distributed_config
    layers = [layer for part in recipe.model_parts for name, layer in part.named_modules() if is_layer(name)]
    c.same("layers recomputed", [layout["recompute"] == "full"], sorted({recomputes(layer) for layer in layers}))
    if layout["zero"] > 0:
        c.same("sequence_parallel", layout["sequence_parallel"], bool(config.sequence_parallel))
        c.same("overlap_tensor", layout["overlap_tensor"], bool(config.enable_async_tensor_parallel))
        c.same("gradients reduced after the last micro-batch", layout["pipeline"] > 1, bool(config.defer_fsdp_grad_sync))


def stages_of(c, recipe):
    """[stage, its layers, whether it embeds, whether it has the head] of this rank."""
    found = []
    for stage in recipe.pp.info.stages:
        model = stage.submod
        inner = getattr(model, "model", model)
        inner = getattr(inner, "language_model", inner)
        found.append([stage.stage_index, len(inner.layers), getattr(inner, "embed_tokens", None) is not None,
                      getattr(model, "lm_head", None) is not None])
    return found


def set_up(folder, c, rank):
    """The recipe after setup(), in an empty folder."""
    stubs.gpu(c.plan["cluster"]["device"]["name"])
    dist.init_process_group("fake", rank=rank, world_size=c.ranks, store=FakeStore())
    config = load_yaml_config(os.path.join(folder, "automodel.yaml"))
    name = config.get("model.config")
    if not os.path.exists(name):
        os.makedirs(name)
        hub.configuration(name, c.model).save_pretrained(name)
    recipe = train_ft.TrainFinetuneRecipeForNextTokenPrediction(config)
    with without_gpu(), with_transformer_engine(c.layout["context"]):
        recipe.setup()
    return recipe


def check_rank(folder, c, rank):
    with tempfile.TemporaryDirectory() as scratch:
        if os.path.exists(os.path.join(folder, "config.json")):
            os.symlink(os.path.join(folder, "config.json"), os.path.join(scratch, "config.json"))
        os.chdir(scratch)
        recipe = set_up(folder, c, rank)
        compare_sizes(c, recipe)
        compare_model(c, recipe)
        compare_weights(c, recipe)
        compare_execution(c, recipe)
        if c.layout["pipeline"] == 1:
            return
        schedule = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
                    "zb-interleaved": "ScheduleInterleavedZeroBubble", "zb-v": "ScheduleZBVZeroBubble"}
        c.same("schedule", schedule.get(c.layout["schedule"]), type(recipe.pp.info.schedule).__name__)
        last = c.stages - 1
        for stage, layers, embeds, heads in stages_of(c, recipe):
            c.same(f"layers of stage {stage}", c.layers_of_stages[stage], layers)
            c.same(f"embedding in stage {stage}", stage == 0, embeds)
            c.same(f"head in stage {stage}", stage == last, heads)


def check(folder, c):
    """The first and the last rank of the pipeline, each in a process of its own."""
    per_stage = c.ranks // c.layout["pipeline"]
    for rank in sorted({0, (c.layout["pipeline"] - 1) * per_stage}):
        verdict = apart(lambda: verdict_of(lambda comparison: check_rank(folder, comparison, rank), c.plan))
        if verdict["outcome"] == "refused":
            raise RuntimeError(f"rank {rank}: {verdict['message']}")
        c.compared += 1
        c.differences += [one for one in verdict["differences"] if one not in c.differences]


judge(check)
