# SPDX-License-Identifier: Apache-2.0
"""The parts of a plan that mpt.torch applies. Other parts are refused by name, and so are those that PyTorch's schedules train wrong."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Tuple

import torch
from torch.distributed.pipelining import Schedule1F1B, ScheduleDualPipeV, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble

from .._door import wrong

SCHEDULES: Dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B,
                             "zb-interleaved": ScheduleInterleavedZeroBubble, "zb-v": ScheduleZBVZeroBubble, "dualpipe-v": ScheduleDualPipeV}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WHOLE_BACKWARD = ("gpipe", "1f1b", "interleaved")  # all other schedules, also generated ones, split the backward


def keeps_every_second_product(layout: Dict[str, Any]) -> bool:
    """torchtitan's selective recompute."""
    return bool(layout.get("execution", {}).get("keeps_every_second_product"))


def core_again(layout: Dict[str, Any]) -> bool:
    """Selective recompute that runs only the attention core again."""
    return bool(layout["recompute"] == "selective" and not keeps_every_second_product(layout))


def _refused(layout: Dict[str, Any]) -> Dict[str, Tuple[bool, str]]:
    """The features that mpt.torch does not apply: whether the plan has it, and the remedy."""
    context = layout.get("context", 1)
    modules = sorted(name for name, on in (layout.get("selective") or {"core": True}).items() if on and name != "core")
    if not (layout.get("selective") or {}).get("core", True):
        modules.append("no attention core")
    sharded = layout.get("zero", 0) > 0 and (layout.get("shard") or layout["data"] * context) % context != 0
    return {"context ranks beside pipeline stages": (context > 1 and layout["pipeline"] > 1, "plan with pp=1 or cp=1"),
            "states shared out over a part of the context ranks": (sharded, "plan with cp=1"),
            "expert ranks": (layout.get("expert", 1) > 1, "plan with ep=1"),
            f"precision {layout['precision']}": (layout["precision"] not in TYPES, 'plan with precision="bf16"'),
            f"selective recompute of {', '.join(modules)}": (core_again(layout) and bool(modules), 'plan with recompute_modules=["core_attn"]'),
            "an optimizer in the host's memory": (bool(layout.get("offload_optimizer")), 'plan with offload=False'),
            "adapters": ((layout.get("training") or {}).get("adapter_rank", 0) > 0, "plan without lora")}


def _refused_by_schedule(layout: Dict[str, Any]) -> Dict[str, Tuple[bool, str, str]]:
    """Errors of schedules with separate weight gradients: whether the plan has it, the reason, and the remedy.

    torch 2.15.0: stage_backward_input (distributed/pipelining/_backward.py) looks for the graph of the weights that submod.parameters()
    names (stage.py, backward_maybe_with_nosync). After ZeRO 3 has resharded a layer these are its shares, which are in no graph, so its
    gradients are lost without an error. A checkpoint runs its layer again for each group of weights. A selective checkpoint raises
    there."""
    name = layout["schedule"]
    apart = layout["pipeline"] > 1 and name not in WHOLE_BACKWARD
    products = apart and layout["recompute"] == "selective" and keeps_every_second_product(layout)
    return {f"ZeRO 3 with {name}": (apart and layout.get("zero", 0) == 3, "PyTorch loses the gradients of layers that ZeRO 3 has put away after "
                                    "forward, without an error", 'plan with zero=2 or 0, or with schedule="1f1b"'),
            f"full recompute with {name}": (apart and layout["recompute"] == "full", "PyTorch runs a layer again for each of its weights, and takes up "
                                            "to 2.8 times the plan's time", 'plan with recompute="none", or with schedule="1f1b"'),
            f"selective recompute by operators with {name}": (products, "PyTorch raises at the first gradient of a weight",
                                                              'plan with recompute="none", or with schedule="1f1b"')}


def _refuse_other_rounds(fields: Dict[str, Any]) -> None:
    """For an interleaved order: PyTorch's classes take max(1, m // p) rounds of equal numbers of micro-batches (schedules.py,
    microbatches_per_round)."""
    name, count, ranks = fields["layout"]["schedule"], fields["schedule"]["micro_batches"], fields["layout"]["pipeline"]
    if ranks == 1 or "interleaved" not in name:
        return
    size = count // max(1, count // ranks)
    first_chunk = [action.startswith("0F") for action in fields["schedule"]["rows"]["0"].split()]
    if [*first_chunk, False].index(False) < size:
        raise wrong("plan", f"{name} with {count} micro-batches on {ranks} ranks: PyTorch takes rounds of {size}, and holds more activations than the plan",
                    "an order that PyTorch's class has", f'plan with framework="pytorch", or with a multiple of {ranks} micro-batches')


def checked(plan: Any) -> Dict[str, Any]:
    """The fields of plan.json, for a plan that mpt.torch applies."""
    if isinstance(plan, (str, os.PathLike)):
        with open(plan, encoding="utf-8") as file:
            plan = json.load(file)
    fields: Dict[str, Any] = plan if isinstance(plan, dict) else plan.json
    layout = fields["layout"]
    exported = 'export the plan: plan.export("pytorch", folder)'
    for what, (is_there, reason, remedy) in _refused_by_schedule(layout).items():
        if is_there:
            raise wrong("plan", f"{what}: {reason}", "a schedule whose backward is whole, or a layout that is right without", remedy)
    _refuse_other_rounds(fields)
    refused = _refused(layout)
    refused[f"schedule {layout['schedule']}"] = (layout["pipeline"] > 1 and layout["schedule"] not in SCHEDULES, f"plan with schedule={sorted(SCHEDULES)}")
    for what, (is_there, remedy) in refused.items():
        if is_there:
            raise wrong("plan", what, "what mpt.torch applies: tensor, context, pipeline and data ranks, ZeRO, recompute, fp32 or bf16",
                        f"{remedy}, or {exported}")
    return fields
