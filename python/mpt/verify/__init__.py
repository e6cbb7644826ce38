# SPDX-License-Identifier: Apache-2.0
"""Checks a plan by the framework's own code: one step of the ranks that differ, with tensors and groups that are fake, on this machine's CPU.

    import mpt
    print(mpt.verify("plan.json"))    # the module is the function, too

`python -m mpt.verify plan.json` does the same. It needs the plan's framework in this environment, and no GPU.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import types
from typing import Any, Dict, List, NamedTuple, Sequence

import mpt

from .._door import ask, wrong

# The module here, and the packages that it runs, with the versions that it was tested with.
TRAINER = ("_transformers", {"torch": "2.15", "transformers": "5.24", "accelerate": "1.15"})
FRAMEWORKS = {"pytorch": ("_pytorch", {"torch": "2.15"}), "transformers-fsdp": TRAINER, "transformers-ddp": TRAINER,
              "torchtitan": ("_torchtitan", {"torch": "2.15", "torchtitan": "0.3"}), "automodel": ("_automodel", {"torch": "2.15", "nemo_automodel": "0.7"})}
NOT_IN_IT = "Allocator, streams and NCCL's buffers are not in it."
# Fake tensors have no values, so what a router chooses is not known.
EVEN = "Each rank sends equally many tokens to each rank of experts."
# A row, the plan's field, and the measured kinds that it sums.
ROWS = {"weights": ("parameter_bytes", ["parameters", "gathered"]), "gradients": ("gradient_bytes", ["gradients"]),
        "optimizer states": ("optimizer_bytes", ["optimizer"]), "activations, transfers": ("activation_peak_bytes", ["activations", "narrowed"])}
# Of all collectives of a rank in a step: kinds of traffic that MPT prices, and the groups that have them. Messages between stages count where they are sent.
TRAFFIC = {"tensor ranks": (["tensor"], ["tensor"]), "context ranks": (["context"], ["context"]), "ranks of experts": (["expert"], ["experts"]),
           "weights and gradients": (["sharding", "gradients"], ["shards", "replicas", "shards of experts"]), "stages": (["transfer"], ["pipeline"])}


def _table(rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zip(row, widths))) for row in rows]


def _compared(rows: Sequence[Dict[str, Any]]) -> List[str]:
    return _table([("", "measured", "predicted", "ratio"), *((row["name"], _size(row["measured_bytes"]), _size(row["predicted_bytes"]),
                                                               f"{row['ratio']:.3f}" if row["ratio"] else "-") for row in rows)])


def _beside(name: str, measured: int, predicted: int) -> Dict[str, Any]:
    return {"name": name, "measured_bytes": measured, "predicted_bytes": predicted, "ratio": round(measured / predicted, 4) if predicted else None}


def _group(call: Dict[str, Any]) -> str:
    """The group of a collective. Ranks of experts may be all ranks that share weights: PyTorch has one name for both groups then."""
    group = str(call["group"])
    return group if group not in ("experts", "shards") else "experts" if call["kind"] == "all-to-all" else "shards"


def _size(size: float, digits: int = 4) -> str:
    unit, name = next((one for one in ((mpt._GIB, "GiB"), (1 << 20, "MiB")) if size >= one[0] / 10), (1024, "KiB"))
    return f"{size / unit:.{digits}g} {name}"


class Verified(NamedTuple):
    """A plan beside one step of its framework's code. `json`: the figures. Printed, it is what the command prints."""

    plan: Any
    measured: List[Dict[str, Any]]
    versions: Dict[str, str]

    def _traffic(self, one: Dict[str, Any], predicted: Dict[str, int]) -> List[Dict[str, Any]]:
        measured = {group: sum(call["bytes"] * call["count"] for call in one["collectives"] if _group(call) == group and call["kind"] != "recv")
                    for _, groups in TRAFFIC.values() for group in groups}
        rows = [_beside(name, sum(measured[group] for group in groups), sum(predicted[kind] for kind in kinds)) for name, (kinds, groups) in TRAFFIC.items()]
        return [row for row in rows if row["measured_bytes"] or row["predicted_bytes"]]

    def _rank(self, one: Dict[str, Any], traffic: Dict[str, Any]) -> Dict[str, Any]:
        fields = self.plan.json
        number = fields["schedule"]["rank_of_stage"][one["stages"][0]]
        predicted = dict(fields["prediction"]["memory"][number])
        predicted["activation_peak_bytes"] += predicted["transfer_buffer_bytes"]
        rows = [_beside(name, sum(one["bytes"][kind] for kind in kinds), predicted[field]) for name, (field, kinds) in ROWS.items()]
        rows += [_beside("peak", one["peak_bytes"], predicted["peak_bytes"])]
        rows += [_beside(f"saved by a forward of stage {stage}", size, fields["footprints"][stage]["saved_bytes"]) for stage, size in one["saved_bytes"].items()]
        return {**one, "own_parameter_bytes": one["bytes"]["parameters"], "beside": rows, "predicted_peak_bytes": predicted["peak_bytes"],
                "traffic": self._traffic(one, dict(zip(traffic["kinds"], traffic["ranks"][number])))}

    @property
    def json(self) -> Dict[str, Any]:
        traffic = ask({"do": "traffic", "plan": self.plan.json}).value
        ranks = [self._rank(one, traffic) for one in self.measured]
        return {"format": "mpt-verify", "version": 1, "model": self.plan.model.name, "cluster": self.plan.cluster.name,
                "framework": self.plan.layout.execution.framework, "checked_by": self.versions, "assumed": EVEN if self.plan.layout.expert > 1 else "", "not_in_it": NOT_IN_IT,
                "fullest": max(range(len(ranks)), key=lambda number: int(ranks[number]["peak_bytes"])), "ranks": ranks}

    def __str__(self) -> str:
        figures, lines = self.json, []
        for rank in figures["ranks"]:
            lines += [f"Rank {rank['rank']}, {rank['micro_batches_run']} micro-batches run: what lives at the peak, and the most of each kind that MPT predicts",
                      *_compared(rank["beside"]), ""]
        fullest = figures["ranks"][figures["fullest"]]
        lines += [f"Traffic of rank {fullest['rank']} in a step, and what MPT prices", *_compared(fullest["traffic"]), "",
                  f"Collectives of rank {fullest['rank']} in a step",
                  *_table([("kind", "group", "bytes of each", "count", "bytes of all")] + [
                      (one["kind"], f"{one['group']} ({one['ranks']})", f"{one['bytes']:,}", f"{one['count']:,}", _size(one["bytes"] * one["count"]))
                      for one in fullest["collectives"]])]
        return "\n".join([*lines, "", f"Checked by {', '.join(f'{package} {version}' for package, version in self.versions.items())}: "
                          f"{_size(fullest['peak_bytes'], 3)} of live tensors on the fullest rank, {_size(fullest['predicted_peak_bytes'], 3)} predicted; "
                          f"{sum(one['count'] for one in fullest['collectives']):,} collectives. {figures['assumed']}{' ' * bool(figures['assumed'])}{NOT_IN_IT}"])


