# SPDX-License-Identifier: Apache-2.0
"""What stands beside the planner in the wheel: the monitor, the tools for assistants, the notebook, files of mpt.capture."""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types

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
    assert re.fullmatch(r"mpt: step 6: 0\.0\d+ s, predicted [\d.e-]+ s: \d+% of the predicted speed", said[0]), said[0]
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
    assert str(Monitor(plan).verdict()).startswith("mpt: no verdict: 0 steps")


@pytest.mark.parametrize("error, reason", [(AssertionError(), "AssertionError"), (ValueError("odd"), "odd"), (TimeoutError(), "none within 10.0 s")])
def test_a_verdict_has_a_reason(plan, monkeypatch, error, reason):
    def fails(*_, **__):
        raise error
    monitor = Monitor(plan, skip=0, say=lambda _: None)
    for _ in monitor.steps(range(2)):
        pass
    monkeypatch.setattr(mpt, "diagnose", fails)
    assert str(monitor.verdict()) == f"mpt: no verdict: {reason}"


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


@pytest.fixture
def frameworks(monkeypatch):
    """transformers and Lightning, as far as a callback sees them."""
    trainer, lightning = types.ModuleType("transformers"), types.ModuleType("lightning.pytorch.callbacks")
    trainer.TrainerCallback = lightning.Callback = object
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "transformers", trainer)
    monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", lightning)


def by_trainer(monitor, steps=4, data_s=0.0, step_s=0.0, between=lambda callback: None, sleep=time.sleep):
    callback = monitor.for_trainer()
    callback.on_train_begin()
    for _ in range(steps):
        sleep(data_s)
        callback.on_step_begin()
        sleep(step_s)
        callback.on_step_end()
        between(callback)
    callback.on_train_end()


def by_lightning(monitor, steps=4, step_s=0.0, between=lambda callback: None, sleep=time.sleep):
    callback, state = monitor.for_lightning(), FakeState()
    callback.on_train_start(state)
    for batch in range(2 * steps):  # two batches are a step
        callback.on_train_batch_start(state)
        sleep(step_s / 2)
        state.global_step += batch % 2
        callback.on_train_batch_end(state)
        between(callback)
    callback.on_train_end(state)


def test_the_monitor_in_callbacks(plan, frameworks):
    said = []
    by_trainer(Monitor(plan, every=3, skip=0, say=said.append), 3, data_s=0.01, step_s=0.01)
    assert "waiting for data" in said[0] and "Measured" in said[-1]
    monitor = Monitor(plan, every=100, skip=0, say=said.append)
    by_lightning(monitor, 3, step_s=0.02)
    assert len(monitor.seconds) == 3 and all(0.02 <= seconds < 0.2 for seconds in monitor.seconds)


@pytest.mark.parametrize("drive, hooks", [("trainer", "on_evaluate"), ("trainer", "on_save"), ("trainer", "on_log"),
                                          ("lightning", "on_validation_start"), ("lightning", "on_save_checkpoint")])
def test_evaluation_and_saving_are_no_waiting_for_data(plan, frameworks, monkeypatch, drive, hooks):
    clock = types.SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr("mpt.monitor.time", clock)

    def between(callback):  # Trainer tells the end of it, Lightning the beginning
        clock.sleep(8.0 if drive == "trainer" else 0.0)
        getattr(callback, hooks, lambda: None)()
        clock.sleep(8.0 if drive == "lightning" else 0.0)
    monitor = Monitor(plan, every=100, skip=0, say=lambda _: None)
    (by_trainer if drive == "trainer" else by_lightning)(monitor, step_s=2.0, between=between, sleep=clock.sleep)
    assert monitor.waits == [0.0] * 4
    assert monitor.seconds == [2.0] + [10.0 if hooks == "on_log" else 2.0] * 3  # the loss that is logged waits for the step itself


def test_a_loop_that_breaks_gets_its_verdict(plan):
    said = []
    for batch in Monitor(plan, skip=0, say=said.append).steps(range(9)):
        time.sleep(0.02)
        if batch == 4:
            break
    assert len(said) == 1 and "Measured" in said[0]
    with pytest.raises(LookupError, match="mine"):  # the loop's own errors stay its own
        for _ in Monitor(plan, skip=0, say=said.append).steps(iter([1, 2, 3])):
            time.sleep(0.02)
            raise LookupError("mine")


def by_steps(monitor):
    assert list(monitor.steps(range(4))) == [0, 1, 2, 3]


def by_break(monitor):
    for batch in monitor.steps(range(4)):
        if batch == 3:
            break


def by_hand(monitor):
    for _ in range(4):
        monitor.begin()
        monitor.end()
    monitor.finish()


