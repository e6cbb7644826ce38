# SPDX-License-Identifier: Apache-2.0
"""One step of megatron-core on CPU ranks: the model, its weights by global name, and what the step leaves in its gradient buffers."""

import contextlib
import zlib

import torch

from .harness import Piece, Seen, norm_of, require
from .megatron_core import COUNTS, LENGTH, ROWS, VOCABULARY
from .small_models import rows


class Stream:
    """All work is done when the call returns."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, _=None):
        pass

    synchronize = wait = wait_event = wait_stream

    def record_event(self, *_):
        return self


def on_cpu(make):
    def made(*arguments, **options):
        if str(options.get("device")).startswith("cuda"):
            options["device"] = "cpu"
        options.pop("pin_memory", None)
        return make(*arguments, **options)
    return made


def cpu_for_cuda():
    """Megatron asks CUDA for its device, its streams and its random states; none of them matters here."""
    cpu = torch.device("cpu")
    torch.cuda.current_device = lambda: cpu
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.set_device = lambda *_: None
    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.stream = lambda *_: contextlib.nullcontext()
    torch.cuda.Stream, torch.cuda.current_stream = Stream, lambda *_: Stream()
    for name in ("zeros", "ones", "empty", "tensor", "full", "arange"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    type_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *kind, **options: type_of(self, *kind, **options) if kind else type_of(self).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.nn.Module.cuda = lambda self, *_, **__: self
    from megatron.core.tensor_parallel import random
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    random._set_cuda_rng_state = lambda *_, **__: None
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    from megatron.core.transformer.moe import token_dispatcher
    token_dispatcher.maybe_move_tensor_to_cpu = lambda tensor, as_numpy=False, **_: tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor
    from megatron.core.ssm.gated_delta_net import common
    common.HAVE_FLA = True
    common.l2norm = lambda x, eps=1e-6, **_: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)


class Norm(torch.nn.RMSNorm):
    """Torch's norm, marked as Transformer Engine's is."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps)
        self.weight.sequence_parallel = config.sequence_parallel


def gathering_attention():
    """Megatron's own core attention over the keys and values of all context ranks."""
    from megatron.core import parallel_state as groups
    from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    class Gathering(torch.nn.Module):
        def __init__(self, config, *arguments, **options):
            super().__init__()
            ranks, config.context_parallel_size = config.context_parallel_size, 1  # it refuses context ranks
            self.inner = DotProductAttention(config, *arguments, **options)
            config.context_parallel_size = ranks

        def forward(self, query, key, value, *arguments, **options):
            ranks, rank = groups.get_context_parallel_world_size(), groups.get_context_parallel_rank()
            # Rank r has the pieces r and 2 x ranks - 1 - r of each sequence.
            order = [piece for r in range(ranks) for piece in (r, 2 * ranks - 1 - r)]
            whole = []
            for part in (query, key, value):
                pieces = gather_from_sequence_parallel_region(part, group=groups.get_context_parallel_group()).chunk(2 * ranks)
                whole.append(torch.cat([pieces[order.index(n)] for n in range(2 * ranks)]))
            pieces = self.inner(*whole, *arguments, **options).chunk(2 * ranks)
            return torch.cat([pieces[rank], pieces[2 * ranks - 1 - rank]])
    return Gathering


