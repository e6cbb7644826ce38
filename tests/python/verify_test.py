# SPDX-License-Identifier: Apache-2.0
"""mpt.verify beside sums by hand and beside PyTorch's own allocator. What runs PyTorch does so in the environments of scripts/install-frameworks."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

import mpt

SOURCES = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENTS = pathlib.Path(os.environ.get("MPT_FRAMEWORKS", SOURCES / "build" / "frameworks"))
LAYERS, HIDDEN, WIDTH, WORDS, SEQUENCE = 4, 256, 512, 1024, 256
SMALL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
         "num_key_value_heads": 4, "intermediate_size": WIDTH, "vocab_size": WORDS, "max_position_embeddings": 512, "tie_word_embeddings": False}
# A vocabulary that makes the head outweigh the rest, as in small models and last stages.
WIDE = {**SMALL, "vocab_size": 32 * WORDS}
EXPERTS, CHOSEN, EXPERT = 8, 2, 128  # how many there are, how many a token visits, their width
SPARSE = {**SMALL, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": HIDDEN // 4, "num_experts": EXPERTS, "num_experts_per_tok": CHOSEN,
          "moe_intermediate_size": EXPERT, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.001}
LAYER = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * WIDTH + 2 * HIDDEN  # parameters
PARAMETERS = 2 * WORDS * HIDDEN + LAYERS * LAYER + HIDDEN
RANK = 8  # of adapters on all products: a row for each of 8 shards
ADAPTERS = RANK * LAYERS * (8 * HIDDEN + 3 * (HIDDEN + WIDTH))
EIGHT, TITAN = {"dp": 8, "micro_batch": 1}, {"framework": "torchtitan", "execution": ["elementwise=eager", "loss=chunked"]}
BESIDE = {"zero 3": {"zero": 3}, "zero 2, full": {"zero": 2, "recompute": "full"}, "zero 3, small": {"zero": 3, "micro_batch": 1}, "tensor": {"dp": 1, "tp": 2, "sp": "on"}}
ON_CPUS = {f"cpus, {name}": {"cluster": "this-machine:2", "batch": 4, "dp": 2, "micro_batch": 2, **more} for name, more in BESIDE.items()}
# After an input gradient zb-v keeps all that was saved.
HELD = {"shards": {"dp": 8, "zero": 3}, "stages": {"dp": 4, "zero": 2, "pp": 2, "schedule": "1f1b"},
        "split backward": {"dp": 4, "zero": 2, "pp": 2, "schedule": "zb-v", "recompute": "none", "seq": 512, "execution": ["elementwise=eager", "loss=fp32"]}}
# Of a usual size: in small models what MPT adds up of one operator weighs 5 to 10 %. They run where MPT_SLOW is set.
EIGHT_BILLION = {**EIGHT, "model": "llama3-8b", "seq": 4096, "zero": 3, "recompute": "full"}
LARGE = {"large": EIGHT_BILLION, "trainer, large": {**EIGHT_BILLION, "framework": "transformers-fsdp"}} if os.environ.get("MPT_SLOW") else {}
# What the tests look at, by environment and name.
PLANS = {
    "accelerate": {
        **{f"zero {zero}, {recompute}": {**EIGHT, "zero": zero, "recompute": recompute} for zero in (2, 3) for recompute in ("none", "full")},
        "many micro-batches": {**EIGHT, "batch": 64, "zero": 3},
        "tensor ranks": {"dp": 4, "tp": 2, "sp": "on", "zero": 3, "micro_batch": 1},
        "stages": {"dp": 4, "pp": 2, "zero": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "none"},
        **ON_CPUS,
        **LARGE,
        **{f"trainer, zero {zero}, {recompute}": {"framework": "transformers-fsdp", **EIGHT, "zero": zero, "recompute": recompute}
           for zero, recompute in ((3, "full"), (2, "none"))},
        **{f"trainer, {name}, {recompute}": {"framework": "transformers-ddp", **EIGHT, "recompute": recompute, **more}
           for name, more in (("replicas", {}), ("replicas, adapters", {"lora": RANK})) for recompute in ("none", "full")},
        **{f"trainer, adapters, {recompute}": {"framework": "transformers-fsdp", **EIGHT, "zero": 3, "lora": RANK, "recompute": recompute} for recompute in ("none", "full")},
        **{f"trainer, {layers} layers": {"framework": "transformers-fsdp", **EIGHT, "zero": 3, "recomputed": layers} for layers in (0, 2, 4)},
    },
    "torchtitan": {
        **{f"zero {zero}, {recompute}": {**TITAN, **EIGHT, "zero": zero, "recompute": recompute} for zero, recompute in ((3, "none"), (2, "full"), (3, "selective"))},
        **{f"experts, {ranks} ranks, {recompute}": {**TITAN, **EIGHT, "model": SPARSE, "zero": 3, "ep": ranks, "recompute": recompute}
           for ranks, recompute in ((1, "none"), (4, "none"), (4, "full"))},
        "experts of tensor ranks": {**TITAN, "model": SPARSE, "dp": 4, "tp": 2, "sp": "on", "zero": 3, "micro_batch": 1, "ep": 4, "etp": 1, "recompute": "none"},
        "stages of tensor ranks": {**TITAN, "dp": 2, "tp": 2, "pp": 2, "zero": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "none"},
        **{f"wide, {name}": {**TITAN, "model": WIDE, "batch": 32, "micro_batch": 1, "recompute": "full", **options} for name, options in HELD.items()},
    },
}
PLANS["automodel"] = {f"zero {zero}, {recompute}": {"framework": "automodel", **EIGHT, "zero": zero, "recompute": recompute} for zero, recompute in ((3, "none"), (2, "full"))}
# Of AutoModel: modules for GPUs, and names that PyTorch 2.15 has no more.
STAND_INS = f"""
import sys
sys.path.append({str(SOURCES / "tests" / "frameworks")!r})
import stubs
stubs.use(), stubs.untuned_kernels(), stubs.older_fsdp()
"""
# Runs the command with each file, one after another in a process: importing a framework takes longer than a step of such a model.
COMMANDS = """
import runpy, sys
for path in sys.argv[1:]:
    sys.argv = ["mpt.verify", path, "--json"]
    runpy.run_module("mpt.verify", run_name="__main__")
    print("end of a plan")