def by_verdict(monitor):
    by_hand(monitor)
    assert isinstance(str(monitor.verdict()), str)


def fails(*_, **__):
    raise OSError("gone")


FAILURES = {
    "stderr is closed": lambda patch: patch.setattr(sys, "stderr", io.StringIO()) or sys.stderr.close(),
    "there is no stderr": lambda patch: patch.setattr(sys, "stderr", None),
    "say raises": lambda patch: {"say": fails},
    "the plan is gone": lambda patch: {"plan": "gone/plan.json"},
    "the plan is no plan": lambda patch: {"plan": 7},
    "the plan has no times": lambda patch: patch.setattr(mpt.Plan, "step_time_s", property(fails)),
    "the library is gone": lambda patch: patch.setattr(mpt, "_ask", fails),
    "the verdict fails": lambda patch: patch.setattr(mpt, "diagnose", fails),
    "the verdict takes too long": lambda patch: patch.setattr(mpt, "diagnose", lambda *_, **__: time.sleep(60)),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("drive", [by_steps, by_break, by_hand, by_verdict, by_trainer, by_lightning])
def test_no_failure_of_the_monitor_ends_or_holds_up_a_training(plan, frameworks, monkeypatch, drive, failure):
    options = FAILURES[failure](monkeypatch) or {}
    begin = time.perf_counter()
    drive(Monitor(options.pop("plan", plan), every=1, skip=0, limit_s=0.2, **options))
    assert time.perf_counter() - begin < 15


def test_what_fails_is_said_once(capsys):
    by_steps(Monitor("gone/plan.json", every=1, skip=0))
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "gone/plan.json" in said.err and "the training goes on" in said.err


@pytest.mark.parametrize("rank", [{"RANK": "3"}, {"RANK": "3", "LOCAL_RANK": "0"}, {"SLURM_PROCID": "1"}, {"LOCAL_RANK": "1"}])
def test_only_rank_0_opens_and_says_anything(plan, frameworks, monkeypatch, capsys, rank):
    for name, value in rank.items():
        monkeypatch.setenv(name, value)
    opened = []
    monkeypatch.setattr(mpt, "load", opened.append)
    monkeypatch.setattr(mpt, "diagnose", lambda *_, **__: opened.append("diagnose"))
    for drive in (by_steps, by_trainer, by_lightning):
        drive(Monitor("gone/plan.json", every=1, skip=0))
        drive(Monitor(plan, every=1, skip=0))
    assert not opened and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("stderr", ["closed", "broken", "full"])
def test_a_process_trains_on_whatever_its_stderr_is(plan, tmp_path, stderr):
    plan.save(tmp_path / "plan.json")
    script = "import mpt.monitor\nfor _ in mpt.monitor.Monitor('plan.json', every=1, skip=0).steps(range(9)): pass\nprint('trained')"
    reading, writing = os.pipe()
    if stderr == "broken":
        os.close(reading)
    elif stderr == "full":
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writing, b"x" * 4096):
                pass
        os.set_blocking(writing, True)
    words = [sys.executable, "-c", script]
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *words] if stderr == "closed" else words, stdout=subprocess.PIPE, stderr=writing,
                          cwd=tmp_path, timeout=30)
    assert (done.returncode, done.stdout) == (0, b"trained\n")


def test_a_long_search_ends_in_time_with_the_best_so_far(plan, monkeypatch):
    def search(*_, on_progress, **__):
        while on_progress(None):
            time.sleep(0.01)
        return mpt.Diagnosis({}, "the best so far")
    monkeypatch.setattr(mpt, "diagnose", search)
    monitor = Monitor(plan, search=True, limit_s=4.0)
    monitor.seconds = [1.0]
    assert str(monitor.verdict()) == "the best so far"


REQUEST = {"model": "llama3-8b", "cluster": "dgx-h100:1", "global_batch": 64, "threads": 1}


