# SPDX-License-Identifier: Apache-2.0
"""The planner as tools for assistants, over stdio: python -m mpt.mcp. Needs the package mcp, version 2 or newer: pip install 'mcp>=2'.

A plan stays in the server under the name that its answer says, or is saved as plan.json; explain and diagnose take either.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import typing
from typing import Any, Callable, Dict, List, Tuple

import mpt

try:
    import mcp_types as wire
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
except ImportError as missing:
    sys.exit(f"mpt.mcp: needs the package mcp, version 2 or newer ({missing}): pip install 'mcp>=2'")

INSTRUCTIONS = ("Plans how to split the training of large language models over GPUs: the fastest layout that fits, its step time and memory, "
                "with ranges from published runs. Ask plan before you name a layout, estimate to judge one that is given.")


def _schema(hint: Any) -> Dict[str, Any]:
    """A type of mpt.types as JSON Schema."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    plain = {int: "integer", float: "number", str: "string", bool: "boolean"}
    if hint in plain:
        return {"type": plain[hint]}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin is typing.Union:
        return {"anyOf": [_schema(one) for one in inner if one is not type(None)]}
    if inner and origin is not dict:
        return {"type": "array", "items": _schema(inner[0])}
    return {}


def _options() -> Dict[str, Any]:
    """The options of a request, described as their comments in mpt.types say."""
    described = dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(mpt.types.Options), re.M))
    hints = typing.get_type_hints(mpt.types.Options)
    return {name: {**_schema(hint), **({"description": described[name]} if name in described else {})} for name, hint in hints.items()}


MODEL = {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "Name such as llama3-70b, id of Hugging Face, path or content of a config.json"}
CLUSTER = {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "Nodes and their number, such as dgx-h100:8, or the content of a cluster file"}
PLAN = {"type": "string", "description": "Name that plan or estimate answered, or the path of a plan.json"}
REQUEST = {"model": MODEL, "cluster": CLUSTER, **_options()}

PLANS: Dict[str, mpt.Plan] = {}


def _kept(plan: mpt.Plan, **more: Any) -> Tuple[str, Dict[str, Any]]:
    name = f"plan-{len(PLANS) + 1}"
    PLANS[name] = plan
    figures = {"plan": name, "step_time_s": plan.step_time_s, "tokens_per_s": plan.tokens_per_s, "peak_gib": plan.fit.peak_gib,
               "limit_gib": plan.fit.of, "likely_to_fit": plan.fit.likely, **more}
    return f"{plan}\n\nThis plan is called {name}.", figures


def _held(name: str) -> mpt.Plan:
    return PLANS[name] if name in PLANS else mpt.load(name)


def plan(save: str = "", **request: Any) -> Tuple[str, Dict[str, Any]]:
    found = mpt.plan(**request)
    if save:
        found.save(save)
    return _kept(found)


def estimate(**request: Any) -> Tuple[str, Dict[str, Any]]:
    found = mpt.estimate(**request)
    return _kept(found, fits=bool(found.fit), refusal=found.refusal)


def explain(plan: str, why_not: str = "") -> Tuple[str, Dict[str, Any]]:
    held = _held(plan)
    text = held.why_not(why_not) if why_not else held.explain()
    return text, {"text": text}


def diagnose(plan: str, log: str = "", measured: str = "", search: bool = False) -> Tuple[str, Dict[str, Any]]:
    found = mpt.diagnose(_held(plan), log or None, measured=measured or None, search=search)
    return str(found), found.json


def _tool(answer: Callable[..., Any], what: str, properties: Dict[str, Any], required: List[str]) -> Tuple[Callable[..., Any], Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return answer, wire.Tool(name=answer.__name__, description=what, input_schema=schema)


TOOLS = {tool.name: (answer, tool) for answer, tool in (
    _tool(plan, "The fastest layout of a training that fits in memory, with alternatives and reasons. Takes a tenth of a second to some minutes.",
          {**REQUEST, "save": {"type": "string", "description": "Path of a plan.json to write, for mpt-plan export and mpt-run"}},
          ["model", "cluster", "global_batch"]),
    _tool(estimate, "Step time and memory of one layout that is given by its degrees (tp, pp, dp, cp, ep, zero, ...), and whether it fits.",
          REQUEST, ["model", "cluster", "global_batch"]),
    _tool(explain, "The evidence behind a plan: memory by stage, where time goes, what others lack; or why another layout was not chosen.",
          {"plan": PLAN, "why_not": {"type": "string", "description": "Layouts that are asked about, such as tp=8,pp=4"}}, ["plan"]),
    _tool(diagnose, "A run that was measured beside its plan: where time was lost, and what to measure next.",
          {"plan": PLAN, "log": {"type": "string", "description": "Path of the log of the run"},
           "measured": {"type": "string", "description": "Instead of a log, a figure: 18.7s, 380TFLOP/s (per GPU), 56000tokens/s, or MFU 41%"},
           "search": {"type": "boolean", "description": "Whether to look for a faster layout, too"}}, ["plan"]),
)}


def answer(name: str, arguments: Dict[str, Any]) -> "wire.CallToolResult":
    """Wrong input is an answer that says what to change."""
    try:
        if name not in TOOLS:
            raise mpt.InputError(f"tool: found {name}; expected one of {', '.join(TOOLS)}", [mpt.Problem("tool", name, ", ".join(TOOLS), "")])
        text, figures = TOOLS[name][0](**arguments)
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], structured_content=figures)
    except (mpt.Error, OSError, TypeError) as error:
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=str(error))], is_error=True)


async def serve() -> None:
    async def tools(_: Any, __: Any) -> Any:
        return wire.ListToolsResult(tools=[tool for _, tool in TOOLS.values()])

    async def call(_: Any, asked: Any) -> Any:
        return await asyncio.to_thread(answer, asked.name, asked.arguments or {})
    server: Any = Server("mpt", version=mpt.__version__, instructions=INSTRUCTIONS, on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(serve())