def config_of(fields, axes):
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.transformer import TransformerConfig
    chunks = axes.get("chunks", 1)
    more = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1} if axes.get("recompute") == "full" else {}
    if axes.get("recompute") == "core":
        more = {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if "experimental_attention_variant" not in fields:
        more["transformer_impl"] = "local"
    if chunks > 1:
        more.update(virtual_pipeline_model_parallel_size=chunks, overlap_p2p_comm=axes["overlap_p2p"], batch_p2p_comm=not axes["overlap_p2p"])
    return TransformerConfig(
        num_layers=4, hidden_size=32, num_attention_heads=4, num_query_groups=2, kv_channels=8, ffn_hidden_size=48, normalization="RMSNorm",
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0,
        use_cpu_initialization=True, bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
        gradient_accumulation_fusion=False, apply_rope_fusion=False, persist_layer_norm=False, params_dtype=torch.float32,
        pipeline_dtype=torch.float32, deallocate_pipeline_outputs=True, tensor_model_parallel_size=axes.get("tp", 1),
        pipeline_model_parallel_size=axes.get("pp", 1), context_parallel_size=axes.get("cp", 1), expert_model_parallel_size=axes.get("ep", 1),
        expert_tensor_parallel_size=axes.get("etp", axes.get("tp", 1)), sequence_parallel=axes.get("sp", False),
        calculate_per_token_loss=axes.get("per_token", False), finalize_model_grads_func=finalize_model_grads, **{**fields, **more})


def layers_of(config, part, pipeline_rank):
    """The local layers of this stage, with norms that run with sequence parallelism."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
    specs = []
    for number in range(config.num_layers):
        spec = get_gpt_layer_local_spec(config.num_moe_experts, False, config.qk_layernorm, normalization="RMSNorm")
        inside = spec.submodules
        inside.input_layernorm = inside.pre_mlp_layernorm = Norm
        inside.sharded_state_dict_keys_map = {}
        attention = inside.self_attention.submodules
        if config.qk_layernorm:
            attention.q_layernorm = attention.k_layernorm = Norm
        if config.context_parallel_size > 1:
            attention.core_attention = gathering_attention()
        if config.experimental_attention_variant and (number + 1) % config.linear_attention_freq:
            inside.self_attention = ModuleSpec(GatedDeltaNet, submodules=GatedDeltaNetSubmodules(ColumnParallelLinear, Norm, RowParallelLinear))
        specs.append(spec)
    first = get_transformer_layer_offset(config, vp_stage=part, pp_rank=pipeline_rank)
    count = get_num_layers_to_build(config, vp_stage=part, pp_rank=pipeline_rank)
    return TransformerBlockSubmodules(layer_specs=specs[first:first + count], layer_norm=Norm)


def parts_of(config, tied, axes):
    """This rank's chunks of the model, each in Megatron's own gradient buffers."""
    from megatron.core import parallel_state as groups
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    buffers = DistributedDataParallelConfig(use_distributed_optimizer=axes.get("zero", 0) == 1)
    chunks = axes.get("chunks", 1)
    parts = []
    for n in range(chunks):
        part = n if chunks > 1 else None
        ends = {"pre_process": groups.is_pipeline_first_stage(ignore_virtual=False, vp_stage=part),
                "post_process": groups.is_pipeline_last_stage(ignore_virtual=False, vp_stage=part)}
        model = GPTModel(config, layers_of(config, part, groups.get_pipeline_model_parallel_rank()), VOCABULARY, LENGTH, parallel_output=True,
                         share_embeddings_and_output_weights=tied, position_embedding_type="rope", vp_stage=part, **ends)
        fill(model)
        parts.append(DistributedDataParallel(config, buffers, model))
    return parts


def shares(model):
    """The model's tensors with their places in the whole model, as Megatron's checkpoints know them."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory, apply_factories
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    state = model.sharded_state_dict()
    require(any(isinstance(value, (ShardedTensor, ShardedTensorFactory)) for value in nested_values(state)), "no sharded tensors")
    apply_factories(state)
    return [value for value in nested_values(state) if isinstance(value, ShardedTensor) and value.data is not None and value.data.is_floating_point()]


def name_of(share):
    """A layer's or an expert's number is part of the name."""
    return ".".join([share.key, *map(str, share.global_offset[:share.prepend_axis_num])])


def place_of(share):
    start = share.prepend_axis_num
    return tuple(slice(at, at + size) for at, size in zip(share.global_offset[start:], share.data.shape))


def fill(model):
    """Gives each weight its part of numbers that its name alone decides."""
    with torch.no_grad():
        for share in shares(model):
            whole = torch.randn(share.global_shape, generator=torch.Generator().manual_seed(zlib.crc32(share.key.encode())))
            drawn = 1 + 0.1 * whole if share.key.endswith("norm.weight") else 0.2 * whole
            share.data.copy_(drawn[(*share.global_offset[:share.prepend_axis_num], *place_of(share))])


def gradients_of(parts, whole):
    """Gradients by global name."""
    found = {}
    for part in parts:
        weights = [(weight, weight.data) for weight in part.module.parameters()]
        for weight, _ in weights:
            weight.data = weight.main_grad
        for share in shares(part.module):
            offset = tuple(share.global_offset[share.prepend_axis_num:])
            found.setdefault(name_of(share), []).append(Piece(offset, share.data.detach().clone()))
        for weight, value in weights:
            weight.data = value
    return {name: joined(pieces) for name, pieces in found.items()} if whole else found


def joined(pieces):
    """The whole gradient, of one process; a gated product has two pieces."""
    ends = [[start + size for start, size in zip(piece.offset, piece.value.shape)] for piece in pieces]
    whole = torch.full([max(end) for end in zip(*ends)], float("nan"))
    for offset, value in pieces:
        whole[tuple(slice(start, start + size) for start, size in zip(offset, value.shape))] = value
    return whole


def gather_buffers(parts):
    """With the distributed optimizer each data rank has summed its share of a buffer alone."""
    for part in parts:
        for buffer in part.buffers + part.expert_parallel_buffers:
            group = buffer.data_parallel_group
            size, rank = group.size(), group.rank()
            for bucket in buffer.buckets:
                share = bucket.grad_data.numel() // size
                torch.distributed.all_gather_into_tensor(bucket.grad_data, bucket.grad_data[rank * share:(rank + 1) * share].clone(), group=group)


def batches(axes, data_rank):
    """This data rank's micro-batches; a context rank keeps its two pieces of each sequence."""
    from megatron.core import parallel_state as groups
    tokens, targets = rows(ROWS, LENGTH, VOCABULARY)
    counts = torch.tensor(COUNTS[axes.get("masks")])
    mask = (torch.arange(LENGTH)[None] < counts[:, None]).float()
    places = torch.arange(LENGTH)[None].expand(ROWS, LENGTH)
    data, ranks, rank = axes.get("dp", 1), groups.get_context_parallel_world_size(), groups.get_context_parallel_rank()
    keep = torch.cat([torch.arange(LENGTH).chunk(2 * ranks)[n] for n in (rank, 2 * ranks - 1 - rank)])
    mine = [value.chunk(data)[data_rank][:, keep if ranks > 1 else slice(None)] for value in (tokens, targets, mask, places)]
    return list(zip(*(value.split(axes.get("micro_batch", 1)) for value in mine)))


def forward_step(iterator, model):
    """As Megatron-LM's pretrain_gpt.py: the sum of the losses and the count of tokens."""
    tokens, targets, mask, places = next(iterator)
    losses = model(tokens, places, None, labels=targets)

    def loss_of(output):
        total, count = (output.flatten() * mask.flatten()).sum(), mask.sum().int()
        return total, count, {"loss": (total.detach().item(), count.item())}
    return losses, loss_of


def step(model, models, axes, whole=False):
    """Loss, gradients and norm of a step whose learning rate is zero."""
    from megatron.core import parallel_state as groups
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed  # noqa: F401  states are stand-ins
    groups.initialize_model_parallel(axes.get("tp", 1), axes.get("pp", 1), axes.get("chunks") if axes.get("chunks", 1) > 1 else None,
                                     context_parallel_size=axes.get("cp", 1), expert_model_parallel_size=axes.get("ep", 1),
                                     expert_tensor_parallel_size=axes.get("etp"))
    fields = {**(models["experts"] if model.startswith("experts") else {}), **models[model]}
    if axes.get("objective", "").startswith("balance"):
        axes = {key: value for key, value in axes.items() if not (whole and key == "per_token")}
    config = config_of(fields, axes)
    parts = parts_of(config, model.endswith("tied"), axes)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="sgd" if axes.get("zero", 0) == 0 else "adam", lr=0.0, min_lr=0.0, weight_decay=0.0, clip_grad=1e9,
                                                       use_distributed_optimizer=axes.get("zero", 0) == 1), parts)
    micro = batches(axes, groups.get_data_parallel_rank())
    losses = get_forward_backward_func()(forward_step_func=forward_step, data_iterator=[iter(micro) for _ in parts] if len(parts) > 1 else iter(micro),
                                         model=parts if len(parts) > 1 else parts[0], num_microbatches=len(micro), seq_length=LENGTH,
                                         micro_batch_size=axes.get("micro_batch", 1), forward_only=False)
    if axes.get("zero", 0) == 1:
        gather_buffers(parts)
    found = gradients_of(parts, whole)
    _, norm, _ = optimizer.step()
    return Seen(None, found, float(norm), {})