"""
# Prints the peaks that PyTorch's allocator says of steps with real tensors; groups are fake there, too.
REAL = """
import gc, sys, tempfile, mpt, torch
from torch.profiler import ProfilerActivity, profile
from mpt.verify import _pytorch, _rank
torch.set_num_threads(1)
for path in sys.argv[1:]:
    folder = tempfile.mkdtemp()
    mpt.load(path).export("pytorch", folder)
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
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=900, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(modules), "OMP_NUM_THREADS": "1"})


def plan_of(folder, model=SMALL, cluster="dgx-h100:1", batch=16, framework="pytorch", recomputed=None, seq=SEQUENCE, **options):
    """A layout of a small model, as a file. `recomputed`: so many of its layers recompute."""
    plan = mpt.estimate(model, cluster, batch, seq=seq, framework=framework, **options)
    if recomputed is not None:
        layout = {**plan.json["layout"], "recompute": "full" if recomputed else "none", "recomputed_layers": [recomputed] if 0 < recomputed < LAYERS else []}
        plan = mpt.estimate(model, cluster, batch, seq=seq, framework=framework, layout=layout)
    plan.save(folder / "plan.json")


def save_all(folder, plans):
    """Files of the plans, in their order."""
    for name, options in plans.items():
        (folder / name).mkdir()
        plan_of(folder / name, **options)
    return [f"{name}/plan.json" for name in plans]


