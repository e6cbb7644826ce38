# SPDX-License-Identifier: Apache-2.0
"""mpt.verify beside sums by hand and beside PyTorch's own allocator. What runs PyTorch does so in the environments of scripts/install-frameworks."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import mpt

SOURCES = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENTS = pathlib.Path(os.environ.get("MPT_FRAMEWORKS", SOURCES / "build" / "frameworks"))
LAYERS, HIDDEN, WIDTH, WORDS, SEQUENCE = 4, 256, 512, 1024, 256
SMALL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
         "num_key_value_heads": 4, "intermediate_size": WIDTH, "vocab_size": WORDS, "max_position_embeddings": 512, "tie_word_embeddings": False}
LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDTH + 2 * HIDDEN  # parameters
PARAMETERS = 2 * WORDS * HIDDEN + LAYERS * LAYER + HIDDEN
# Prints the peak that PyTorch's allocator says of a step with real tensors; groups are fake there, too.
REAL = """
import gc, sys, tempfile, mpt, torch
from torch.profiler import ProfilerActivity, profile
from mpt.verify import _pytorch, _rank
torch.set_num_threads(1)
folder = tempfile.mkdtemp()
mpt.load(sys.argv[1]).export("pytorch", folder)
file = _pytorch.load(folder + "/mpt_train.py")
with _rank.fake_group(0, file.RANKS):
    job = _pytorch.Trained(file)
    job.allocate()
    _rank.make_states(job, False)
    held = [*job.parameters, *(value for state in job.optimizer.state.values() for value in state.values())]
    now = peak = sum(_rank.local(tensor).untyped_storage().nbytes() for tensor in held)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        job.forward_and_backward(_rank.Watch(_rank.Counting()))
        job.update()
    for event in sorted((e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
print(peak)
"""


def run(folder, environment, *words):
    """Python of an environment of the frameworks, with the module mpt and nothing else of this one."""
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {python}: ./scripts/install-frameworks {environment}")
    modules = folder / "modules"
    modules.mkdir(exist_ok=True)
    if not (modules / "mpt").exists():
        (modules / "mpt").symlink_to(pathlib.Path(mpt.__file__).parent)
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=300, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(modules), "OMP_NUM_THREADS": "1"})


def plan_of(folder, cluster="dgx-h100:1", batch=16, framework="pytorch", **options):
    """A layout of the small model, as a file."""
    mpt.estimate(SMALL, cluster, batch, seq=SEQUENCE, framework=framework, **options).save(folder / "plan.json")


def verified(folder, environment="torch"):
    done = run(folder, environment, "-m", "mpt.verify", "plan.json", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def count(rank, kind, size=None, group="shards"):
    return sum(one["count"] for one in rank["collectives"] if one["kind"] == kind and one["group"] == group and size in (None, one["bytes"]))


# Gathers of a layer in a micro-batch: ZeRO 3 gathers again for the backward, and recompute does not need a third one.
@pytest.mark.parametrize("zero, recompute, gathers", [(3, "none", 2), (2, "none", 1), (3, "full", 2), (2, "full", 1)])
def test_shares_and_collectives_are_those_of_the_layout(tmp_path, zero, recompute, gathers):
    plan_of(tmp_path, dp=8, zero=zero, micro_batch=1, recompute=recompute)
    [rank] = verified(tmp_path)["ranks"]
    assert rank["own_parameter_bytes"] == 4 * PARAMETERS // 8
    assert 8 * PARAMETERS // 8 <= rank["bytes"]["optimizer"] < 8 * PARAMETERS // 8 + 1000  # and a number of steps for each weight
    assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * gathers, rank["collectives"]  # two micro-batches
    assert count(rank, "reduce-scatter", 4 * LAYER) == 2 * LAYERS  # in fp32
    assert rank["micro_batches_run"] == 2
    token = SEQUENCE * HIDDEN * 2
    if recompute == "full":  # each layer keeps its input; the head's norm, its product and the loss keep theirs
        assert LAYERS * token < rank["saved_bytes"]["0"] < (LAYERS + 4) * token + SEQUENCE * WORDS * 4


def test_micro_batches_that_did_not_run_are_counted(tmp_path):
    plan_of(tmp_path, batch=64, dp=8, zero=3, micro_batch=1)
    [rank] = verified(tmp_path)["ranks"]
    assert rank["micro_batches_run"] == 3 and count(rank, "all-gather", 2 * LAYER) == 8 * LAYERS * 2


def test_tensor_ranks_and_replicas_have_groups_of_their_own(tmp_path):
    plan_of(tmp_path, dp=4, tp=2, sp="on", zero=3, micro_batch=1)
    [rank] = verified(tmp_path)["ranks"]
    assert abs(rank["own_parameter_bytes"] / (4 * PARAMETERS / 8) - 1) < 0.01  # norms are on both tensor ranks
    spread = SEQUENCE * HIDDEN * 2
    # Before attention and before the MLP, forward and backward; before the head, and after the embedding.
    assert count(rank, "all-gather", spread, "tensor") >= 4 * 4 * LAYERS and count(rank, "reduce-scatter", spread, "tensor") >= 4 * 4 * LAYERS


def test_a_pipeline_runs_a_rank_of_each_stage(tmp_path):
    plan_of(tmp_path, dp=4, pp=2, zero=2, micro_batch=1, schedule="1f1b", recompute="none")
    first, last = verified(tmp_path)["ranks"]
    assert (first["rank"], last["rank"], first["stages"], last["stages"]) == (0, 4, [0], [1])
    hidden = SEQUENCE * HIDDEN * 2
    for rank in (first, last):
        assert count(rank, "send", hidden, "pipeline") == count(rank, "recv", hidden, "pipeline") == 4
    assert first["own_parameter_bytes"] + last["own_parameter_bytes"] == 4 * PARAMETERS // 4


@pytest.mark.parametrize("options", [dict(zero=3), dict(zero=2, recompute="full"), dict(zero=3, micro_batch=1), dict(dp=1, tp=2, sp="on")])
def test_the_peak_is_that_of_the_allocator(tmp_path, options):
    """In fp32 on CPU ranks, where the same step runs with real tensors."""
    plan_of(tmp_path, "this-machine:2", 4, **{"dp": 2, "micro_batch": 2, **options})
    done = run(tmp_path, "torch", "-c", REAL, "plan.json")
    assert done.returncode == 0, done.stderr
    peak = verified(tmp_path)["ranks"][0]["peak_bytes"]
    assert abs(peak / int(done.stdout) - 1) < 0.03, (peak, done.stdout)


@pytest.mark.parametrize("zero, recompute, gathers", [(3, "full", 2), (2, "none", 1)])
def test_transformers_is_split_as_accelerate_does(tmp_path, zero, recompute, gathers):
    plan_of(tmp_path, framework="transformers-fsdp", dp=8, zero=zero, micro_batch=1, recompute=recompute)
    figures = verified(tmp_path, "accelerate")
    [rank] = figures["ranks"]
    assert set(figures["checked_by"]) == {"torch", "transformers", "accelerate"}
    assert rank["own_parameter_bytes"] == 4 * PARAMETERS // 8
    assert count(rank, "all-gather", 2 * LAYER, "dp_shard") == 2 * LAYERS * gathers
    assert count(rank, "reduce-scatter", 2 * LAYER, "dp_shard") == 2 * LAYERS  # in bf16, as accelerate asks
    if recompute == "full":  # in the update DTensor makes fake tensors as large as all weights, which a real run has not in memory
        assert rank["bytes"]["activations"] < 4 * PARAMETERS


def test_every_second_layer_recomputes_by_the_trainer(tmp_path):
    asked = {"seq": SEQUENCE, "framework": "transformers-fsdp", "dp": 8, "zero": 3, "micro_batch": 1}
    layout, saved = mpt.estimate(SMALL, "dgx-h100:1", 16, **asked).json["layout"], {}
    for layers in (0, 2, 4):
        chosen = {**layout, "recompute": "full" if layers else "none", "recomputed_layers": [layers] if layers == 2 else []}
        mpt.estimate(SMALL, "dgx-h100:1", 16, seq=SEQUENCE, framework="transformers-fsdp", layout=chosen).save(tmp_path / "plan.json")
        [rank] = verified(tmp_path, "accelerate")["ranks"]
        assert count(rank, "all-gather", 2 * LAYER, "dp_shard") == 2 * LAYERS * 2  # the Trainer's gathers no third time
        saved[layers] = rank["saved_bytes"]["0"]
    assert abs((saved[0] + saved[4]) / 2 / saved[2] - 1) < 0.01, saved


# "never" reshards after the backward, so a layer is gathered once for each micro-batch.
@pytest.mark.parametrize("zero, recompute, gathers", [(3, "none", 2), (2, "full", 1), (3, "selective", 2)])
def test_torchtitan_runs_a_step_of_its_own_trainer(tmp_path, zero, recompute, gathers):
    plan_of(tmp_path, framework="torchtitan", execution=["elementwise=eager", "loss=chunked"], dp=8, zero=zero, micro_batch=1, recompute=recompute)
    figures = verified(tmp_path, "torchtitan")
    [rank] = figures["ranks"]
    assert set(figures["checked_by"]) == {"torch", "torchtitan"}
    assert rank["own_parameter_bytes"] == 4 * PARAMETERS // 8
    assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * gathers, rank["collectives"]  # two micro-batches
    assert count(rank, "reduce-scatter", 4 * LAYER) == 2 * LAYERS  # in fp32
    token = SEQUENCE * HIDDEN * 2
    # A layer's input; of selective recompute three products of five and attention's result, too. The final norm keeps its input and its result.
    kept = {"full": token, "selective": 3 * token + 3 * token + 2 * WIDTH * SEQUENCE}.get(recompute)
    if kept:
        assert LAYERS * kept + 2 * token <= rank["saved_bytes"]["0"] < (LAYERS * kept + 2 * token) * 1.01, rank["saved_bytes"]


def test_torchtitan_runs_a_pipeline_of_tensor_ranks(tmp_path):
    plan_of(tmp_path, framework="torchtitan", execution=["elementwise=eager"], dp=2, tp=2, pp=2, zero=2, micro_batch=1, schedule="1f1b", recompute="none")
    first, last = verified(tmp_path, "torchtitan")["ranks"]
    assert (first["rank"], last["rank"], first["stages"], last["stages"]) == (0, 4, [0], [1])
    part = SEQUENCE // 2 * HIDDEN * 2  # stages exchange parts of sequences
    for rank in (first, last):
        assert count(rank, "send", part, "pipeline") == count(rank, "recv", part, "pipeline") == 8
        assert count(rank, "all-gather", 2 * part, "tensor") >= 8 * 4 * LAYERS // 2, rank["collectives"]


def test_the_last_line_says_by_what_and_what_is_left_out(tmp_path):
    plan_of(tmp_path, dp=8, zero=3)
    done = run(tmp_path, "torch", "-m", "mpt.verify", "plan.json")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Checked by torch 2.") and "GiB of live tensors on the fullest rank" in last, done.stdout + done.stderr
    assert last.endswith("Allocator, streams and NCCL's buffers are not in it.") and "collectives" in last


def refused(folder, *words):
    done = subprocess.run([sys.executable, "-m", "mpt.verify", *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 2 and done.stdout == "", done.stdout + done.stderr
    return done.stderr


def test_wrong_input_ends_with_2_and_a_remedy(tmp_path):
    assert "none.json: found no such file or directory; expected a plan.json; make one: mpt-plan" in refused(tmp_path, "none.json")
    (tmp_path / "plan.json").write_text("{")
    assert "plan.json: found no JSON" in refused(tmp_path, "plan.json")
    (tmp_path / "plan.json").write_text("{}")
    assert "expected" in refused(tmp_path, "plan.json")
    refused(tmp_path)


@pytest.mark.parametrize("framework", ["automodel", "megatron-core", "deepspeed"])
def test_other_frameworks_are_refused_by_name(tmp_path, framework):
    plan_of(tmp_path, framework=framework)
    assert f"MPT cannot verify {framework} yet; expected pytorch, transformers-fsdp, torchtitan" in refused(tmp_path, "plan.json")
    with pytest.raises(mpt.InputError, match=framework):
        mpt.verify(tmp_path / "plan.json")


def test_a_missing_package_is_named(tmp_path):
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        pytest.skip("this Python has torch")
    plan_of(tmp_path, dp=8, zero=3)
    assert "plan for pytorch: found no package torch in this Python; expected torch 2.15; pip install torch" in refused(tmp_path, "plan.json")
