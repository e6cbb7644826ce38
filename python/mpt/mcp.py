# SPDX-License-Identifier: Apache-2.0
"""The planner as tools for assistants, over stdio: python -m mpt.mcp [--root FOLDER]. Needs the package mcp: pip install 'mcp>=2'.

A plan stays in the server under the name that its answer says; save writes it as plan.json, and other tools take either. Files are read
and written below FOLDER alone, by default the current folder: save and export write new files, or a plan in the place of a plan.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import itertools
import json
import os
import re
import sys
import threading
import typing
from typing import Any, Callable, Dict, List, Tuple

import mpt

try:
    import mcp_types as wire
    from jsonschema import Draft202012Validator
    from mcp import MCPError
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
    return {"type": "array", "items": _schema(inner[0])} if inner and origin is not dict else {}


def _options() -> Dict[str, Any]:
    """The options of a request, described as their comments in mpt.types say."""
    described = dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(mpt.types.Options), re.M))
    hints = typing.get_type_hints(mpt.types.Options)
    return {name: {**_schema(hint), **({"description": described[name]} if name in described else {})} for name, hint in hints.items()}


MODEL = {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "Name such as llama3-70b, id of Hugging Face, path or content of a config.json"}
CLUSTER = {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "Nodes and their number, such as dgx-h100:8, or the content of a cluster file"}
PLAN = {"type": "string", "description": "Name that plan, estimate or compare answered, or the path of a plan.json"}
REQUEST = {"model": MODEL, "cluster": CLUSTER, **_options()}
REQUEST["seq"]["type"] = ["integer", "string"]  # 8k

PLANS: Dict[str, mpt.Plan] = {}
NUMBERS = itertools.count(1)


def _kept(plan: mpt.Plan, **more: Any) -> Tuple[str, Dict[str, Any]]:
    name = f"plan-{next(NUMBERS)}"
    PLANS[name] = plan
    figures = {"plan": name, "step_time_s": plan.step_time_s, "tokens_per_s": plan.tokens_per_s, "peak_gib": plan.fit.peak_gib,
               "limit_gib": plan.fit.of, "likely_to_fit": plan.fit.likely, **more}
    return f"{plan}\n\nThis plan is called {name}.", figures


def _held(name: str, argument: str = "plan", remedy: str = "ask plan or estimate for one") -> mpt.Plan:
    try:
        return PLANS.get(name) or mpt.load(name)
    except (mpt.Error, OSError) as error:
        raise mpt._wrong(argument, f"{name} ({error})", " or ".join(["a plan.json", *PLANS]), remedy) from None


def _below(argument: str, path: str) -> str:
    """A path that may be written."""
    root, full = os.getcwd(), os.path.realpath(path)
    hidden = [part for part in os.path.relpath(full, root).split("/") if part.startswith(".") and part.strip(".")]
    if hidden:
        raise mpt._wrong(argument, f"{path}, where {hidden[0]} is hidden", "names that begin with no dot", "choose another name")
    if root == "/" or os.path.commonpath([root, full]) != root:
        raise mpt._wrong(argument, path, f"a path below {root}", "start the server with --root FOLDER")
    return full


def plan(watch: Any, **request: Any) -> Tuple[str, Dict[str, Any]]:
    return _kept(mpt.plan(**request, on_progress=watch))


def estimate(_: Any, **request: Any) -> Tuple[str, Dict[str, Any]]:
    found = mpt.estimate(**request)
    return _kept(found, fits=bool(found.fit), refusal=found.refusal)


def compare(watch: Any, **request: Any) -> Tuple[str, Dict[str, Any]]:
    found = mpt.compare(**request, on_progress=watch)
    rows = [{"name": one.name, **(_kept(one.plan)[1] if one.plan else {"reason": one.reason})} for one in found]
    called = [f"The plan of {row['name']} is called {row['plan']}." for row in rows if "plan" in row]
    return "\n".join([f"{found}\n", *called]), {"compared": rows}


def explain(_: Any, plan: str, why_not: str = "") -> Tuple[str, Dict[str, Any]]:
    held = _held(plan)
    text = held.why_not(why_not) if why_not else held.explain()
    return text, {"text": text}


def diagnose(watch: Any, plan: str, log: str = "", measured: str = "", search: bool = False) -> Tuple[str, Dict[str, Any]]:
    found = mpt.diagnose(_held(plan), log or None, measured=measured or None, search=search, on_progress=watch)
    return str(found), found.json


def save(_: Any, plan: str, path: str) -> Tuple[str, Dict[str, Any]]:
    held, full = _held(plan), _below("path", path)
    if os.path.lexists(full):
        _held(full, "path", "choose a new name")  # what is no plan is not replaced
    held.save(full)
    return f"Wrote {full}.", {"path": full}


def export(_: Any, plan: str, to: List[str], folder: str, force: bool = False) -> Tuple[str, Dict[str, Any]]:
    held, full = _held(plan), _below("folder", folder)
    if os.path.lexists(full) and not (os.path.isdir(full) and not os.listdir(full)):
        raise mpt._wrong("folder", f"{folder}, which is not empty", "a new or an empty folder", "choose another name")
    written = [one._asdict() for one in held.export(to, full, force=force)]
    return "\n".join(f"{one['to']}: wrote {', '.join(one['files'])}. {one['note']}" for one in written), {"exports": written}


def _tool(answer: Callable[..., Any], what: str, properties: Dict[str, Any], required: List[str], **hints: Any) -> Tuple[Callable[..., Any], Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    annotations = wire.ToolAnnotations(**(hints or {"read_only_hint": True}), open_world_hint=False)
    return answer, wire.Tool(name=answer.__name__, description=what, input_schema=schema, annotations=annotations)


TOOLS = {tool.name: (answer, tool) for answer, tool in (
    _tool(plan, "The fastest layout of a training that fits in memory, with alternatives and reasons. Takes a tenth of a second to some minutes.",
          REQUEST, ["model", "cluster", "global_batch"]),
    _tool(estimate, "Step time and memory of one layout that is given by its degrees (tp, pp, dp, cp, ep, zero, ...), and whether it fits.",
          REQUEST, ["model", "cluster", "global_batch"]),
    _tool(compare, "The best plans of several clusters or frameworks side by side.",
          {**REQUEST, **{name: {"anyOf": [REQUEST[name], {"type": "array", "items": REQUEST[name], "minItems": 1}]} for name in ("cluster", "framework")}},
          ["model", "cluster", "global_batch"]),
    _tool(explain, "The evidence behind a plan: memory by stage, where time goes, what others lack; or why another layout was not chosen.",
          {"plan": PLAN, "why_not": {"type": "string", "description": "Layouts that are asked about, such as tp=8,pp=4"}}, ["plan"]),
    _tool(diagnose, "A run that was measured beside its plan: where time was lost, and what to measure next.",
          {"plan": PLAN, "log": {"type": "string", "description": "Path of the log of the run"},
           "measured": {"type": "string", "description": "Instead of a log, a figure: 18.7s, 380TFLOP/s (per GPU), 56000tokens/s, or MFU 41%"},
           "search": {"type": "boolean", "description": "Whether to look for a faster layout, too"}}, ["plan"]),
    _tool(save, "Writes a plan as plan.json, for mpt-plan export and mpt-run.",
          {"plan": PLAN, "path": {"type": "string", "description": "A new file, or a plan to replace"}}, ["plan", "path"],
          read_only_hint=False, destructive_hint=True, idempotent_hint=True),
    _tool(export, "Writes launch files of a plan in the words of frameworks and launchers.",
          {"plan": PLAN, "to": {"type": "array", "items": {"enum": list(mpt.exports())}, "minItems": 1, "description": "Whom the files are for"},
           "folder": {"type": "string", "description": "A new or an empty folder"},
           "force": {"type": "boolean", "description": "Whether to write what cannot run or trains otherwise, too"}}, ["plan", "to", "folder"],
          read_only_hint=False, destructive_hint=False),
)}


def _check(schema: Dict[str, Any], arguments: Dict[str, Any]) -> None:
    """All arguments that the published schema refuses; and paths of what is no file, as the pipe that requests come by."""
    known, problems = schema["properties"], []
    for name in {**dict.fromkeys(schema["required"]), **arguments}:
        value = arguments.get(name)
        if name not in known:
            problems.append(mpt._wrong(name, "an argument that is not known", ", ".join(known)))
        elif not Draft202012Validator(known[name]).is_valid(value):
            expected = {key: rule for key, rule in known[name].items() if key != "description"}
            problems.append(mpt._wrong(name, json.dumps(value)[:80] if name in arguments else "nothing", json.dumps(expected)))
        elif isinstance(value, str) and (os.path.exists(value) or name == "log" and value) and not (os.path.isfile(value) or os.path.isdir(value)):
            problems.append(mpt._wrong(name, f"{value}, which is no file", "a file"))
    if problems:
        raise mpt.InputError("\n".join(map(str, problems)), [problem.problems[0] for problem in problems])


def answer(name: str, arguments: Dict[str, Any], is_cancelled: Callable[[], bool] = lambda: False) -> "wire.CallToolResult":
    """Wrong input is an answer that says what to change."""
    def watch(_: mpt.Progress) -> None:
        if is_cancelled():
            raise mpt.Error("cancelled")
    try:
        _check(TOOLS[name][1].input_schema, arguments)
        text, figures = TOOLS[name][0](watch, **arguments)
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], structured_content=figures)
    except Exception as error:
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=str(error) or repr(error))], is_error=True)


async def serve() -> None:
    async def tools(_: Any, __: Any) -> Any:
        return wire.ListToolsResult(tools=[tool for _, tool in TOOLS.values()])

    async def call(_: Any, asked: Any) -> Any:
        if asked.name not in TOOLS:
            raise MCPError(wire.INVALID_PARAMS, f"Unknown tool: {asked.name}; expected one of {', '.join(TOOLS)}")
        over = threading.Event()
        try:
            return await asyncio.to_thread(answer, asked.name, asked.arguments or {}, over.is_set)
        finally:  # also where the client cancels: the search ends, and nothing is kept
            over.set()
    server: Any = Server("mpt", version=mpt.__version__, instructions=INSTRUCTIONS, on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m mpt.mcp", description="The planner as tools for assistants, over stdio")
    options.add_argument("--root", default=".", help="folder below which files are written (default: the current one)")
    root = options.parse_args().root
    if not os.path.isdir(root):
        options.error(f"--root: found {root}; expected a folder")
    os.chdir(root)
    mpt.read_below(".")
    asyncio.run(serve())