@functools.lru_cache(maxsize=None)
def all_verified(environment):
    """Figures of the environment's plans by name, up to one that fails, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(pathlib.Path(folder), environment, "-c", STAND_INS * (environment == "automodel") + COMMANDS, *save_all(pathlib.Path(folder), PLANS[environment]))
    return dict(zip(PLANS[environment], map(json.loads, done.stdout.split("end of a plan")[:-1]))), done.stderr


def verified(name, environment="accelerate"):
    figures, said = all_verified(environment)
    assert name in figures, said
    return figures[name]


def of_tuner(tmp_path, package, **options):
    """The rank of a plan for TRL. Where its package is not installed: what is said then."""
    plan_of(tmp_path, **EIGHT, zero=3, recompute="none", **options)
    done = run(tmp_path, "accelerate", "-m", "mpt.verify", "plan.json", "--json")
    if done.returncode == 2:
        assert f"no package {package} in this Python" in done.stderr and f"pip install {package}" in done.stderr
        pytest.skip(f"no package {package} beside accelerate")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ranks"][0]


def test_weights_in_4_bits_are_shared_and_their_scales_are_whole(tmp_path):
    rank = of_tuner(tmp_path, "bitsandbytes", framework="transformers-fsdp", lora=RANK, frozen_weights="nf4", execution=["narrow_adapters=true", "whole_at_start=0"])
    products = LAYERS * (LAYER - 2 * HIDDEN)
    # A byte for 64 weights, 4 for 256 of these; each of 7 products in a layer has two tables of codes and an offset.
    scales = products // 64 + products // 64 // 256 * 4 + 7 * LAYERS * (4 * (16 + 256) + 4)
    assert rank["own_parameter_bytes"] == (products // 2 + 2 * (PARAMETERS - products) + 2 * ADAPTERS) // 8 + scales
    assert 4 * ADAPTERS // 8 <= rank["bytes"]["optimizer"] < 4 * ADAPTERS // 8 + 1000  # moments in 16 bits
    assert count(rank, "reduce-scatter", 2 * ADAPTERS // LAYERS) == 2 * LAYERS


@pytest.mark.parametrize("adapters", [0, RANK])
def test_the_loss_of_trl_sums_the_gradient_of_a_trained_head_in_fp32(tmp_path, adapters):
    rank = of_tuner(tmp_path, "trl", framework="trl", model=WIDE, **({"lora": adapters} if adapters else {}))
    beside = {row["name"]: row["ratio"] for row in rank["beside"]}
    assert beside["peak"] == pytest.approx(1.0, abs=0.03)
    head = 32 * WORDS * HIDDEN
    assert (rank["peak_bytes"] > 14 * head) == (adapters == 0)  # in fp32 and 16 bits, its weight in 16, and those of all shards


def count(rank, kind, size=None, group="shards"):
    return sum(one["count"] for one in rank["collectives"] if one["kind"] == kind and one["group"] == group and size in (None, one["bytes"]))


# Gathers of a layer in a micro-batch: ZeRO 3 gathers again for the backward, and recompute does not need a third one.
@pytest.mark.parametrize("zero, recompute, gathers", [(3, "none", 2), (2, "none", 1), (3, "full", 2), (2, "full", 1)])
def test_shares_and_collectives_are_those_of_the_layout(zero, recompute, gathers):
    [rank] = verified(f"zero {zero}, {recompute}")["ranks"]
    assert rank["own_parameter_bytes"] == 4 * PARAMETERS // 8
    assert 8 * PARAMETERS // 8 <= rank["bytes"]["optimizer"] < 8 * PARAMETERS // 8 + 1000  # and a number of steps for each weight
    assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * gathers, rank["collectives"]  # two micro-batches
    assert count(rank, "reduce-scatter", 4 * LAYER) == 2 * LAYERS  # in fp32
    assert rank["micro_batches_run"] == 2
    token = SEQUENCE * HIDDEN * 2
    if recompute == "full":  # each layer keeps its input; the head's norm, its product and the loss keep theirs
        assert LAYERS * token < rank["saved_bytes"]["0"] < (LAYERS + 4) * token + SEQUENCE * WORDS * 4


@pytest.mark.parametrize("environment", PLANS)
def test_traffic_is_what_is_priced(environment):
    rows = [(name, rank["rank"], row) for name in PLANS[environment] for rank in verified(name, environment)["ranks"] for row in rank["traffic"]]
    assert len(rows) >= len(PLANS[environment]) - 1  # one rank of CPUs may share nothing
    for name, rank, row in rows:
        # Models of a few layers: norms' gradients and the norm that clips weigh more than in those that people train.
        assert row["ratio"] == pytest.approx(1.0, abs=0.02), (name, rank, row)


@pytest.mark.parametrize("name", LARGE)
def test_the_peak_is_the_one_that_mpt_predicts(name):
    [rank] = verified(name)["ranks"]
    assert abs(rank["peak_bytes"] / rank["predicted_peak_bytes"] - 1) < 0.01, rank


def test_micro_batches_that_did_not_run_are_counted():
    [rank] = verified("many micro-batches")["ranks"]
    assert rank["micro_batches_run"] == 3 and count(rank, "all-gather", 2 * LAYER) == 8 * LAYERS * 2


def test_tensor_ranks_and_replicas_have_groups_of_their_own():
    [rank] = verified("tensor ranks")["ranks"]
    assert abs(rank["own_parameter_bytes"] / (4 * PARAMETERS / 8) - 1) < 0.01  # norms are on both tensor ranks
    spread = SEQUENCE * HIDDEN * 2
    # Before attention and before the MLP, forward and backward; before the head, and after the embedding.
    assert count(rank, "all-gather", spread, "tensor") >= 4 * 4 * LAYERS and count(rank, "reduce-scatter", spread, "tensor") >= 4 * 4 * LAYERS


def test_a_pipeline_runs_a_rank_of_each_stage():
    first, last = verified("stages")["ranks"]
    assert (first["rank"], last["rank"], first["stages"], last["stages"]) == (0, 4, [0], [1])
    hidden = SEQUENCE * HIDDEN * 2
    for rank in (first, last):
        assert count(rank, "send", hidden, "pipeline") == count(rank, "recv", hidden, "pipeline") == 4
    assert first["own_parameter_bytes"] + last["own_parameter_bytes"] == 4 * PARAMETERS // 4


def test_the_peak_is_that_of_the_allocator(tmp_path):
    """In fp32 on CPU ranks, where the same step runs with real tensors."""
    done = run(tmp_path, "torch", "-c", REAL, *save_all(tmp_path, ON_CPUS))
    assert done.returncode == 0, done.stderr
    real = dict(zip(ON_CPUS, map(int, done.stdout.split())))
    peaks = {name: verified(name)["ranks"][0]["peak_bytes"] for name in real}
    assert len(real) == len(ON_CPUS) and all(abs(peaks[name] / real[name] - 1) < 0.03 for name in real), (peaks, real)


@pytest.mark.parametrize("zero, recompute, gathers", [(3, "full", 2), (2, "none", 1)])
def test_transformers_is_split_as_accelerate_does(zero, recompute, gathers):
    figures = verified(f"trainer, zero {zero}, {recompute}")
    [rank] = figures["ranks"]
    assert set(figures["checked_by"]) == {"torch", "transformers", "accelerate"}
    assert rank["own_parameter_bytes"] == 4 * PARAMETERS // 8
    assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * gathers
    assert count(rank, "reduce-scatter", 2 * LAYER) == 2 * LAYERS  # in bf16, as accelerate asks
    if recompute == "full":  # in the update DTensor makes fake tensors as large as all weights, which a real run has not in memory
        assert rank["bytes"]["activations"] < 4 * PARAMETERS


# DDP copies whole gradients to buckets in fp32, and sums these after the last micro-batch.
@pytest.mark.parametrize("adapters", [0, ADAPTERS])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_replicas_sum_what_is_trained_once_in_a_step(recompute, adapters):
    [rank] = verified(f"trainer, replicas{', adapters' * (adapters > 0)}, {recompute}")["ranks"]
    trained = adapters or PARAMETERS
    assert rank["own_parameter_bytes"] == (2 * PARAMETERS + 4 * adapters if adapters else 4 * PARAMETERS)
    assert sum(one["bytes"] * one["count"] for one in rank["collectives"] if one["kind"] == "all-reduce") == 4 * trained
    assert 12 * trained <= rank["bytes"]["optimizer"] < 12 * trained + 1000  # two moments, and the buckets


# Frozen weights in 16 bits and adapters in 32 are shared out over 8 ranks; of a layer adapters alone have gradients.
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_adapters_are_sharded_with_the_weights_below_them(recompute):
    [rank] = verified(f"trainer, adapters, {recompute}")["ranks"]
    assert rank["own_parameter_bytes"] == (2 * PARAMETERS + 4 * ADAPTERS) // 8
    assert 8 * ADAPTERS // 8 <= rank["bytes"]["optimizer"] < 8 * ADAPTERS // 8 + 1000
    assert count(rank, "reduce-scatter", 2 * ADAPTERS // LAYERS) == 2 * LAYERS, rank["collectives"]  # two micro-batches
    assert count(rank, "all-gather", 2 * LAYER + 2 * ADAPTERS // LAYERS) == 2 * LAYERS * 2


@pytest.mark.parametrize("name", [name for name in PLANS["accelerate"] if name.startswith("trainer, ") and name.endswith("none")])
def test_the_trainer_keeps_what_mpt_counts(name):
    [rank] = verified(name)["ranks"]
    [saved] = [row["ratio"] for row in rank["beside"] if row["name"].startswith("saved")]
    assert saved == pytest.approx(1.0, abs=0.02), rank["beside"]


def test_every_second_layer_recomputes_by_the_trainer():
    saved = {}
    for layers in (0, 2, 4):
        [rank] = verified(f"trainer, {layers} layers")["ranks"]
        assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * 2  # the Trainer's gathers no third time
        saved[layers] = rank["saved_bytes"]["0"]
    assert abs((saved[0] + saved[4]) / 2 / saved[2] - 1) < 0.01, saved


# Its weights are in bf16, and so are both moments.
@pytest.mark.parametrize("zero, recompute, gathers", [(3, "none", 2), (2, "full", 1)])
def test_automodel_runs_a_step_of_its_own_recipe(zero, recompute, gathers):
    figures = verified(f"zero {zero}, {recompute}", "automodel")
    [rank] = figures["ranks"]
    assert set(figures["checked_by"]) == {"torch", "nemo_automodel"}
    assert rank["own_parameter_bytes"] == 2 * PARAMETERS // 8 and 4 * PARAMETERS // 8 <= rank["bytes"]["optimizer"] < 4 * PARAMETERS // 8 + 1000
    assert count(rank, "all-gather", 2 * LAYER) == 2 * LAYERS * gathers, rank["collectives"]  # two micro-batches
    assert count(rank, "reduce-scatter", 4 * LAYER) == 2 * LAYERS  # in fp32
    token, logits = SEQUENCE * HIDDEN * 2, SEQUENCE * WORDS
    if recompute == "full":  # each layer keeps its input; the head keeps logits in 16 and 32 bits
        assert LAYERS * token + 6 * logits < rank["saved_bytes"]["0"] < (LAYERS + 4) * token + 14 * logits, rank["saved_bytes"]


# "never" reshards after the backward, so a layer is gathered once for each micro-batch.
@pytest.mark.parametrize("zero, recompute, gathers", [(3, "none", 2), (2, "full", 1), (3, "selective", 2)])
def test_torchtitan_runs_a_step_of_its_own_trainer(zero, recompute, gathers):
    figures = verified(f"zero {zero}, {recompute}", "torchtitan")
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


@pytest.mark.parametrize("name", HELD)
def test_torchtitan_holds_what_mpt_predicts(name):
    figures = verified(f"wide, {name}", "torchtitan")
    rank = figures["ranks"][figures["fullest"]]
    assert abs(rank["peak_bytes"] / rank["predicted_peak_bytes"] - 1) < 0.02, rank


def test_torchtitan_runs_a_pipeline_of_tensor_ranks():
    first, last = verified("stages of tensor ranks", "torchtitan")["ranks"]
    assert (first["rank"], last["rank"], first["stages"], last["stages"]) == (0, 4, [0], [1])
    part = SEQUENCE // 2 * HIDDEN * 2  # stages exchange parts of sequences
    for rank in (first, last):
        assert count(rank, "send", part, "pipeline") == count(rank, "recv", part, "pipeline") == 8
        assert count(rank, "all-gather", 2 * part, "tensor") >= 8 * 4 * LAYERS // 2, rank["collectives"]


# A layer's experts beside its attention, norms and router; each rank of experts has its part of them.
@pytest.mark.parametrize("ranks, recompute", [(1, "none"), (4, "none"), (4, "full")])
def test_torchtitans_experts_exchange_even_parts(ranks, recompute):
    figures = verified(f"experts, {ranks} ranks, {recompute}", "torchtitan")
    [rank] = figures["ranks"]
    experts, rest = EXPERTS * 3 * HIDDEN * EXPERT, 4 * HIDDEN * HIDDEN + 2 * HIDDEN + 2 * HIDDEN // 4 + EXPERTS * HIDDEN
    assert rank["own_parameter_bytes"] == 4 * (LAYERS * (experts + rest) + 2 * WORDS * HIDDEN + HIDDEN) // 8
    # Tokens go to their experts and back, forward and backward; full recompute sends and fetches them once more.
    copies, rounds = SEQUENCE * CHOSEN * HIDDEN * 2, 6 if recompute == "full" else 4
    if ranks == 1:
        assert count(rank, "all-gather", 2 * (experts + rest)) == 2 * LAYERS * 2, rank["collectives"]  # two micro-batches
        assert count(rank, "all-to-all", group="experts") == 0 and figures["assumed"] == ""
        return
    assert count(rank, "all-gather", 2 * rest) == 2 * LAYERS * 2 == count(rank, "all-gather", 2 * experts // ranks, "shards of experts")
    assert count(rank, "all-to-all", copies, "experts") == 2 * LAYERS * rounds, rank["collectives"]
    assert figures["assumed"] == "Each rank sends equally many tokens to each rank of experts."


def test_torchtitans_experts_and_tensor_ranks_share_tokens():
    [rank] = verified("experts of tensor ranks", "torchtitan")["ranks"]
    assert count(rank, "all-to-all", SEQUENCE // 2 * CHOSEN * HIDDEN * 2, "experts") == 4 * LAYERS * 4  # four micro-batches


def test_the_router_of_torchtitan_keeps_32_bits():
    """Its product runs in fp32 on GPUs, and so do the experts' outputs where they are added."""
    saved = {name: verified(f"experts, {name}", "torchtitan")["ranks"][0]["saved_bytes"]["0"] for name in ("1 ranks, none", "4 ranks, full")}
    copies, wide = SEQUENCE * CHOSEN, 4 * SEQUENCE * HIDDEN
    experts = copies * (2 * HIDDEN + 4 * HIDDEN + 5 * 2 * EXPERT)  # the input, the output, and of two products both results, the activation and their product
    assert LAYERS * (experts + wide) < saved["1 ranks, none"] < LAYERS * (experts + wide + 11 * SEQUENCE * HIDDEN * 2), saved
    assert LAYERS * SEQUENCE * HIDDEN * 2 < saved["4 ranks, full"] < (LAYERS + 4) * SEQUENCE * HIDDEN * 2, saved