def _loaded(plan: Any) -> Any:
    try:
        return plan if isinstance(plan, mpt.Plan) else mpt.load(plan)
    except (OSError, json.JSONDecodeError) as error:
        finding = (getattr(error, "strerror", None) or f"no JSON ({error})").replace("No such", "no such")
        raise wrong(str(plan), finding, "a plan.json", "make one: mpt-plan --model NAME --cluster NAME --global-batch N -o plan.json") from error


def verify(plan: Any) -> Verified:
    """What the framework of a plan, or of a path of one, holds and sends in one step, beside MPT's prediction."""
    held = _loaded(plan)
    name, precision = held.layout.execution.framework, held.layout.precision
    if name not in FRAMEWORKS:
        raise wrong("plan", f"framework {name}; MPT cannot verify {name} yet", ", ".join(FRAMEWORKS), "plan again with --framework pytorch")
    if precision not in ("bf16", "fp16", "fp32") or precision == "fp32" and held.cluster.device.kind == "gpu":
        raise wrong("plan", f"precision {precision}; MPT cannot verify {precision} on this cluster yet", "bf16", "plan again with --precision bf16")
    module, packages = FRAMEWORKS[name]
    for package, version in packages.items():
        if importlib.util.find_spec(package) is None:
            raise wrong(f"plan for {name}", f"no package {package} in this Python", f"{package} {version}", f"pip install {package}")
    return Verified(held, importlib.import_module(f"mpt.verify.{module}").measured(held), {package: importlib.metadata.version(package).split("+")[0] for package in packages})


sys.modules[__name__].__class__ = type("_Callable", (types.ModuleType,), {"__call__": lambda _, plan: verify(plan)})
