# SPDX-License-Identifier: Apache-2.0
"""What stands beside the planner in the wheel: the monitor, the tools for assistants, the notebook, files of mpt.capture."""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import time

import pytest

import mpt
from mpt.monitor import Monitor

SOURCES = pathlib.Path(__file__).resolve().parents[2]


SMALL = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
         "intermediate_size": 512, "vocab_size": 1024, "max_position_embeddings": 512}


@pytest.fixture(scope="module")
def plan():
    """A step of some milliseconds."""
    return mpt.plan(SMALL, "rtx4090:1", 8, seq=256, threads=1)


def test_the_monitor_says_steps_beside_the_prediction(plan):
    said = []
    monitor = Monitor(plan, every=4, skip=2, say=said.append)
    for _ in monitor.steps(range(10)):
        time.sleep(0.02)
    assert len(said) == 3 and len(monitor.seconds) == 8
    assert re.fullmatch(r"mpt: step 6: 0\.0\d+ s, predicted [\d.e-]+ s: \d+% of what this layout can reach", said[0]), said[0]
    seconds, predicted, share = (float(number) for number in re.match(r".*: ([\d.]+) s, predicted ([\d.e-]+) s: (\d+)%", said[0]).groups())
    assert seconds >= 0.02 and abs(share - 100 * predicted / seconds) < 1.5 and predicted == pytest.approx(plan.step_time_s, rel=1e-2)
    assert "Measured" in said[-1] and "predicted" in said[-1]


def test_the_monitor_does_not_end_a_training(plan):
    """A figure that diagnose refuses is said, and no more."""
    said = []
    monitor = Monitor(mpt.plan("llama3-8b", "dgx-h100:1", 64, threads=1), every=100, skip=0, say=said.append)
    for _ in monitor.steps(range(3)):
        time.sleep(0.01)
    assert len(said) == 1 and said[0].startswith("mpt: no verdict: measured: ") and "faster than the GPUs can be" in said[0]


def test_the_monitor_says_that_data_are_waited_for(plan):
    def slow():
        for number in range(9):
            time.sleep(0.02)
            yield number
    said = []
    for _ in Monitor(plan, every=4, skip=1, say=said.append).steps(slow()):
        time.sleep(0.01)
    assert 50 <= int(re.search(r"waiting for data (\d+)%", said[0]).group(1)) <= 80, said[0]
    assert "Waiting for data took" in said[-1]
    with pytest.raises(mpt.InputError, match="0 steps"):
        Monitor(plan).verdict()


def test_the_monitor_costs_next_to_nothing(plan):
    """Microseconds of a step; the smallest step of a training takes milliseconds."""
    def loop(batches):
        begin = time.perf_counter()
        for _ in batches:
            pass
        return time.perf_counter() - begin
    monitor = Monitor(plan, every=1000, skip=0, say=lambda _: None)
    monitor.finish = lambda: None
    costs = min(loop(monitor.steps(range(5000))) - loop(range(5000)) for _ in range(3)) / 5000
    print(f"{costs * 1e6:.1f} us a step")
    assert costs < 1e-4, costs


class FakeState:
    global_step = 0


def test_the_monitor_in_callbacks(plan, monkeypatch):
    import types
    trainer = types.ModuleType("transformers")
    trainer.TrainerCallback = object
    monkeypatch.setitem(sys.modules, "transformers", trainer)
    said = []
    monitor = Monitor(plan, every=3, skip=0, say=said.append)
    callback = monitor.for_trainer()
    callback.on_train_begin()
    for _ in range(3):
        time.sleep(0.01)
        callback.on_step_begin()
        time.sleep(0.01)
        callback.on_step_end()
    callback.on_train_end()
    assert "waiting for data" in said[0] and "Measured" in said[-1]
    lightning = types.ModuleType("lightning.pytorch.callbacks")
    lightning.Callback = object
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", lightning)
    monitor = Monitor(plan, every=100, skip=0, say=said.append)
    callback, state = monitor.for_lightning(), FakeState()
    callback.on_train_start(state)
    for batch in range(6):  # two batches are a step
        callback.on_train_batch_start(state)
        time.sleep(0.01)
        state.global_step += batch % 2
        callback.on_train_batch_end(state)
    assert len(monitor.seconds) == 3 and all(0.02 <= seconds < 0.2 for seconds in monitor.seconds)


