# SPDX-License-Identifier: Apache-2.0
"""Plans for torchtitan: its own model, parallelize and pipelining functions, loss, optimizer and step, by the configuration that MPT exports."""

from __future__ import annotations

import contextlib
import os
import runpy
import tempfile
from typing import Any, Dict, List
from unittest import mock

import torch

with mock.patch.object(torch._utils, "_get_available_device_type", lambda: "cpu"):  # torchtitan asks when it is imported
    from torchtitan.components.loss import ChunkedLossWrapper
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config import TORCH_DTYPE_MAP
    from torchtitan.distributed import ParallelDims, pipeline_parallel
    from torchtitan.distributed import utils as dist_utils
    from torchtitan.models.common.attention import FlexAttention
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher
    from torchtitan.tools import utils
    from torchtitan.trainer import Trainer
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.nn.attention.flex_attention import AuxOutput, BlockMask

from .._door import wrong
from ._rank import MOST_MICRO_BATCHES, Watch, _flash, measure

GROUPS = {"pp": "pipeline", "dp_replicate": "replicas", "dp_shard": "shards", "tp": "tensor", "ep": "experts", "efsdp": "shards of experts"}
BLOCK = 128  # tokens of a block of FlexAttention's mask


def _refused(finding: str, expectation: str, remedy: str = "compare a run with mpt-plan diagnose") -> Exception:
    return wrong("plan for torchtitan", f"{finding}; MPT cannot verify that yet", expectation, remedy)


def _flex(q: Any, k: Any, v: Any, *, score_mod: Any, scale: Any, return_aux: Any, **_: Any) -> Any:
    """FlexAttention keeps what flash attention keeps: queries, keys, values, the result, and a number for each of its rows."""
    if score_mod is not None or return_aux.lse:
        raise _refused("attention with changed scores or sinks", "plain attention")
    if q.shape[-1] == v.shape[-1]:
        return _flash(q, k, v, is_causal=True, scale=scale), AuxOutput()
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True, scale=scale)[0], AuxOutput()


