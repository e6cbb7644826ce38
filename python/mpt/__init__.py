# SPDX-License-Identifier: Apache-2.0
"""Plans how to split the training of large models over many GPUs: the planner of MPT.

    import mpt
    plan = mpt.plan(model="llama3-70b", cluster="dgx-h100:8", global_batch=512)
    print(plan)
    mpt.fits("llama3-8b", cluster="dgx-h100:1", dp=8, zero=3)

docs/python.md describes all of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import importlib
import itertools
import json
import math
import os
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from . import types
from ._door import Defect, Error, InputError, Problem, Progress, ask as _ask, opened as _opened, read_below, wrong as _wrong
from ._inputs import names as _names, request_of as _request_of, this_machine
from ._read import read as _read

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Comparison", "Days", "Defect", "Diagnosis", "Error", "Estimate", "Export", "Fit", "InputError", "Plan", "Problem", "Progress",
           "clusters", "compare", "data_version", "diagnose", "doctor", "estimate", "exports", "fits", "frameworks", "load", "models", "plan", "read_below", "recommend",
           "this_machine", "types"]

_GIB = float(1 << 30)
OnProgress = Optional[Callable[[Progress], Any]]
for _name, _field in {"tp": "tensor", "cp": "context", "pp": "pipeline", "dp": "data", "ep": "expert", "mbs": "micro_batch"}.items():
    setattr(types.Layout, _name, property(lambda layout, _field=_field: getattr(layout, _field) or 1))  # as in the short form


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return str(_ask({"do": "version"}).value["version"])
    if name in ("capture", "monitor", "torch", "verify"):  # imported on demand: mpt.torch needs PyTorch
        return importlib.import_module(f"mpt.{name}")
    raise AttributeError(f"module 'mpt' has no attribute '{name}'")


def data_version() -> str:
    """A digest of the tables that answers depend on: models, GPUs, kernels, frameworks, constants, published runs."""
    return str(_ask({"do": "version"}).value["data"])


def _frame(rows: Sequence[Dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError as missing:
        raise ImportError("data frames need pandas: pip install pandas") from missing
    return pandas.DataFrame(rows)


def _table(rows: Sequence[Dict[str, Any]]) -> str:
    """The rows as a table; columns of numbers are aligned to the right."""
    if not rows:
        return ""
    heads = list(rows[0])
    cells = [heads] + [[f"{row[head]:.4g}" if isinstance(row[head], float) else "-" if row[head] is None else str(row[head]) for head in heads]
                       for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    left = [isinstance(rows[0][head], str) for head in heads]
    return "\n".join("  ".join(cell.ljust(width) if on_left else cell.rjust(width) for cell, width, on_left in zip(line, widths, left)).rstrip()
                     for line in cells)


class Days(NamedTuple):
    """Days of a training: predicted, and the bounds of 8 in 10 cases. The bounds are None if no published run supports them."""

    predicted: float
    least: Optional[float]
    most: Optional[float]


class Export(NamedTuple):
    """A finished export: its target, its files, and a note to read before use. `warnings`: differences from the plan's training if the
    export was forced, or why it cannot run. `needs`: requirements other than the framework, such as packages."""

    to: str
    files: List[str]
    note: str
    warnings: List[str]
    needs: List[str]


class Plan(types.PlanFields):
    """A plan: the fields of plan.json, and methods that ask about them. Its text is mpt-plan's answer."""

    json: Dict[str, Any]
    text: str
    stopped: bool  # the search was stopped, and this is the best so far

    @classmethod
    def _of(cls, fields: Dict[str, Any], text: str = "", stopped: bool = False) -> "Plan":
        plan = _read(cls, fields)
        plan.json, plan.text, plan.stopped = fields, text, stopped
        return plan

    def __str__(self) -> str:
        return self.text or self.explain()

    def __repr__(self) -> str:
        return f"<mpt.Plan {self.model.name} on {self.cluster.name}: {self.step_time_s:.4g} s per step>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.report())}" sandbox="allow-scripts" style="width:100%;height:36em;border:0"></iframe>'

    @property
    def step_time_s(self) -> float:
        """The step time corrected by observed runs, if there are any. prediction.step_time_s is without them."""
        return self.corrected.layouts[0].step_time_s if self.corrected else self.prediction.step_time_s

    @property
    def tokens_per_s(self) -> float:
        return self.prediction.tokens_per_s * self.prediction.step_time_s / self.step_time_s

    @property
    def confidence(self) -> Optional[types.Confidence]:
        return self.corrected.layouts[0].confidence if self.corrected else self.prediction.confidence

    def days(self, tokens: float, goodput: float = 1.0) -> "Days":
        """Days of a whole training of this number of tokens, such as 1e12. `goodput`: the share of the time that trains; the rest is
        failures, saving and evaluation."""
        if isinstance(tokens, str) or not (0 < goodput <= 1 and 0 < tokens < math.inf):
            raise _wrong("days", f"{tokens} tokens, goodput {goodput}", "tokens above 0, such as 1e12, and a goodput above 0 and at most 1")
        sure = self.confidence
        days = lambda step_s: None if not step_s else tokens / (self.workload.global_batch * self.workload.sequence) * step_s / goodput / 86400
        return Days(days(self.step_time_s), days(sure.least_s) if sure else None, days(sure.most_s) if sure else None)

    @property
    def fit(self) -> "Fit":
        return Fit._of(self)

    @property
    def _explained(self) -> Dict[str, Any]:
        return dict(_ask({"do": "explain", "plan": self.json}).value)

    @property
    def mfu(self) -> float:
        """Model FLOP/s utilisation as predicted: the model's work, without recompute, in a share of the GPUs' peak."""
        return float(self._explained["mfu"])

    def explain(self) -> str:
        """The answer and its details, as `mpt-plan explain` prints them."""
        return str(self._explained["text"])

    def why_not(self, layout: str = "", *, profile: str = "", kernels: str = "", **degrees: Any) -> str:
        """Why the plan is not another one: why_not(tp=8, pp=4), or why_not("tp=8,pp=4")."""
        words = [layout] if layout else []
        for name, value in degrees.items():
            if isinstance(value, (list, tuple)):
                raise _wrong("why_not", f"{name}={value!r}"[:60], "one layout", "ask about each of them")
            words.append(f"{name.replace('_', '-')}={ {True: 'on', False: 'off'}[value] if isinstance(value, bool) else value}")
        if not words:
            raise _wrong("why_not", "nothing", "the layouts that are asked about, such as tp=8")
        return str(_ask({"do": "why_not", "plan": self.json, "layout": ",".join(words), "profile": profile, "kernels": kernels}).value["text"])

    def export(self, to: Union[str, Sequence[str]], folder: Union[str, "os.PathLike[str]"], *, force: bool = False) -> List[Export]:
        """Writes the plan as files of frameworks and launchers (mpt.exports()), like `mpt-plan export`. If the files would be another
        training than the plan, or could not run, they are written only with `force`."""
        targets = [to] if isinstance(to, str) else list(to)
        folder = os.fspath(folder)
        written = _ask({"do": "export", "plan": self.json, "to": targets, "folder": folder, "force": force}).value
        return [Export(one["to"], [os.path.join(folder, file["name"]) for file in one["files"]], one["note"], one["warnings"], one["needs"])
                for one in written]

    def diagnose(self, log: Any = None, **more: Any) -> "Diagnosis":
        return diagnose(self, log, **more)

    def report(self) -> str:
        """The report as one file of HTML."""
        return str(_ask({"do": "report", "plan": self.json}).value["html"])

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes plan.json, the input of mpt-plan and mpt-run, whole or not at all. A link keeps, and its target is replaced."""
        text = json.dumps(self.json, indent=1, ensure_ascii=False) + "\n"
        target = os.path.realpath(path)
        if os.path.exists(path) and not os.path.isfile(target):  # a pipe or device, such as /dev/stdout
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        beside = os.path.join(os.path.dirname(target), f".mpt-{secrets.token_hex(8)}.tmp")
        try:
            with open(beside, "x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if os.path.exists(target):
                shutil.copymode(target, beside)
            os.replace(beside, target)
        finally:
            with contextlib.suppress(OSError):  # it is there only where writing failed
                os.unlink(beside)

    def frame(self) -> Any:
        """The ranking as a data frame of pandas."""
        return _frame([{"layout": name, "step_time_s": row.step_time_s, "tokens_per_s": row.tokens_per_s,
                        "idle": row.bubble_share, "peak_gib": row.peak_bytes / _GIB,
                        "likely": row.confidence.fits if row.confidence else None}
                       for name, row in zip(self._explained["layouts"], self.ranking)])


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a layout fits. True if the fullest GPU's memory is enough to the last byte, or if an observed run fitted."""

    likely: Optional[float]  # probability that memory does not run out; None if no published run supports one
    peak_gib: float  # of the fullest GPU
    of: float  # its limit, GiB
    by: Dict[str, float]  # GiB by kind
    ran: Optional[bool] = None  # whether an observed run of it fitted; None: no such run

    @classmethod
    def _of(cls, plan: Plan) -> "Fit":
        most = max(plan.prediction.memory, key=lambda memory: memory.peak_bytes)
        corrected = plan.corrected.layouts[0] if plan.corrected else None
        peak = corrected.peak_bytes if corrected and corrected.peak_bytes else most.peak_bytes
        kinds = {"weights": most.parameter_bytes, "gradients": most.gradient_bytes, "optimizer": most.optimizer_bytes,
                 "activations": most.activation_peak_bytes, "transfers": most.transfer_buffer_bytes}
        confidence = plan.confidence
        return cls(confidence.fits if confidence else None, peak / _GIB, plan.memory_limit_bytes / _GIB,
                   {kind: value * peak / most.peak_bytes / _GIB for kind, value in kinds.items()},
                   None if corrected is None or not (corrected.ran or corrected.out_of_memory) else bool(corrected.ran))

    def __bool__(self) -> bool:
        return self.ran if self.ran is not None else self.peak_gib <= self.of

    def __repr__(self) -> str:
        by = ", ".join(f"'{kind}': {gib:.1f}" for kind, gib in self.by.items())
        likely = "None" if self.likely is None else f"{self.likely:.2f}"
        return f"Fit(likely={likely}, peak_gib={self.peak_gib:.1f}, of={self.of:.1f}, by={{{by}}})"


