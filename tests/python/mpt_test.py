# SPDX-License-Identifier: Apache-2.0
"""The module mpt as its wheel installs it, for pytest in an environment with nothing else: scripts/test python."""

import importlib.metadata
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time

import pytest

import mpt

SOURCES = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.join(sysconfig.get_path("scripts"), "mpt-plan")
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False}
# Some hundred GPUs: long enough to be stopped.
LONG = dict(model="deepseek-v3", cluster="dgx-h100:256", global_batch=15360, threads=1)


@pytest.fixture(scope="module")
def plan():
    return mpt.plan("llama3-8b", "dgx-h100:1", 64, threads=1)


def test_measured_runs_as_text_dict_or_object():
    object_of = mpt.types.Observed(layout="tp2 pp2 mbs1", measured="3s")
    runs = ("tp2 pp2 mbs1=3s", ["tp2 pp2 mbs1=3s"], {"layout": "tp2 pp2 mbs1", "measured": "3s"}, object_of, (object_of,))
    answers = [mpt.plan("llama3-8b", "dgx-h100:1", 64, observed=run).json for run in runs]
    assert answers[0]["corrected"]["runs"] == 1
    assert all(answer["corrected"] == answers[0]["corrected"] for answer in answers)
    with pytest.raises(mpt.InputError, match="observed: found '3s'"):
        mpt.plan("llama3-8b", "dgx-h100:1", 64, observed="3s")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_named(value):
    with pytest.raises(mpt.InputError, match="global_batch: found"):
        mpt.plan("llama3-8b", "dgx-h100:1", value)


def printed(*words, folder=None):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_time(fields):
    return {**fields, "search": {**fields["search"], "seconds": 0}}


REQUESTS = [
    ("", dict(model="llama3-8b", cluster="dgx-h100:1", global_batch=64)),
    ("", dict(model="llama3-70b", cluster="dgx-h100:8", global_batch=512, framework="torchtitan")),
    ("", dict(model="mixtral-8x7b", cluster="dgx-a100:4", global_batch=256, seq=2048, zero=[0, 1], top=3)),
    ("", dict(model="llama3-8b", cluster="dgx-h100:4", global_batch=96, framework="torchtitan", or_nodes=[3, 2], storage_bandwidth="20GB/s")),
    ("", dict(model="gpt2-124m", cluster="rtx4090:1", global_batch=32, seq=1024, framework="transformers-fsdp")),
    ("estimate", dict(model="llama3-8b", cluster="dgx-h100:1", global_batch=64, tp=2, pp=2, zero=1, sp="on")),
    ("estimate", dict(model="llama3-70b", cluster="dgx-h100:1", global_batch=64, zero=3)),
]


@pytest.mark.parametrize("command, request_", REQUESTS)
def test_numbers_are_those_of_the_program_to_the_last_digit(command, request_):
    words = [command] if command else []
    for name, value in request_.items():
        words += ["--" + name.replace("_", "-"), ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    theirs = json.loads(printed(*words, "--threads", "1", "--json"))
    ours = (mpt.estimate if command else mpt.plan)(**request_, threads=1).json
    assert without_time(ours) == without_time(theirs)


def test_a_plan_prints_as_the_program_does(plan, tmp_path):
    assert str(plan).startswith("llama3-8b (8.03B parameters) on dgx-h100:1")
    assert "RECOMMENDED" in str(plan)
    plan.save(tmp_path / "plan.json")
    assert plan.explain() == printed("explain", "plan.json", folder=tmp_path)
    assert plan.why_not(tp=8) in printed("explain", "plan.json", "--why-not", "tp=8", folder=tmp_path)
    assert mpt.load(tmp_path / "plan.json").json == plan.json
    assert plan.step_time_s == plan.json["prediction"]["step_time_s"] == plan.ranking[0].step_time_s


def test_a_plan_is_saved_as_a_whole_or_not_at_all(plan, tmp_path):
    old = tmp_path / "plan.json"
    old.write_text("old")
    old.chmod(0o640)
    script = "import mpt, resource, sys; plan = mpt.load(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); plan.save(sys.argv[2])"
    plan.save(tmp_path / "whole.json")
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "whole.json", old], capture_output=True, text=True)
    assert done.returncode == 1 and "OSError" in done.stderr, done.stderr
    assert old.read_text() == "old" and sorted(file.name for file in tmp_path.iterdir()) == ["plan.json", "whole.json"]
    (tmp_path / "link.json").symlink_to("plan.json")
    plan.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and old.stat().st_mode & 0o777 == 0o640 and mpt.load(old).json == plan.json
    reading = subprocess.run([sys.executable, "-c", "import mpt, sys; mpt.load(sys.argv[1]).save('/dev/stdout')", old], capture_output=True, text=True)
    assert reading.stdout == old.read_text()