def test_tools_for_assistants_over_stdio():
    pytest.importorskip("mcp", reason="the package mcp is not installed")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    request = {"model": "llama3-8b", "cluster": "dgx-h100:1", "global_batch": 64, "threads": 1}

    async def talk():
        async with stdio_client(StdioServerParameters(command=sys.executable, args=["-m", "mpt.mcp"])) as (reading, writing):
            async with ClientSession(reading, writing) as session:
                await session.initialize()
                tools = {tool.name: tool.input_schema for tool in (await session.list_tools()).tools}
                found = [await session.call_tool(name, arguments) for name, arguments in (
                    ("plan", request), ("estimate", {**request, "tp": 8}), ("explain", {"plan": "plan-1", "why_not": "tp=8"}),
                    ("diagnose", {"plan": "plan-1", "measured": "4s"}), ("plan", {**request, "framework": "megatorn"}),
                    ("plan", {**request, "framwork": "megatron-core"}))]
                return tools, found
    tools, found = asyncio.run(talk())
    assert set(tools) == {"plan", "estimate", "explain", "diagnose"}
    assert set(mpt.types.OPTIONS) <= set(tools["plan"]["properties"]) and tools["plan"]["required"] == ["model", "cluster", "global_batch"]
    assert "bf16" in tools["plan"]["properties"]["precision"]["enum"] and tools["plan"]["properties"]["seq"]["description"]
    plan, estimate, explained, diagnosed, wrong, unknown = found
    assert "RECOMMENDED" in plan.content[0].text and plan.structured_content["plan"] == "plan-1"
    assert plan.structured_content["step_time_s"] == mpt.plan(**request).step_time_s
    assert estimate.structured_content["fits"] is True and estimate.structured_content["plan"] == "plan-2"
    assert "Why not tp=8" in explained.content[0].text and diagnosed.structured_content["measured_step_time_s"] == 4.0
    assert wrong.is_error and "megatorn" in wrong.content[0].text
    assert unknown.is_error and "framwork" in unknown.content[0].text


def test_the_notebook_runs(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(SOURCES / "examples/notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "RECOMMENDED" in cells[0].outputs[0].text
    assert "<iframe" in cells[1].outputs[0].data["text/html"]


def test_a_captured_file_is_imported(tmp_path):
    """As capture writes it. tests/frameworks/capture_test.py has the frameworks themselves."""
    import os
    import sysconfig
    program = os.path.join(sysconfig.get_path("scripts"), "mpt-plan")
    line = (SOURCES / "tests/frameworks/capture/run_megatron.sh").read_text().replace("\\\n", " ").splitlines()[1]
    whole = {"framework": "megatron-core", "ranks": 16, "run": {}, "reads": "pretrain.sh", "files": {"pretrain.sh": line}}

    def run(value):
        (tmp_path / "captured.json").write_text(json.dumps(value))
        return subprocess.run([program, "import", "--captured", "captured.json", "--cluster", "dgx-h100:2", "--time-limit", "1", "--json"],
                              capture_output=True, text=True, cwd=tmp_path)
    done = run(whole)
    assert done.returncode == 0, done.stderr
    layout = json.loads(done.stdout)["layout"]
    assert (layout["tensor"], layout["pipeline"], layout["data"]) == (2, 2, 4)
    broken = run({**whole, "files": {"pretrain.sh": "torchrun pretrain_gpt.py --num-layers many"}})
    assert broken.returncode == 2 and "captured.json, pretrain.sh at --num-layers" in broken.stderr.replace("\n", " "), broken.stderr
    assert run({**whole, "reads": "other.sh"}).returncode == 2
    assert run({**whole, "files": {"../../pretrain.sh": line}, "reads": "../../pretrain.sh"}).returncode == 0  # stays in its folder