class Estimate(Plan):
    """A plan of one given layout. `refusal`: why its framework cannot run it; None if it can."""

    refusal: Optional[str]


class Diagnosis(NamedTuple):
    """A measured run compared with its plan. `json`: the fields of `mpt-plan diagnose --json`."""

    json: Dict[str, Any]
    text: str

    def __str__(self) -> str:
        return self.text

    def frame(self) -> Any:
        """The causes as a data frame of pandas."""
        return _frame(self.json.get("causes", []))


class Compared(NamedTuple):
    name: str
    plan: Optional[Plan]
    reason: str  # why there is no plan


class Comparison(List[Compared]):
    """Plans in one table, for comparison."""

    def _rows(self) -> List[Dict[str, Any]]:
        def row(one: Compared) -> Dict[str, Any]:
            p = one.plan
            sure = p.confidence if p else None
            return {"name": one.name, "layout": p._explained["layouts"][0] if p else one.reason, "step_time_s": p.step_time_s if p else None,
                    "least_s": sure.least_s if sure else None, "most_s": sure.most_s if sure else None,
                    "tokens_per_s": p.tokens_per_s if p else None, "peak_gib": p.fit.peak_gib if p else None,
                    "likely": p.fit.likely if p else None}
        return [row(one) for one in self]

    def frame(self) -> Any:
        return _frame(self._rows())

    def __str__(self) -> str:
        return _table(self._rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = self._rows()
        cells = lambda tag, values: "".join(f"<{tag}>{html.escape(f'{v:.4g}' if isinstance(v, float) else str(v))}</{tag}>" for v in values)
        return "<table><tr>" + cells("th", rows[0] if rows else ()) + "</tr>" + "".join(f"<tr>{cells('td', row.values())}</tr>" for row in rows) + "</table>"


def plan(model: Any = None, cluster: Any = None, global_batch: Optional[int] = None, *, on_progress: OnProgress = None,
         **options: "Unpack[types.Options]") -> Plan:
    """The recommended plan. `options`: mpt-plan's, with underscores. Ctrl-C, or an `on_progress` that returns False, ends the search with
    the best so far."""
    request = _request_of(model, cluster, {"global_batch": global_batch, **options})
    answer = _ask({"do": "plan", "request": request}, on_progress)
    return Plan._of(answer.value["plan"], answer.value["text"], answer.stopped)


def estimate(model: Any = None, cluster: Any = None, global_batch: Optional[int] = None, *, layout: Optional[Dict[str, Any]] = None,
             **options: "Unpack[types.Options]") -> Estimate:
    """The time and memory of a given layout, whether it fits or not: degrees such as tp=8, or `layout` as in a plan."""
    request = _request_of(model, cluster, {"global_batch": global_batch, "layout": layout, **options})
    value = _ask({"do": "estimate", "request": request}).value
    estimated = Estimate._of(value["plan"], value["text"])
    estimated.refusal = value["refusal"]
    return estimated


def doctor(model: Any = None, cluster: Any = None, global_batch: Optional[int] = None, *, layout: Optional[Dict[str, Any]] = None,
           **options: "Unpack[types.Options]") -> Dict[str, Any]:
    """The content of a layout's fullest GPU, and ways to reduce it. "memory" has its parts. "alone" has each switch of the framework with
    bytes saved and seconds added. "together" has the fastest switches with which the layout is likely to fit, and "options" has these for
    mpt-plan estimate --plan. "text" has all in lines for a terminal."""
    request = _request_of(model, cluster, {"global_batch": global_batch, "layout": layout, **options})
    return dict(_ask({"do": "doctor", "request": request}).value)


def _offer_of(offer: Any) -> Any:
    if not isinstance(offer, str) and (not isinstance(offer, dict) or "cluster" not in offer):
        raise _wrong("offers", repr(offer)[:60], "a kind of node and how many there are at most", "for example dgx-h100:16")
    return offer if isinstance(offer, str) else {"name": offer["cluster"], **offer}


def recommend(model: Any = None, offers: Any = (), global_batch: Optional[int] = None, *, tokens: float = 0, days: float = 0, budget: float = 0,
              failures: Optional[Dict[str, float]] = None, on_progress: OnProgress = None, **options: "Unpack[types.Options]") -> Dict[str, Any]:
    """Which GPUs to use, and how many: the cheapest that train `tokens` in `days`, else the fastest for `budget`, else the fewest.
    `offers`: names such as dgx-h100:16, or dicts of cluster (a kind of node), nodes, price of a GPU-hour and name. "points" has each planned count of nodes, "chosen" the
    index of the best, "likely" whether it keeps the goal in nine of ten cases, and "text" all of it in lines for a terminal."""
    several = [offers] if isinstance(offers, (str, dict)) else offers
    forward = {"offers": [_offer_of(one) for one in several], "tokens": tokens, "days": days, "budget": budget, "failures": failures or {}}
    request = _request_of(model, None, {"global_batch": global_batch, **options})
    return dict(_ask({"do": "recommend", "forward": forward, "request": request}, on_progress).value)


def fits(model: Any = None, cluster: Any = None, global_batch: Optional[int] = None, **options: "Unpack[types.Options]") -> Fit:
    """Whether a layout fits. Without a batch, but with dp, each replica gets one micro-batch per stage, which fills the
    pipeline."""
    degrees = [str(options.get(name) or 1) for name in ("dp", "pp", "micro_batch")]
    if global_batch is None and options.get("dp") is not None and all(map(str.isdigit, degrees)):
        global_batch = math.prod(map(int, degrees))
    return estimate(model, cluster, global_batch, **options).fit


def compare(*plans: Union[Plan, str, "os.PathLike[str]"], on_progress: OnProgress = None, **request: Any) -> Comparison:
    """Plans in one table. Or the best plans of several models, clusters, frameworks, batches and the like: compare(model=["llama3-8b",
    "llama3-70b"], cluster="dgx-h100:8", global_batch=[256, 512])."""
    if plans:
        if request:
            raise _wrong("compare", "plans beside a request", "one or the other")
        held = [one if isinstance(one, Plan) else load(one) for one in plans]
        return Comparison(Compared(f"{one.model.name} on {one.cluster.name}", one, "") for one in held)
    many = {name: value for name, value in request.items() if isinstance(value, (list, tuple)) and name not in types.LISTS}
    requests, titles = [], []
    for values in itertools.product(*many.values()):
        one = {**request, **dict(zip(many, values))}
        named = dict(zip(many, values)) or {"cluster": one.get("cluster")}
        titles.append(", ".join(str(value.get("name", name)) if isinstance(value, dict) else str(value) if isinstance(value, str) else f"{name} {value}"
                                for name, value in named.items()))
        requests.append(_request_of(one.pop("model", None), one.pop("cluster", None), one))
    answer = _ask({"do": "compare", "requests": requests}, on_progress)
    return Comparison(Compared(title, Plan._of(one["plan"], stopped=answer.stopped) if "plan" in one else None, one.get("reason", ""))
                      for title, one in zip(titles, answer.value))


def diagnose(plan: Union[Plan, str, "os.PathLike[str]"], log: Union[None, str, "os.PathLike[str]"] = None, *,
             measured: Optional[str] = None, search: bool = True, profile: str = "", kernels: str = "",
             on_progress: OnProgress = None) -> Diagnosis:
    """The comparison of a run with its plan, and the causes of lost time. `log`: the path of the run's log; or `measured`, a figure with
    its unit such as "18.7s"."""
    held = plan if isinstance(plan, Plan) else load(plan)
    question: Dict[str, Any] = {"do": "diagnose", "plan": held.json, "search": search, "profile": profile, "kernels": kernels}
    if log is not None:
        with _opened(log) as file:
            question.update(log=file.read(), log_name=os.fspath(log))
    if measured is not None:
        question["measured"] = measured
    value = _ask(question, on_progress).value
    return Diagnosis(value["diagnosis"], value["text"])


def load(path: Union[str, "os.PathLike[str]"]) -> Plan:
    """A plan.json, of mpt-plan or of Plan.save()."""
    with _opened(path) as file:
        try:
            fields = json.load(file)
        except ValueError as error:
            raise _wrong(os.fspath(path), f"no JSON ({error})", "a plan.json") from None
    return Plan._of(fields, str(_ask({"do": "explain", "plan": fields}).value["text"]))  # the planner checks it


def models() -> List[str]:
    """Names of the models that come with the planner. Any other model is given by its config.json."""
    return [model["name"] for model in _names()["models"]]


def clusters() -> List[str]:
    """Names of the nodes that come with the planner: "dgx-h100:8" means eight of one."""
    return [cluster["name"] for cluster in _names()["clusters"]]


def frameworks() -> List[str]:
    return [framework["name"] for framework in _names()["frameworks"]]


def exports() -> Dict[str, str]:
    """The targets of Plan.export(), and the files of each."""
    return {target["name"]: target["what"] for target in _names()["exports"]}