def test_tools_for_assistants_over_stdio(tmp_path):
    pytest.importorskip("mcp", reason="the package mcp is not installed")
    from mcp import ClientSession, MCPError, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk():
        server = StdioServerParameters(command=sys.executable, args=["-m", "mpt.mcp", "--root", str(tmp_path)], env=dict(os.environ))
        async with stdio_client(server) as (reading, writing):
            async with ClientSession(reading, writing) as session:
                await session.initialize()
                tools = {tool.name: tool for tool in (await session.list_tools()).tools}
                found = [await session.call_tool(name, arguments) for name, arguments in (
                    ("plan", REQUEST), ("estimate", {**REQUEST, "tp": 8}), ("explain", {"plan": "plan-1", "why_not": "tp=8"}),
                    ("diagnose", {"plan": "plan-1", "measured": "4s"}), ("plan", {**REQUEST, "framework": "megatorn"}),
                    ("compare", {**REQUEST, "cluster": ["dgx-h100:1", "dgx-a100:1"]}), ("save", {"plan": "plan-3", "path": "plan.json"}),
                    ("export", {"plan": "plan.json", "to": ["megatron-core", "slurm"], "folder": "run"}))]
                with pytest.raises(MCPError) as unknown:
                    await session.call_tool("train", {})
                return tools, found, unknown.value
    tools, found, unknown = asyncio.run(talk())
    writing = {"save": (False, True), "export": (False, False)}
    assert {name: (tool.annotations.read_only_hint, tool.annotations.destructive_hint) for name, tool in tools.items()} == {
        **dict.fromkeys(("plan", "estimate", "compare", "explain", "diagnose"), (True, None)), **writing}
    assert not any(tool.annotations.open_world_hint for tool in tools.values())
    schema = tools["plan"].input_schema
    assert set(mpt.types.OPTIONS) <= set(schema["properties"]) and schema["required"] == ["model", "cluster", "global_batch"]
    assert "bf16" in schema["properties"]["precision"]["enum"] and schema["properties"]["seq"]["description"]
    plan, estimate, explained, diagnosed, wrong, compared, saved, exported = found
    assert "RECOMMENDED" in plan.content[0].text and plan.structured_content["plan"] == "plan-1"
    assert plan.structured_content["step_time_s"] == mpt.plan(**REQUEST).step_time_s
    assert estimate.structured_content["fits"] is True and estimate.structured_content["plan"] == "plan-2"
    assert "Why not tp=8" in explained.content[0].text and diagnosed.structured_content["measured_step_time_s"] == 4.0
    assert wrong.is_error and "megatorn" in wrong.content[0].text
    rows = compared.structured_content["compared"]
    assert [(row["name"], row["plan"]) for row in rows] == [("dgx-h100:1", "plan-3"), ("dgx-a100:1", "plan-4")] and "plan-4" in compared.content[0].text
    assert rows[0]["step_time_s"] == plan.structured_content["step_time_s"] < rows[1]["step_time_s"]
    assert mpt.load(saved.structured_content["path"]).step_time_s == rows[0]["step_time_s"]
    assert (tmp_path / "run" / "job.sbatch").exists() and not exported.is_error, exported
    assert unknown.code == -32602 and "train" in unknown.message


@pytest.fixture
def tools(monkeypatch, tmp_path):
    pytest.importorskip("mcp", reason="the package mcp is not installed")
    import mpt.mcp
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    return mpt.mcp


@pytest.mark.parametrize("tool, arguments, said", [
    ("plan", {**REQUEST, "framwork": "megatron-core"}, "framwork: found an argument that is not known; expected model, cluster, "),
    ("plan", {"model": "llama3-8b", "cluster": "dgx-h100:1"}, 'global_batch: found nothing; expected {"type": "integer"}'),
    ("plan", {**REQUEST, "global_batch": "64"}, 'global_batch: found "64"; expected {"type": "integer"}'),
    ("plan", {**REQUEST, "precision": "int4"}, 'precision: found "int4"; expected {"enum": ["fp32", '),
    ("estimate", {**REQUEST, "tp": 1.5}, "tp: found 1.5; expected "),
    ("compare", {**REQUEST, "cluster": []}, "cluster: found []; expected "),
    ("explain", {"plan": 0}, 'plan: found 0; expected {"type": "string"}'),
    ("explain", {"plan": "plan-99"}, "plan: found plan-99 ("),
    ("explain", {"plan": "text"}, "plan: found text ("),
    ("explain", {"plan": "/dev/stdin"}, "plan: found /dev/stdin, which is no file; expected a file"),
    ("diagnose", {"plan": "plan-99", "log": "no.log"}, "log: found no.log, which is no file; expected a file"),
    ("export", {"plan": "plan-99", "to": ["nobody"], "folder": "run"}, 'to: found ["nobody"]; expected '),
])
def test_wrong_arguments_of_tools_are_answers_that_name_them(tools, tool, arguments, said):
    pathlib.Path("text").write_text("no plan")
    found = tools.answer(tool, arguments)
    assert found.is_error and said in found.content[0].text, found.content[0].text


def test_all_wrong_arguments_are_told_at_once(tools):
    lines = tools.answer("plan", {"model": 1, "tq": 2}).content[0].text.splitlines()
    assert [line.split(":")[0] for line in lines] == ["model", "cluster", "global_batch", "tq"]