def test_the_last_line_says_by_what_and_what_is_left_out(tmp_path):
    plan_of(tmp_path, dp=8, zero=3)
    done = run(tmp_path, "torch", "-m", "mpt.verify", "plan.json")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("Checked by torch 2.") and re.search(r"[GMK]iB of live tensors on the fullest rank", last), done.stdout + done.stderr
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


def test_offload_is_refused_for_the_trainer(tmp_path):
    plan_of(tmp_path, framework="transformers-fsdp", zero=3, offload="on")
    done = run(tmp_path, "accelerate", "-m", "mpt.verify", "plan.json")
    assert done.returncode == 2 and "weights in the host's memory" in " ".join(done.stderr.split()), done.stdout + done.stderr


@pytest.mark.parametrize("framework", ["megatron-core", "deepspeed"])
def test_other_frameworks_are_refused_by_name(tmp_path, framework):
    plan_of(tmp_path, framework=framework)
    assert f"MPT cannot verify {framework} yet; expected pytorch, transformers-fsdp, transformers-ddp, torchtitan, automodel" in refused(tmp_path, "plan.json")
    with pytest.raises(mpt.InputError, match=framework):
        mpt.verify(tmp_path / "plan.json")


def test_a_missing_package_is_named(tmp_path):
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        pytest.skip("this Python has torch")
    plan_of(tmp_path, dp=8, zero=3)
    assert "plan for pytorch: found no package torch in this Python; expected torch 2.15; pip install torch" in refused(tmp_path, "plan.json")