def _mask(positions: torch.Tensor) -> BlockMask:
    """A mask of the sizes of torchtitan's, which finds documents from values."""
    rows, length = positions.shape[0], -(-positions.shape[1] // BLOCK)
    counts, indices = (torch.zeros(rows, 1, *size, dtype=torch.int32) for size in ((length,), (length, length)))
    return BlockMask.from_kv_blocks(counts, indices, counts.clone(), indices.clone(), BLOCK_SIZE=BLOCK, seq_lengths=(positions.shape[1],) * 2)


class _Autocast(torch.amp.autocast):
    """Casts to fp32 as well, as the gate of experts asks: on GPUs PyTorch does, and on CPUs it only warns."""

    def __init__(self, device_type: str, dtype: Any = None, **named: Any):
        super().__init__(device_type, **named)
        self.fast_dtype = dtype or self.fast_dtype


def _even(dispatcher: Any, tokens: torch.Tensor, group: Any, received: List[int], sent: List[int], exchange: Any = AllToAllTokenDispatcher._dispatch_token_exchange) -> Any:
    """Each rank sends equally many tokens to each rank of experts, whatever the router chose. The lists are those that bring tokens back, too."""
    sent[:] = received[:] = [(len(tokens) + later) // len(sent) for later in range(len(sent))]
    return exchange(dispatcher, tokens, group, received, sent)


def _routed() -> Any:
    """How many tokens go where is in values, which fake tensors do not have."""
    stack = contextlib.ExitStack()
    for one in (mock.patch.object(AllToAllTokenDispatcher, "_dispatch_token_exchange", _even), mock.patch.object(FakeTensor, "tolist", lambda counts: [0] * len(counts)),
                mock.patch.object(torch, "autocast", _Autocast)):
        stack.enter_context(one)
    return stack


def _staged(config: Any, dims: Any) -> Any:
    """PipelineStage with sizes of its ends, which it asks of the other ranks where there are some."""
    rows, length = config.parallelism.pipeline_parallel_microbatch_size, config.training.seq_len // dims.cp
    part = length // dims.tp if config.parallelism.enable_sequence_parallel else length
    hidden = lambda tokens: torch.empty(rows, tokens, config.model_spec.model.dim, dtype=TORCH_DTYPE_MAP[config.training.mixed_precision_param],
                                        device="meta", requires_grad=True)

    def stage(model: Any, index: int, stages: int, *words: Any, **named: Any) -> Any:
        first = torch.empty(rows, length, dtype=torch.int64, device="meta")
        return PipelineStage(model, index, stages, *words, input_args=hidden(part) if index else first,
                             output_args=hidden(part if index < stages - 1 else length), **named)

    return mock.patch.object(pipeline_parallel, "PipelineStage", stage)


class Trained:
    """torchtitan's Trainer without data, with weights that have no values. What its __init__ does, in its order."""

    def __init__(self, config: Any, ranks: int):
        self.config, spec, parallelism = config, config.model_spec, config.parallelism
        self.dims = dims = ParallelDims.from_config(parallelism, ranks)
        dims.build_mesh()
        dist_utils.set_spmd_backend(parallelism.spmd_backend)
        spec.model.update_from_config(config=config)
        trainer = self.trainer = object.__new__(Trainer)
        trainer.config, trainer.parallel_dims, trainer.model_config, trainer.device = config, dims, spec.model, torch.device("cpu")
        trainer.loss_fn, trainer.ntokens_seen = config.loss.build(compile_config=config.compile), 0
        with torch.device("meta"), utils.set_default_dtype(TORCH_DTYPE_MAP[config.training.dtype]):
            model = spec.model.build()
        common = {"parallel_dims": dims, "training": config.training, "parallelism": parallelism, "compile_config": config.compile,
                  "ac_config": config.activation_checkpoint, "dump_folder": ""}
        if dims.pp_enabled:
            with _staged(config, dims):
                trainer.pp_schedule, trainer.model_parts, trainer.pp_has_first_stage, trainer.pp_has_last_stage = spec.pipelining_fn(
                    model, device=trainer.device, model_config=spec.model, parallelize_fn=spec.parallelize_fn, loss_fn=trainer.loss_fn, **common)
            self.stages = [stage.stage_index for stage in getattr(trainer.pp_schedule, "_stages", None) or [trainer.pp_schedule._stage]]
        else:
            trainer.model_parts, self.stages = [spec.parallelize_fn(model, **common)], [0]
        if isinstance(trainer.loss_fn, ChunkedLossWrapper) and (not dims.pp_enabled or trainer.pp_has_last_stage):
            head = trainer.model_parts[-1].lm_head
            trainer.loss_fn.set_lm_head(head)
            if isinstance(head, FSDPModule):
                head.set_reshard_after_forward(True)  # as the loss leaves it for all later steps
            trainer.model_parts[-1]._skip_lm_head = True
        trainer.train_context, trainer.fwd_bwd_fn = dist_utils.get_spmd_context(parallel_dims=dims), trainer._forward_backward_body
        degree = dims.get_mesh("batch").size() if dims.dp_enabled else 1
        local = config.training.local_batch_size
        rounds = local // parallelism.pipeline_parallel_microbatch_size if dims.pp_enabled else config.training.global_batch_size // (local * degree)
        self.micro_batches = rounds if dims.pp_enabled else min(rounds, MOST_MICRO_BATCHES)
        self.repeated = rounds - self.micro_batches
        self.shape = (parallelism.pipeline_parallel_microbatch_size if dims.pp_enabled else local, config.training.seq_len)
        self.names = {mesh.get_group(name).group_name: GROUPS[name] for mesh in dims._global_meshes.values() for name in mesh.mesh_dim_names
                      if name in GROUPS}

    def allocate(self) -> None:
        for part in self.trainer.model_parts:
            part.to_empty(device="cpu")
            if getattr(part, "enable_weight_tying", False):  # as Decoder.init_states, which gives the weights values, too
                part.tok_embeddings.weight = part.lm_head.weight
            part.train()
        self.parameters = [parameter for part in self.trainer.model_parts for parameter in part.parameters()]
        settings = self.config.optimizer if self.config.optimizer.param_groups else default_adamw()  # those of torchtitan's own configurations
        self.optimizer = settings.build(model_parts=self.trainer.model_parts)
        for one in self.optimizer:
            one.state = self.optimizer.state
        if self.config.model_spec.post_optimizer_build_fn:  # moves the experts' biases
            self.config.model_spec.post_optimizer_build_fn(self.optimizer, self.trainer.model_parts, self.dims)

    def forward_and_backward(self, watch: Watch) -> None:
        for stage, part in zip(self.stages, self.trainer.model_parts):
            def forward(*inputs: Any, of: Any = part.forward, stage: int = stage, **named: Any) -> Any:
                with watch.forward(stage):
                    return of(*inputs, **named)
            part.forward = forward
            part.get_attention_masks = _mask
        tokens, valid = (lambda: torch.zeros(self.shape, dtype=torch.int64)), torch.zeros((), dtype=torch.int64)
        batch = lambda: {"input": tokens(), "positions": tokens()}
        with mock.patch.object(FlexAttention, "compiled_flex_attn", staticmethod(_flex)), _routed():
            if self.dims.pp_enabled:
                several = range(self.micro_batches)
                self.trainer.forward_backward_step(input_dict=[batch() for _ in several], labels=[tokens() for _ in several], global_valid_tokens=valid)
                watch.marks += [watch.counting.calls.copy()] * 2
            for _ in range(0 if self.dims.pp_enabled else self.micro_batches):
                self.trainer.forward_backward_step(input_dict=batch(), labels=tokens(), global_valid_tokens=valid)
                watch.marks.append(watch.counting.calls.copy())

    def update(self) -> None:
        dist_utils.clip_grad_norm_(self.parameters, self.config.training.max_norm, foreach=True, pp_mesh=self.dims.get_optional_mesh("pp"),
                                   ep_enabled=self.dims.ep_enabled)
        self.optimizer.step()
        self.optimizer.zero_grad()


def _configured(plan: Any, folder: str) -> Any:
    """The exported function, which makes a configuration."""
    plan.export("torchtitan", folder)
    made = runpy.run_path(os.path.join(folder, "mpt_torchtitan.py"))["mpt_plan"]
    config = made()
    if config.compile.enable or not config.training.disable_cuda_graphs:
        raise _refused("layers under torch.compile, or CUDA graphs", "eager layers", "plan again with --execution elementwise=eager")
    if plan.layout.context > 1:
        raise _refused("context ranks, which torchtitan divides by values", "no context ranks")
    if not all(isinstance(layer.attention.inner_attention, FlexAttention.Config) for layer in config.model_spec.model.layers):
        raise _refused("attention by another function than FlexAttention", "a model with FlexAttention")
    if not all(type(layer.moe.routed_experts.token_dispatcher) is AllToAllTokenDispatcher.Config for layer in config.model_spec.model.layers if getattr(layer, "moe", None)):
        raise _refused("experts whose tokens another library than PyTorch exchanges, or in fewer bits", "comm_backend=\"standard\"")
    return made


def measured(plan: Any) -> List[Dict[str, Any]]:
    """A rank of each pipeline rank."""
    if utils.device_type != "cpu":
        raise wrong("verify", "torchtitan imported before, for GPUs", "a process of its own", "run it apart: python -m mpt.verify plan.json")
    layout = plan.layout
    apart = layout.data * layout.tensor
    with tempfile.TemporaryDirectory() as folder:
        made = _configured(plan, folder)
        return [measure(rank * apart, layout.pipeline * apart, plan.cluster.device.kind == "gpu", lambda: Trained(made(), layout.pipeline * apart))
                for rank in range(layout.pipeline)]