def test_what_is_no_plan_is_an_error_of_mpt(tmp_path):
    (tmp_path / "plan.json").write_text("no JSON")
    with pytest.raises(mpt.InputError, match="plan.json: found no JSON"):
        mpt.load(tmp_path / "plan.json")


def test_a_measured_run_corrects_all_figures():
    words = "estimate --model qwen3-30b-a3b --cluster hgx-h800:2 --global-batch 512 --framework megatron-core --pp 2 --dp 8 --ep 8 --etp 1 --zero 1 --micro-batch 2"
    before, after = (mpt.Plan._of(json.loads(printed(*words.split(), *more, "--json"))) for more in ((), ("--measured", "10.361s")))
    assert not before.fit and before.step_time_s == before.prediction.step_time_s
    own = after.corrected.layouts[0]
    assert after.step_time_s == own.step_time_s == pytest.approx(10.361, rel=0.01)
    assert after.fit and after.fit.ran and after.fit.likely == 1 and after.fit.peak_gib <= after.fit.of
    assert sum(after.fit.by.values()) == pytest.approx(after.fit.peak_gib)
    assert after.tokens_per_s * after.step_time_s == pytest.approx(before.tokens_per_s * before.step_time_s)
    assert after.days(1e12).predicted / before.days(1e12).predicted == pytest.approx(after.step_time_s / before.step_time_s)


def test_every_field_has_its_type(plan):
    def check(value, fields, at):
        if isinstance(fields, dict) and hasattr(value, "__dataclass_fields__"):
            for name, inner in fields.items():
                spelt = name if hasattr(value, name) else name + "_"
                assert hasattr(value, spelt), f"{at}/{name}"
                check(getattr(value, spelt), inner, f"{at}/{name}")
        elif isinstance(fields, list):
            assert len(value) == len(fields), at
            for one, inner in zip(value, fields):
                check(one, inner, at)
        elif isinstance(fields, dict):
            for key, inner in fields.items():
                check(value[key], inner, f"{at}/{key}")
        else:
            assert value == fields, at
    check(plan, plan.json, "")


