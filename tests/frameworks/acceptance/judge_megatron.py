# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM: its argument parser, validation and configuration classes read what run_megatron.sh starts."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest.mock

from judging import judge

import stubs  # noqa: E402

stubs.use("transformer_engine", "transformer_engine_torch")
import torch  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator, unset_num_microbatches_calculator  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.training import arguments  # noqa: E402
from megatron.training.argument_utils import core_transformer_config_from_args  # noqa: E402
from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config  # noqa: E402
from megatron_fields import compare_layout, compare_model  # noqa: E402

# What a user adds: data, tokenizer and the length of the training.
TRAINING = "--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --train-iters 10".split()
TORCHRUN = """#!/usr/bin/env python3
import json, os, sys
json.dump({"arguments": sys.argv[1:], "environment": dict(os.environ)}, open(os.environ["MPT_STARTED"], "w"))
"""


def start(folder):
    """Runs the launch script with a stand-in torchrun, from another folder; returns what it would have started."""
    with tempfile.TemporaryDirectory() as scratch:
        program, started = os.path.join(scratch, "torchrun"), os.path.join(scratch, "started.json")
        with open(program, "w", encoding="utf-8") as file:
            file.write(TORCHRUN)
        os.chmod(program, 0o755)
        environment = {"PATH": scratch + ":/usr/bin:/bin", "HOME": scratch, "MPT_STARTED": started}
        script = os.path.join(os.path.abspath(folder), "run_megatron.sh")
        result = subprocess.run(["bash", script, *TRAINING], cwd=scratch, env=environment, capture_output=True, text=True)
        if result.returncode != 0 or not os.path.exists(started):
            raise RuntimeError(f"run_megatron.sh: {result.stderr.strip()}")
        with open(started, encoding="utf-8") as file:
            return json.load(file)


def launched(folder):
    """The processes that torchrun starts, the arguments of the training script, and its environment."""
    job = start(folder)
    words = job["arguments"]
    script = next(i for i, word in enumerate(words) if word.endswith(".py"))
    options = dict(zip(words[:script:2], words[1:script:2]))
    return int(options["--nproc-per-node"]) * int(options["--nnodes"]), words[script + 1:], job["environment"]


def parse(folder, c):
    ranks, words, environment = launched(folder)
    c.same("processes started", c.ranks, ranks)
    os.environ.update(RANK="0", WORLD_SIZE=str(ranks))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if "CUDA_DEVICE_MAX_CONNECTIONS" in environment:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = environment["CUDA_DEVICE_MAX_CONNECTIONS"]
    sys.argv = ["pretrain_gpt.py", *words]
    args = arguments.parse_args()
    arguments.validate_args(args)
    return args


def compare_arguments(c, args):
    """What the argument list alone says."""
    c.same("data", c.layout["data"], args.data_parallel_size)
    c.same("micro_batch", c.layout["micro_batch"], args.micro_batch_size)
    c.same("global_batch", c.workload["global_batch"], args.global_batch_size)
    c.same("sequence", c.workload["sequence"], args.seq_length)
    c.same("vocab", c.model["vocab"], args.vocab_size)
    c.same("tied_embeddings", c.model["tied_embeddings"], not args.untie_embeddings_and_output_weights)
    c.same("position", {"rotary": "rope", "learned": "learned_absolute"}.get(c.model["position"], "none"),
           "rope" if args.position_embedding_type == "yarn" else args.position_embedding_type)
    c.same("order", c.layout["order"] == "data_outermost", bool(args.use_tp_pp_dp_mapping))
    scaling = c.model.get("rotary_scaling") or {}
    if scaling.get("kind") == "llama3":
        c.same("rotary_scaling.factor", scaling["factor"], float(args.rope_scaling_factor) if args.use_rope_scaling else 1.0)
    if c.model["position"] == "rotary":
        c.same("rotary_base", float(c.model["rotary_base"]), float(args.rotary_base))


class StepBegan(Exception):
    """The schedule has accepted configuration and micro-batches, and wants the first input."""


def begin(*_, **__):
    raise StepBegan


def interleave(c, config, micro_batches):
    """Starts Megatron-LM's interleaved schedule, on the last rank, until it wants its first input."""
    config.timers = None
    group = types.SimpleNamespace(size=lambda: c.layout["pipeline"], rank=lambda: c.layout["pipeline"] - 1)
    one = types.SimpleNamespace(size=lambda: 1, rank=lambda: 0)
    model = [torch.nn.Identity() for _ in range(c.layout["chunks"])]
    for chunk in model:
        chunk.config = config
        chunk.model_type = ModelType.encoder_or_decoder
    communicator = types.SimpleNamespace(config=config, pp_group=group, recv_forward=begin,
                                          virtual_pipeline_model_parallel_size=c.layout["chunks"])
    zeros = torch.zeros
    try:
        with unittest.mock.patch("torch.zeros", lambda *shape, device=None, **options: zeros(*shape, **options)):
            schedules.forward_backward_pipelining_with_interleaving(
                forward_step_func=begin, data_iterator=[iter(())] * len(model), model=model, num_microbatches=micro_batches,
                seq_length=c.workload["sequence"], micro_batch_size=c.layout["micro_batch"], p2p_communicator=communicator,
                pg_collection=types.SimpleNamespace(tp=one, cp=one, pp=group))
    except StepBegan:
        return
    raise RuntimeError("the schedule ended before its first input")


def compare_steps(c, args, config):
    unset_num_microbatches_calculator()
    init_num_microbatches_calculator(rank=0, global_batch_size=args.global_batch_size, micro_batch_size=args.micro_batch_size,
                                     data_parallel_size=args.data_parallel_size)
    c.same("micro_batches", c.micro_batches, get_num_microbatches())
    if c.layout["chunks"] > 1:
        interleave(c, config, get_num_microbatches())


def check(folder, c):
    stubs.gpu(c.plan["cluster"]["device"]["name"])
    args = parse(folder, c)
    config = core_transformer_config_from_args(args)
    optimizer, _ = get_megatron_optimizer_config(args)
    compare_arguments(c, args)
    compare_model(c, config)
    compare_layout(c, config, get_megatron_ddp_config(args))
    compare_steps(c, args, config)
    c.same("offload_optimizer", c.layout["offload_optimizer"], bool(optimizer.optimizer_cpu_offload))


judge(check)
