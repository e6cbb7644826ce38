# SPDX-License-Identifier: Apache-2.0
"""How the model is split over ranks."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

from model import Model  # part
from plan import AXES, AXIS, DEVICE, MESH, MICRO_BATCH, MICRO_BATCHES, MODEL, RESHARD_AFTER_FORWARD, ROWS, SCHEDULE, SEQUENCE, SEQUENCE_PARALLEL, STAGES, TYPE  # part

# body
# How it is split over ranks ----------------------------------------------------------------------------------------------------------


# if tensor
def split_over_tensor_ranks(model, mesh):
    spread = Shard(1) if SEQUENCE_PARALLEL else Replicate()
    plan = {"embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=spread),
            "lm_head": ColwiseParallel(input_layouts=spread, output_layouts=Shard(-1), use_local_output=False)}
    for number in model.layers:
        at = f"layers.{number}."
        for block, columns, rows in (("self_attn", ("q_proj", "k_proj", "v_proj"), "o_proj"), ("mlp", ("gate_proj", "up_proj"), "down_proj")):
            plan[at + block] = PrepareModuleInput(input_layouts=spread, desired_input_layouts=Replicate())
            plan |= {f"{at}{block}.{name}": ColwiseParallel() for name in columns}
            plan[f"{at}{block}.{rows}"] = RowwiseParallel(output_layouts=spread)
        # if query key norm
        # Heads are split, so each rank has a part of the gradients of these norms.
        plan |= {f"{at}self_attn.{name}": SequenceParallel(sequence_dim=2, use_local_output=True) for name in ("q_norm", "k_norm")}
        # end
        if SEQUENCE_PARALLEL:
            plan |= {at + name: SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
    if SEQUENCE_PARALLEL:
        plan |= {"positions": SequenceParallel(use_local_output=True), "norm": SequenceParallel()}
    present = {name for name, _ in model.named_modules()}
    parallelize_module(model, mesh["tp"], {name: style for name, style in plan.items() if name in present})


# end
def tie(model):
    """Embedding and head are one weight; splitting and allocating make two of it."""
    if MODEL["tied_embeddings"]:
        model.lm_head.weight = model.embed_tokens.weight


# if shards
def dimension_to_cut(weight, ranks):
    """FSDP deals out whole rows and pads them: 8 experts on 64 ranks would leave an eighth on each of 8 ranks and move 8 times the
    bytes. Weights of few rows are cut along the first other dimension that the ranks divide."""
    rows = weight.shape[0]
    if isinstance(weight, DTensor) or -(-rows // ranks) * ranks <= 1.05 * rows:
        return Shard(0)
    return Shard(next((d for d, size in enumerate(weight.shape) if size % ranks == 0), 0))


def shard(model, mesh):
    """Layers one by one, and embedding and head apart, which as one group would be gathered together. Tied ones are one weight."""
    policy = MixedPrecisionPolicy(param_dtype=TYPE, reduce_dtype=torch.float32)
    ranks = mesh["shard"].size()
    # Over two dimensions FSDP2 keeps all scattered gradients to the end of a backward, for the sum over replicas.
    options = {"mesh": mesh["dp_replicate", "shard"] if AXIS["dp_replicate"] > 1 else mesh["shard"], "mp_policy": policy,
               "reshard_after_forward": RESHARD_AFTER_FORWARD, "shard_placement_fn": lambda weight: dimension_to_cut(weight, ranks)}
    for layer in model.layers.values():
        fully_shard(layer, **options)
    ends = [getattr(model, name) for name in ("embed_tokens", "lm_head") if hasattr(model, name)]
    for group in [ends] if MODEL["tied_embeddings"] and len(ends) == 2 else [[end] for end in ends]:
        fully_shard(group, **options)
    fully_shard(model, **options)


# end
def make_model(stage, mesh):
    with torch.device("meta"):
        model = Model(stage, mesh)
    # if tensor
    split_over_tensor_ranks(model, mesh)
    # end
    tie(model)
    # if shards
    shard(model, mesh)
    # end
    model.to_empty(device=DEVICE)
    tie(model)
    return model


def make_mesh():
    mesh = init_device_mesh(DEVICE.type, MESH, mesh_dim_names=AXES)
    mesh["dp_shard", "cp"]._flatten("shard")
    return mesh


# if pipeline
def make_schedule(models, mesh, clock, loss_of):
    group = mesh["pp"].get_group()
    own = SEQUENCE // AXIS["cp"]
    tokens = torch.empty(MICRO_BATCH, own, dtype=torch.int64, device="meta")
    rows = own // (AXIS["tp"] if SEQUENCE_PARALLEL else 1)
    hidden = torch.empty(MICRO_BATCH, rows, MODEL["hidden"], dtype=TYPE, device="meta", requires_grad=True)
    loss = torch.empty(1, device="meta", requires_grad=True)
    stages = []
    for stage, model in models.items():
        ends = {"input_args": tokens if stage == 0 else hidden, "output_args": loss if stage == STAGES - 1 else hidden}
        stages.append(PipelineStage(model, stage, STAGES, DEVICE, group=group, **ends))
        clock.watch(stages[-1])
    # if schedule class
    named = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "zb-interleaved": ScheduleInterleavedZeroBubble,
             "zb-v": ScheduleZBVZeroBubble, "dualpipe-v": ScheduleDualPipeV}
    one = SCHEDULE in ("gpipe", "1f1b")
    return named[SCHEDULE](stages[0] if one else stages, MICRO_BATCHES, loss_fn=loss_of, scale_grads=False)
    # end
    # if schedule rows
    schedule = _PipelineScheduleRuntime(stages, MICRO_BATCHES, loss_fn=loss_of, scale_grads=False)
    schedule.pipeline_order = {rank: [_Action.from_str(action) for action in row.split()] for rank, row in enumerate(ROWS)}
    schedule._prepare_schedule_with_comms(schedule.pipeline_order)
    return schedule
    # end


# end