def test_exports_are_those_of_the_program(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    printed("export", "plan.json", "--to", "megatron-core,slurm", "-o", "theirs", folder=tmp_path)
    written = plan.export(["megatron-core", "slurm"], tmp_path / "ours")
    assert [one.to for one in written] == ["megatron-core", "slurm"]
    theirs = {path.name: path.read_text() for path in (tmp_path / "theirs").iterdir()}
    assert theirs == {path.name: path.read_text() for path in (tmp_path / "ours").iterdir()}
    (tmp_path / "ours" / "job.sbatch").write_text("my own")
    with pytest.raises(mpt.InputError, match="is there already"):
        plan.export("slurm", tmp_path / "ours")
    assert (tmp_path / "ours" / "job.sbatch").read_text() == "my own"


def test_an_export_that_cannot_run_is_forced_or_not_written(plan, tmp_path):
    with pytest.raises(mpt.InputError, match="force=True"):
        plan.export("pytorch", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    forced, = plan.export("pytorch", tmp_path / "forced", force=True)
    assert forced.warnings and (tmp_path / "forced" / "mpt_train.py").exists()
    assert plan.export("slurm", tmp_path / "job")[0].warnings == []


def test_days_are_those_of_the_program(plan):
    text = printed("--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", "64", "--threads", "1", "--tokens", "1T", "--goodput", "0.9")
    theirs = [float(number) for number in re.search(r"1T tokens take ([\d.]+) \(([\d.]+) to ([\d.]+)\) days", text).groups()]
    assert list(plan.days(1e12, goodput=0.9)) == pytest.approx(theirs, abs=0.051)
    with pytest.raises(mpt.InputError, match="goodput"):
        plan.days(1e12, goodput=0)


def test_a_length_may_be_said_in_k():
    assert mpt.estimate("llama3-8b", "dgx-h100:1", 64, seq="8k").workload.sequence == 8192
    with pytest.raises(mpt.InputError, match="8k"):
        mpt.estimate("llama3-8b", "dgx-h100:1", 64, seq="8x")


@pytest.mark.parametrize("name, said", [("zeros", "did you mean zero?"), ("microbatch", "did you mean micro_batch?"), ("tokens", "plan.days")])
def test_an_unknown_option_is_told_with_the_nearest(name, said):
    with pytest.raises(mpt.InputError) as wrong:
        mpt.plan("llama3-8b", "dgx-h100:1", 64, **{name: 1})
    assert wrong.value.place == name and said in wrong.value.remedy


def test_fits_says_what_the_estimate_says():
    fit = mpt.fits("llama3-8b", cluster="dgx-h100:1", dp=8, zero=3)
    estimate = mpt.estimate("llama3-8b", "dgx-h100:1", 8, dp=8, zero=3)
    assert fit == estimate.fit
    assert fit.peak_gib == pytest.approx(sum(fit.by.values()))
    documented = re.search(r"fit\.by\).*# (\{.*\})", (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text()).group(1)
    assert list(fit.by) == re.findall(r'"(\w+)": \.\.\.', documented)
    assert fit and 0 < fit.peak_gib < fit.of < 80 and 0 <= fit.likely <= 1
    assert not mpt.fits("llama3-70b", cluster="dgx-h100:1", dp=8, zero=0)
    assert re.fullmatch(r"Fit\(likely=\d\.\d\d, peak_gib=[\d.]+, of=[\d.]+, by=\{.*\}\)", repr(fit))


class Configuration:
    """As PretrainedConfig of transformers."""

    model_type = "llama"

    def to_json_string(self, use_diff=True):
        assert not use_diff, "defaults are part of the model"
        return json.dumps({**LLAMA, "architectures": None})


class Model:
    config = Configuration()


def test_models_in_every_form(plan, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    hub = tmp_path / "hub" / "models--someone--a-llama"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("abc123")
    (hub / "snapshots" / "abc123").mkdir(parents=True)
    (hub / "snapshots" / "abc123" / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for model in (tmp_path, str(tmp_path / "config.json"), LLAMA, Configuration(), Model(), "someone/a-llama"):
        other = mpt.plan(model, "dgx-h100:1", 64, threads=1)
        assert other.step_time_s == plan.step_time_s, model
    assert mpt.plan("meta-llama/Llama-3.1-8B", "dgx-h100:1", 64, threads=1).step_time_s == plan.step_time_s
    with pytest.raises(mpt.InputError) as raised:
        mpt.plan("someone/of-whom-nobody-knows", "dgx-h100:1", 64)
    assert "someone/of-whom-nobody-knows" in str(raised.value)
    with pytest.raises(mpt.InputError, match="int"):
        mpt.plan(7, "dgx-h100:1", 64)


def test_clusters_in_every_form(plan, tmp_path):
    ours = {"name": "ours", "like": "dgx-h100", "nodes": 1}
    (tmp_path / "ours.json").write_text(json.dumps(ours))
    for cluster in (ours, tmp_path / "ours.json", str(tmp_path / "ours.json")):
        assert mpt.plan("llama3-8b", cluster, 64, threads=1).step_time_s == plan.step_time_s
    again = plan.json["cluster"]  # of a plan
    assert mpt.plan("llama3-8b", again, 64, threads=1).step_time_s == plan.step_time_s


def test_this_machine_is_told_or_refused(monkeypatch):
    from mpt import _inputs
    monkeypatch.setattr(_inputs, "_torch_names", lambda: ["NVIDIA H100 80GB HBM3"] * 4)
    cluster = mpt.this_machine()
    assert cluster["like"] == "dgx-h100" and cluster["gpus_per_node"] == 4
    assert mpt.plan("llama3-8b", cluster, 64, threads=1).layout.tensor >= 1
    monkeypatch.setattr(_inputs, "_torch_names", lambda: ["NVIDIA GeForce 256"])
    with pytest.raises(mpt.InputError, match="GeForce 256"):
        mpt.this_machine()


def test_errors_carry_their_parts():
    with pytest.raises(mpt.InputError) as raised:
        mpt.plan("llama3-8b", "dgx-h100:1")
    assert raised.value.place == "global_batch" and str(raised.value).startswith("global_batch: ")
    with pytest.raises(ValueError) as raised:
        mpt.plan("llama3-8b", "dgx-h100:1", 64, framework="megatorn")
    error = raised.value
    assert error.place == "framework" and "megatorn" in error.finding and error.expectation
    assert (error.place, error.finding, error.expectation, error.remedy) == tuple(error.problems[0])
    with pytest.raises(mpt.InputError, match="globl_batch"):
        mpt.plan("llama3-8b", "dgx-h100:1", globl_batch=64)


def test_an_error_reaches_the_parent_of_a_pool():
    with pytest.raises(mpt.InputError) as raised:
        mpt.plan("llama3-8b", "dgx-h100:1")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is mpt.InputError and again.problems == raised.value.problems and str(again) == str(raised.value)


@pytest.mark.parametrize("ask, place", [
    (lambda plan: mpt.estimate("llama3-8b", "dgx-h100:1", 64, tp=[1, 8]), "tp"),
    (lambda plan: mpt.estimate("llama3-8b", "dgx-h100:1", 64, recompute=["none", "full"]), "recompute"),
    (lambda plan: mpt.plan("llama3-8b", "dgx-h100:1", 64, layout=plan.json["layout"]), "/layout"),
    (lambda plan: plan.why_not(zero=[2, 3]), "why_not"),
    (lambda plan: plan.days("1T"), "days"),
])
def test_what_is_asked_in_vain_is_refused(plan, ask, place):
    with pytest.raises(mpt.InputError) as raised:
        ask(plan)
    assert raised.value.place == place


class OfNumPy:
    def __init__(self, value):
        self.value = value

    def tolist(self):
        return self.value


def test_values_of_numpy_are_numbers(plan):
    plain = mpt.estimate("llama3-8b", "dgx-h100:1", 64, tp=8, sp=True)
    same = mpt.estimate("llama3-8b", "dgx-h100:1", OfNumPy(64), tp=OfNumPy([8]), sp=OfNumPy(True))
    assert same.step_time_s == plain.step_time_s
    assert mpt.fits("llama3-8b", "dgx-h100:1", dp="8") == mpt.fits("llama3-8b", "dgx-h100:1", dp=8)


def test_progress_is_told_and_ends_the_search():
    seen = []
    plan = mpt.plan(**LONG, on_progress=lambda progress: seen.append(progress) or len(seen) < 3)
    assert plan.stopped and not plan.search.optimal and len(seen) == 3
    assert seen[-1].layouts >= seen[0].layouts

    def fails(progress):
        raise LookupError("mine")
    with pytest.raises(LookupError, match="mine"):
        mpt.plan(**LONG, on_progress=fails)


def test_ctrl_c_gives_the_best_so_far():
    script = f"""
import mpt, os, signal, threading
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
plan = mpt.plan(**{LONG!r})
print(plan.stopped, plan.search.optimal, plan.step_time_s > 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True False True\n", done.stderr


def test_the_gil_is_released():
    counted = 0
    done = threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)
    thread = threading.Thread(target=count)
    thread.start()
    mpt.plan(**{**LONG, "time_limit": 1.0})
    done.set()
    thread.join()
    assert counted > 50


class Scalar:
    """A number as NumPy and PyTorch have it."""

    def item(self):
        return 64


def test_options_are_taken_as_they_are_typed(plan):
    typed = mpt.plan("llama3-8b", "dgx-h100:1", "262144-tokens", seq="4k", tp="1,2", zero="1", recompute="none", execution="loss=fused", threads="1")
    assert (typed.workload.global_batch, typed.workload.sequence) == (64, 4096)
    assert typed.request.bounds.tp == [1, 2] and typed.request.bounds.zero == [1] and typed.layout.execution.loss == "fused"
    assert mpt.plan("llama3-8b", "dgx-h100:1", Scalar(), threads=1).workload.global_batch == 64
    for name, word in (("global_batch", "4M"), ("seq", "4,096"), ("tp", "eight"), ("precision", "bf17"), ("micro_batch", "0")):
        with pytest.raises(mpt.InputError) as wrong:
            mpt.plan("llama3-8b", "dgx-h100:1", **{"global_batch": 64, name: word})
        assert wrong.value.place == name, wrong.value.place
    with pytest.raises(mpt.InputError):
        mpt.plan("llama3-8b", "dgx-h100:1", 64, top=object())


def test_the_short_forms_are_numbers(plan):
    layout = plan.layout
    assert (layout.tp, layout.pp, layout.dp, layout.mbs) == (layout.tensor, layout.pipeline, layout.data, layout.micro_batch)
    assert layout.cp == (layout.context or 1) and layout.tp * layout.cp * layout.pp * layout.dp == 8
    assert 0.2 < plan.mfu < 0.8


def test_from_several_threads_at_once(plan):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(mpt.plan("llama3-8b", "dgx-h100:1", 64, threads=1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [without_time(answer.json) for answer in answers] == [without_time(plan.json)] * 4


def test_compare_and_diagnose(plan, tmp_path):
    both = mpt.compare(model="llama3-8b", cluster=["dgx-h100:1", "dgx-a100:1"], global_batch=64, threads=1)
    assert [one.name for one in both] == ["dgx-h100:1", "dgx-a100:1"]
    assert both[0].plan.step_time_s < both[1].plan.step_time_s
    assert "dgx-a100:1" in str(both) and "<table>" in both._repr_html_()
    nothing = mpt.compare(model="llama3-70b", cluster=["rtx4090:1", "dgx-h100:1"], global_batch=64, threads=1)
    assert nothing[0].plan is None and "fits" in nothing[0].reason
    assert len(mpt.compare(plan, plan)) == 2
    many = mpt.compare(model=["gpt2-124m", "llama3-8b"], cluster="dgx-h100:1", global_batch=[64, "256K-tokens"], seq=1024, threads=1)
    assert [one.name for one in many] == ["gpt2-124m, global_batch 64", "gpt2-124m, 256K-tokens", "llama3-8b, global_batch 64", "llama3-8b, 256K-tokens"]
    assert [one.plan.workload.global_batch for one in many] == [64, 250, 64, 250]
    assert many[1].plan.model.name == "gpt2-124m"
    diagnosis = mpt.diagnose(plan, measured="10s", search=False)
    assert diagnosis.json["measured_step_time_s"] == 10.0 and "10" in str(diagnosis)
    log = tmp_path / "log.jsonl"
    log.write_text('{"format":"mpt-run-log"}\n' + "".join(f'{{"step":{step},"step_time_s":9.0}}\n' for step in range(1, 30)))
    plan.save(tmp_path / "plan.json")
    theirs = json.loads(printed("diagnose", "plan.json", "log.jsonl", "--no-search", "--json", folder=tmp_path))
    assert mpt.diagnose(plan, log, search=False).json == theirs


def test_frames_where_pandas_is(plan):
    try:
        import pandas
    except ImportError:
        with pytest.raises(ImportError, match="pip install pandas"):
            plan.frame()
        pytest.skip("pandas is not installed: only its absence was tested")
    assert isinstance(plan.frame(), pandas.DataFrame)
    assert list(plan.frame()["step_time_s"]) == [row.step_time_s for row in plan.ranking]


def test_a_notebook_shows_the_report(plan):
    shown = plan._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;!DOCTYPE html&gt;" in shown and "<script" not in shown


def test_versions_and_names():
    assert mpt.__version__ == importlib.metadata.version("mpt-plan")
    assert re.fullmatch("[0-9a-f]{16}", mpt.data_version())
    assert "llama3-70b" in mpt.models() and "dgx-h100" in mpt.clusters() and "torchtitan" in mpt.frameworks()
    assert "pytorch" in mpt.exports()
    assert (pathlib.Path(mpt.__file__).parent / "py.typed").exists()


def test_types_are_those_of_the_schemas():
    subprocess.run([sys.executable, str(SOURCES / "scripts/make_python_types"), "--check"], check=True)


def snippets(page):
    return re.findall(r"^```python\n(.*?)^```", (SOURCES / page).read_text(), re.M | re.S)


def test_every_snippet_of_the_documents_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pages = ["docs/python.md", "README.md", *sorted(f"docs/{path.name}" for path in (SOURCES / "docs").glob("*.md") if path.name != "python.md")]
    found = [(page, snippet) for page in pages for snippet in snippets(page)]
    assert len(found) >= 7
    names = {}
    for number, (page, snippet) in enumerate(found, 1):
        if "mpt.torch" not in snippet:  # tests/frameworks/parallelize_test.py runs it, with processes
            exec(compile(snippet, f"{page}, snippet {number}", "exec"), names)
    assert "RECOMMENDED" in capsys.readouterr().out
    assert (tmp_path / "plan.json").exists() and (tmp_path / "run8b" / "run_megatron.sh").exists()


def test_no_text_names_the_other_project():
    for path in [SOURCES / "README.md", SOURCES / "pyproject.toml", *(SOURCES / "docs").glob("*.md"), *(SOURCES / "python").rglob("*.py")]:
        assert not re.search(r"pip3? install\s+(-\S+\s+)*['\"]?mpt(?![\w-])", path.read_text()), path


def test_libraries_need_no_newer_system():
    """Versioned symbols of libmpt and mpt-plan are at most those of glibc 2.35; of libraries only glibc's and libgcc_s."""
    for binary in (pathlib.Path(mpt.__file__).parent / "libmpt.so", PROGRAM):
        read = subprocess.run(["readelf", "-W", "-d", "--dyn-syms", str(binary)], capture_output=True, text=True)
        if read.returncode != 0:
            pytest.skip("readelf is missing")
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", read.stdout))
        assert needed <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, (binary, needed)
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"@GLIBC_([\d.]+)", read.stdout)}
        assert versions and max(versions) <= (2, 35), (binary, max(versions))
        assert "GLIBCXX_" not in read.stdout, binary
    exported = subprocess.run(["readelf", "-W", "--dyn-syms", str(pathlib.Path(mpt.__file__).parent / "libmpt.so")],
                              capture_output=True, text=True).stdout
    ours = {line.split()[-1].split("@")[0] for line in exported.splitlines() if " GLOBAL " in line and " UND " not in line}
    assert ours == {"mpt_answer", "mpt_free"}, ours


def test_sizes_that_are_verified_have_a_unit_that_fits():
    from mpt.verify import _size
    sizes = {0: "0 KiB", 1536: "1.5 KiB", 18 << 20: "18 MiB", 100 << 20: "100 MiB", 1 << 30: "1 GiB", 45_500_000_000: "42.38 GiB"}
    assert {size: _size(size) for size in sizes} == sizes
    assert _size(45_500_000_000, 3) == "42.4 GiB"


def test_doctor_prices_switches_in_the_frameworks_words():
    asked = {"cluster": "dgx-h100:1", "framework": "transformers-fsdp", "global_batch": 8, "seq": 20480, "dp": 8, "zero": 3, "recompute": "full"}
    found = mpt.doctor("qwen2.5-32b", **asked)
    row = next(row for row in found["alone"] if row["option"] == "--execution loss=chunked")
    before, after = mpt.estimate("qwen2.5-32b", **asked), mpt.estimate("qwen2.5-32b", execution=["loss=chunked"], **asked)
    peak = [max(rank["peak_bytes"] for rank in plan.json["prediction"]["memory"]) for plan in (before, after)]
    assert row["written"] == "use_liger_kernel: true" and row["saved_bytes"] == peak[0] - peak[1] and row["peak_bytes"] == peak[1]
    assert sum(part["bytes"] for part in found["memory"] if part["part"] != "framework and context") == peak[0]
    assert "SWITCHES of Hugging Face Trainer with FSDP2" in found["text"] and "use_liger_kernel: true" in found["text"]


@pytest.mark.parametrize("offer", ["dgx-h100", "dgx-h100:many", 7, {"nodes": 2}])
def test_an_offer_that_is_none_is_named(offer):
    with pytest.raises(mpt.InputError, match="dgx-h100"):
        mpt.recommend("llama3-8b", [offer], 64)


def test_an_offer_by_name_is_that_of_a_dict():
    named, whole = (mpt.recommend("llama3-8b", one, 64, threads=1) for one in ("16xh100", [{"cluster": "dgx-h100", "nodes": 2}]))
    assert [point["nodes"] for point in named["points"]] == [point["nodes"] for point in whole["points"]] != []


def test_recommend_takes_the_cheapest_in_time():
    offers = [{"cluster": "dgx-h100", "nodes": 4, "price": 3.0}, {"cluster": "dgx-a100", "nodes": 8, "price": 1.2, "name": "old"}]
    found = mpt.recommend("llama3-8b", offers, 64, tokens=2e10, days=3, threads=1)
    best = found["points"][found["chosen"]]
    in_time = [p for p in found["points"] if p["most_days"] <= 3]
    assert found["likely"] and best["price"] == min(p["price"] for p in in_time)
    assert {p["offer"] for p in found["points"]} == {"dgx-h100", "old"}
    plan = mpt.plan("llama3-8b", best["cluster"], 64, threads=1)
    assert plan.step_time_s == best["step_time_s"] and plan.json["layout"]["tensor"] >= 1
    with pytest.raises(mpt.InputError):
        mpt.recommend("llama3-8b", offers, 64, days=3)
