# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM: its argument parser, validation and configuration classes read what run_megatron.sh starts."""

import json
import os
import sys
import types
import unittest.mock

import launching
from judging import judge

import stubs  # noqa: E402

stubs.use("transformer_engine", "transformer_engine_torch")
import torch  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator, unset_num_microbatches_calculator  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.training import arguments  # noqa: E402
from megatron.training.argument_utils import core_transformer_config_from_args, gpt_config_from_args  # noqa: E402
from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config  # noqa: E402
from megatron_fields import compare_layout, compare_model, compare_optimizer, compare_yarn, queues_of_launches  # noqa: E402
from torch.distributed.run import get_args_parser  # noqa: E402

# What a user adds: data, tokenizer and the length of the training. The trial that mpt-plan prints has them.
with open(os.path.join(os.path.dirname(__file__), "../../../frameworks/megatron-core/framework.json"), encoding="utf-8") as file:
    TRAINING = [word.replace("@steps@", "10") for word in json.load(file)["trial"]["arguments"]]


def launched(folder, node):
    """The processes that torchrun starts on a node, the arguments of the training script, and its environment."""
    script = os.path.join(os.path.abspath(folder), "run_megatron.sh")
    (job,) = launching.run(["bash", script, *TRAINING], {"NODE_RANK": str(node)})
    words = get_args_parser().parse_args(job["arguments"])
    return words, job["environment"]


def parse(folder, c):
    job, environment = launched(folder, 0)
    others = int(job.nnodes) - 1
    last, _ = launched(folder, others)
    c.same("processes started", c.ranks, int(job.nproc_per_node) * others + int(last.nproc_per_node))
    c.same("queues of launches", queues_of_launches(c), environment.get("CUDA_DEVICE_MAX_CONNECTIONS"))
    os.environ.update(RANK="0", WORLD_SIZE=str(c.ranks))
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    for name in ("NVTE_CPU_OFFLOAD_V1", "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_ALGO"):
        if name in environment:
            os.environ[name] = environment[name]
    sys.argv = ["pretrain_gpt.py", *job.training_script_args]
    args = arguments.parse_args()
    arguments.validate_args(args)
    return args


def compare_arguments(c, args):
    """What the argument list alone says."""
    c.same("data", c.layout["data"], args.data_parallel_size)
    c.same("micro_batch", c.layout["micro_batch"], args.micro_batch_size)
    c.same("global_batch", c.workload["global_batch"], args.global_batch_size)
    c.same("sequence", c.workload["sequence"], args.seq_length)
    c.same("order", c.layout["order"] == "data_outermost", bool(args.use_tp_pp_dp_mapping))


def compare_positions(c, model):
    """The model's configuration, as pretrain_gpt.py makes it of the arguments."""
    scaling = c.model.get("rotary_scaling") or {}
    kind = {"rotary": "rope", "learned": "learned_absolute"}.get(c.model["position"], "none")
    yarn = scaling.get("kind") in ("yarn", "other") and c.model["attention"] != "latent"
    c.same("vocab", c.model["vocab"], model.vocab_size)
    c.same("vocab is padded", [True, c.execution["vocabulary_multiple"]], [model.should_pad_vocab, model.make_vocab_size_divisible_by])
    c.same("tied_embeddings", c.model["tied_embeddings"], model.share_embeddings_and_output_weights)
    c.same("position", "yarn" if yarn else kind, model.position_embedding_type)
    c.same("loss in fp16", False, model.fp16_lm_cross_entropy)
    if kind != "rope":
        c.same("max_positions", max(c.model["max_positions"], c.workload["sequence"]), model.seq_length)
        return
    # Of latent attention the base stands in the layers' configuration, which GPTModel prefers.
    holder = model.transformer if c.model["attention"] == "latent" else model
    c.same("rotary_base", float(c.model["rotary_base"]), float(holder.rotary_base))
    c.same("rotary_fraction", c.model["rotary_fraction"], model.rotary_percent)
    linear = scaling["factor"] if scaling.get("kind") == "linear" else None
    c.same("linear scaling of positions", linear, model.seq_len_interpolation_factor)
    c.same("Llama 3's scaling", scaling["factor"] if scaling.get("kind") == "llama3" else None,
           float(model.rope_scaling_factor) if model.rope_scaling else None)


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
    compare_positions(c, gpt_config_from_args(args, config))
    compare_model(c, config)
    compare_layout(c, config, get_megatron_ddp_config(args))
    compare_steps(c, args, config)
    compare_optimizer(c, optimizer)
    if args.position_embedding_type == "yarn":
        compare_yarn(c, config)


judge(check)