def test_tools_write_new_files_and_plans_below_the_root_alone(tools, plan, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    pathlib.Path("link").symlink_to(outside)
    pathlib.Path("mine.py").write_text("mine")
    pathlib.Path("full").mkdir()
    pathlib.Path("full/mine").write_text("mine")
    plan.save("plan.json")

    def ask(tool, **arguments):
        found = tools.answer(tool, {"plan": "plan.json", **({"to": ["slurm"]} if tool == "export" else {}), **arguments})
        return found.content[0].text if found.is_error else ""
    for path in ("../x", str(outside / "x"), "link/x"):
        assert f"path: found {path}; expected a path below " in ask("save", path=path)
        assert f"folder: found {path}; expected a path below " in ask("export", folder=path)
    assert "path: found " in ask("save", path="mine.py") and "path: found " in ask("save", path="full")
    assert "folder: found full, which is not empty" in ask("export", folder="full")
    assert ask("save", path="new.json") == ask("save", path="new.json") == ask("export", folder="run") == ""
    assert "folder: found run" in ask("export", folder="run")
    for path in (".plan.json", ".ssh/plan.json", "run/.plan.json"):
        assert "is hidden" in ask("save", path=path) and "is hidden" in ask("export", folder=path)
        assert "choose another name" in ask("save", path=path)
    assert {found.name for found in pathlib.Path(".").glob("**/.*")} == {".mpt-export"}  # which export keeps of what it wrote
    for error in (ask("save", path="mine.py"), ask("save", path="new.json", plan="plan-0"), ask("export", folder="full")):
        assert re.fullmatch("choose (a new|another) name|ask plan or estimate for one", error.split("; ")[-1]), error
    assert pathlib.Path("mine.py").read_text() == "mine" and not list(outside.iterdir())


def test_a_call_that_is_cancelled_ends(tmp_path):
    """As a client writes it; no answer may come (Model Context Protocol 2025-06-18, cancellation)."""
    pytest.importorskip("mcp", reason="the package mcp is not installed")
    server = subprocess.Popen([sys.executable, "-m", "mpt.mcp", "--root", tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(method, id=None, **params):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}) + "\n")
        server.stdin.flush()
    tell("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
    assert json.loads(server.stdout.readline())["result"]["protocolVersion"] == "2025-06-18"
    tell("notifications/initialized")
    slow = {"model": "deepseek-v3", "cluster": "dgx-h100:128+dgx-a100:128@100Gb/s", "global_batch": 15360, "threads": 1}  # the slowest of benchmarks/commands.py
    tell("tools/call", 2, name="plan", arguments=slow)
    time.sleep(1)
    tell("notifications/cancelled", requestId=2, reason="test")
    time.sleep(1)
    tell("tools/call", 3, name="explain", arguments={"plan": "plan-9"})
    last = json.loads(server.stdout.readline())
    assert last["id"] == 3 and last["result"]["isError"] and "expected a plan.json" in last["result"]["content"][0]["text"]
    server.stdin.close()  # the server ends when its search has ended
    assert server.wait(timeout=20) == 0 and server.stdout.read() == ""


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


READER = """
import os, sys, mpt
mpt.read_below(sys.argv[1])
told = []
for call in (lambda: mpt.load(sys.argv[2]), lambda: mpt.estimate(sys.argv[3], "dgx-h100:1", 8), lambda: mpt.estimate("llama3-8b", sys.argv[4], 8),
             lambda: mpt.diagnose(sys.argv[5], sys.argv[6])):
    try:
        call()
        told.append("read")
    except mpt.InputError as error:
        told.append(error.finding)
print(told)
"""


def test_nothing_is_read_outside_of_the_folder_that_the_user_names(plan, tmp_path):
    (tmp_path / "root" / ".hidden").mkdir(parents=True)
    (tmp_path / "secret.json").write_text('{"model_type": "XyzzySecret7", "hidden_size": "XyzzySecret7"}')
    plan.save(tmp_path / "plan.json")
    plan.save(tmp_path / "root/plan.json")
    (tmp_path / "root/link.json").symlink_to(tmp_path / "plan.json")
    plan.save(tmp_path / "root/.hidden/plan.json")
    for way in ("../plan.json", "link.json", ".hidden/plan.json"):
        done = subprocess.run([sys.executable, "-c", READER, tmp_path / "root", tmp_path / "root" / way, tmp_path / "secret.json", tmp_path / "secret.json",
                               tmp_path / "root/plan.json", tmp_path / "secret.json"], stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout.count("outside of the recipes, not read") == 4 and "Xyzzy" not in done.stdout, done.stdout
    done = subprocess.run([sys.executable, "-c", READER, tmp_path, *[tmp_path / "root/plan.json", tmp_path / "secret.json", tmp_path / "secret.json"],
                           tmp_path / "root/plan.json", tmp_path / "secret.json"], stdout=subprocess.PIPE, text=True, check=True)
    assert "outside" not in done.stdout and done.stdout.startswith("['read'"), done.stdout
