# SPDX-License-Identifier: Apache-2.0
# Written by scripts/make_python_types from the JSON Schemas in docs/.
"""The fields of plans as classes, and the options of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Sequence, TypedDict, Union



@dataclass
class Latent:
    query_rank: int  # rank of the query compression; 0 if absent
    key_value_rank: int  # rank of the key-value compression
    nope_head_dim: int  # head size without rotary part
    rope_head_dim: int  # head size of the rotary part
    value_head_dim: int  # head size of values


@dataclass
class Compressed:
    query_rank: int  # rank of the query compression
    output_groups: int  # groups of heads that are projected first
    output_rank: int  # width of each such projection
    ratio: Optional[int] = None  # tokens of an entry; 0: no entries, the window alone
    overlapping: Optional[bool] = None  # entries are made of twice as many tokens


@dataclass
class Scaling:
    kind: Literal["linear", "llama3", "yarn", "longrope", "dynamic", "other"]  # rule of the scaling
    factor: float  # by which frequencies fall
    low_frequency_factor: Optional[float] = None  # llama3: wavelengths above original / this fall
    high_frequency_factor: Optional[float] = None  # llama3: those below original / this stay
    original_positions: Optional[int] = None  # positions of pre-training
    beta_fast: Optional[float] = None  # yarn: turns above which frequencies stay
    beta_slow: Optional[float] = None  # yarn: turns below which frequencies fall
    mscale: Optional[float] = None  # yarn: growth of queries and keys; 0 if not given
    mscale_all_dim: Optional[float] = None  # yarn: growth of scores; 0 if not given
    whole_dimensions: Optional[bool] = None  # yarn: bounds are rounded to whole dimensions


@dataclass
class Rotary:
    base: Optional[float] = None  # base of the frequencies
    fraction: Optional[float] = None  # share of a head that is rotated
    scaling: Optional[Scaling] = None  # scaling of the frequencies


@dataclass
class Index:
    heads: int  # heads of the index
    head_dim: int  # size of such a head
    chosen: int  # keys that each query sees, or blocks of keys
    block: Optional[int] = None  # keys of a block that is chosen as a whole
    shared: Optional[bool] = None  # the choice of the layer with an index below serves again


@dataclass
class Attention:
    heads: int  # query heads
    kv_heads: int  # key and value heads
    head_dim: int  # size of a head of queries and keys
    value_dim: Optional[int] = None  # size of a head of values, where it is another; 0: the same
    latent: Optional[Latent] = None  # sizes of latent attention
    compressed: Optional[Compressed] = None  # attention over a window and pooled tokens
    rotary: Optional[Rotary] = None  # rotary positions of queries and keys
    qkv_bias: Optional[bool] = None  # biases on queries, keys, values
    output_bias: Optional[bool] = None  # bias on the output projection
    query_key_norm: Optional[Literal["none", "per_head", "full"]] = None  # norm on queries and keys
    sinks: Optional[bool] = None  # one learned logit per head
    window: Optional[int] = None  # tokens each query sees
    chunk: Optional[int] = None  # tokens of a chunk, beyond which no query sees
    index: Optional[Index] = None  # index that chooses the keys of sparse attention
    output_gate: Optional[Literal["none", "per_head", "elementwise"]] = None  # gate on the output of attention
    keys_are_values: Optional[bool] = None  # keys serve as values
    borrows_keys: Optional[bool] = None  # keys and values are those of a layer below
    score_cap: Optional[float] = None  # size at which scores are capped softly
    score_scale: Optional[float] = None  # factor on scores; absent: 1 / sqrt(head_dim)


@dataclass
class Linear:
    kind: Literal["gated_delta", "kimi_delta", "lightning", "mamba2", "mamba1"]  # kind of mixer
    heads: int  # heads of values
    head_dim: int  # size of a head of values
    key_heads: int  # heads of queries and keys; mamba2: groups
    key_dim: int  # size of a head of keys; mamba2: size of a state
    convolution: Optional[int] = None  # length of the convolution; 0: none
    chunk: Optional[int] = None  # tokens of a chunk of the training form
    full_rank_gate: Optional[bool] = None  # kimi_delta: one product makes the output gate
    step_rank: Optional[int] = None  # mamba1: rank of what makes a channel's step
    norms_steps: Optional[bool] = None  # mamba1: norms on the step and both states
    output_norm: Optional[bool] = None  # mamba2: a norm behind the core


@dataclass
class Convolution:
    length: int  # tokens that it spans


@dataclass
class Mlp:
    ffn_hidden: int  # inner width
    gated: bool  # it is gated (SwiGLU, GeGLU)
    activation: Literal["gelu", "gelu_tanh", "silu", "relu", "squared_relu", "xielu", "situ"]  # activation
    activation_limit: Optional[float] = None  # size at which inputs of a gated activation are cut off
    bias: Optional[bool] = None  # biases


@dataclass
class Moe:
    experts: int  # routed experts per layer
    experts_per_token: int  # routed experts that see each token
    expert: Mlp  # one routed expert
    shared_ffn_hidden: Optional[int] = None  # inner width of the shared experts; 0 if none
    shared_gate: Optional[bool] = None  # a gate multiplies the shared experts' output
    router_bias: Optional[bool] = None  # the router has one bias per expert
    bias_in_logits: Optional[bool] = None  # that bias adds to the logits; else it moves the choice alone
    bias_rate: Optional[float] = None  # step of a bias that moves the choice
    scores: Optional[Literal["softmax", "sigmoid"]] = None  # what the router makes of its logits
    normalized: Optional[bool] = None  # weights of a token's experts sum up to 1
    routed_scale: Optional[float] = None  # factor on what routed experts give
    balance_loss: Optional[float] = None  # coefficient of the load-balancing loss
    expert_groups: Optional[int] = None  # groups of neighbouring experts
    groups_per_token: Optional[int] = None  # groups that the experts of a token lie in
    latent_width: Optional[int] = None  # width in which routed experts work; 0: the model's
    latent_norm: Optional[bool] = None  # a norm behind experts of another width
    zero_experts: Optional[int] = None  # further experts that compute nothing
    hashed: Optional[bool] = None  # a table by token chooses the experts


@dataclass
class Kind:
    attention: Optional[Attention] = None  # attention
    linear: Optional[Linear] = None  # a mixer of linear cost
    convolution: Optional[Convolution] = None  # a gated short convolution
    mlp: Optional[Mlp] = None  # dense MLP
    moe: Optional[Moe] = None  # mixture of experts


@dataclass
class Order:
    repeat: int  # how often the kinds follow each other
    of: List[str]  # names of kinds, in order


@dataclass
class Layers:
    kinds: Dict[str, Kind]  # kinds of layers, by name
    order: List[Order]  # the layers, lowest first


@dataclass
class Model:
    name: str  # name of the model
    hidden: int  # width of the residual stream
    vocab: int  # vocabulary size
    max_positions: int  # longest sequence
    norm: Literal["layer_norm", "rms_norm"]  # kind of normalisation
    position: Literal["none", "learned", "rotary", "alibi"]  # kind of positions
    layers: Layers  # decoder layers
    tied_embeddings: bool  # the head shares the embedding's weight
    type: Optional[str] = None  # model_type of its config.json
    hub_id: Optional[str] = None  # its id on the Hugging Face hub
    norm_placement: Optional[Literal["pre", "shared", "sandwich", "post"]] = None  # where norms stand in a layer
    norm_bias: Optional[bool] = None  # layer norm has a bias
    norm_epsilon: Optional[float] = None  # epsilon of the norms
    parallel_residual: Optional[bool] = None  # attention and MLP read the same input
    embedding_norm: Optional[bool] = None  # a norm after the embedding
    head_bias: Optional[bool] = None  # bias on the output head
    embedding_scale: Optional[float] = None  # factor on what the embedding gives
    residual_scale: Optional[float] = None  # factor on what attention and MLP add to the residual
    logit_scale: Optional[float] = None  # factor on logits
    logit_cap: Optional[float] = None  # size at which logits are capped softly
    next_token_layers: Optional[int] = None  # multi-token-prediction layers
    residual_streams: Optional[int] = None  # streams of the residual (hyper-connections)
    residual_block: Optional[int] = None  # layers behind which the residual is stored for those above; 0: it is not
    layer_embedding: Optional[int] = None  # width of the embedding of its own that a layer has
    layer_vocab: Optional[int] = None  # rows of the layers' embeddings; 0: as the vocabulary


@dataclass
class Device:
    name: str  # name of the device
    kind: Literal["cpu", "gpu"]  # cpu or gpu
    memory_bytes: int  # memory of one device
    memory_bandwidth_bytes_per_s: float  # peak
    fp32_flop_per_s: float  # dense peak
    bf16_flop_per_s: float  # dense peak
    fp8_flop_per_s: Optional[float] = None  # dense peak; 0 without fp8
    fp4_flop_per_s: Optional[float] = None  # dense peak of NVFP4; 0 without it
    mxfp8: Optional[bool] = None  # multiplies fp8 with a scale for every 32 values (from Blackwell on)
    compute_capability: Optional[int] = None  # of NVIDIA's GPUs: 90 for 9.0
    host_bandwidth_bytes_per_s: Optional[float] = None  # to the host's memory, each way
    power_w: Optional[float] = None  # power limit in watts
    kernels: Optional[str] = None  # device whose measured kernel times price it; empty: its own
    kernel_rate: Optional[float] = None  # its speed against those


@dataclass
class Level:
    name: str  # name of the level
    group_size: int  # devices that this level connects
    latency_s: float  # seconds of one message step
    bandwidth_bytes_per_s: float  # per port and direction
    rails: Optional[int] = None  # network cards that a block of the level inside shares; 0: one per device
    oversubscription: Optional[float] = None  # how oversubscribed the switch is
    mesh: Optional[int] = None  # devices of which each pair has links of its own; 0: all send through a switch


@dataclass
class Group:
    name: str  # name of the group
    device: Device  # its device
    devices: int  # its devices
    devices_per_node: int  # devices of one node
    levels: List[Level]  # its network, innermost level first


@dataclass
class Cluster:
    name: str  # name of the cluster
    device: Device  # the device; with groups, what every device has at least
    devices: int  # devices in all
    devices_per_node: int  # devices of one node
    cores_per_node: int  # CPU cores that CPU ranks share
    levels: List[Level]  # network, innermost level first
    groups: List[Group] = field(default_factory=list)  # groups of different devices, in the order of rank numbers
    devices_per_host: Optional[int] = None  # devices of one operating system; 0: all of a node
    host_memory_bytes: Optional[int] = None  # memory of one operating system; 0: unknown


@dataclass
class Bounds:
    tp: List[int] = field(default_factory=list)  # Tensor-parallel degree
    cp: List[int] = field(default_factory=list)  # Context-parallel degree
    pp: List[int] = field(default_factory=list)  # Pipeline stages
    dp: List[int] = field(default_factory=list)  # Data-parallel degree
    zero: List[int] = field(default_factory=list)  # ZeRO stage, 0 to 3: 0 is DDP, 3 is fully sharded (FSDP, FULL_SHARD)
    ep: List[int] = field(default_factory=list)  # Expert-parallel degree
    micro_batch: List[int] = field(default_factory=list)  # Sequences per micro-batch; gradient accumulation runs several
    recompute: List[Literal["none", "selective", "full"]] = field(default_factory=list)  # Activation (gradient) checkpointing: none, selective or full
    schedule: List[str] = field(default_factory=list)  # Pipeline schedule
    sp: List[Literal["off", "on"]] = field(default_factory=list)  # Sequence parallel beside tensor parallel
    cp_method: List[Literal["ring", "all_to_all"]] = field(default_factory=list)  # How context ranks attend: ring or all_to_all
    chunks: List[int] = field(default_factory=list)  # Virtual stages on each GPU of a pipeline
    offload: List[Literal["off", "on"]] = field(default_factory=list)  # Optimizer state in CPU memory
    order: List[Literal["pipeline_outermost", "data_outermost"]] = field(default_factory=list)  # Which axis spans nodes: pipeline_outermost or data_outermost
    etp: List[int] = field(default_factory=list)  # GPUs that share one expert


@dataclass
class Selective:
    core: Optional[bool] = None  # the attention core
    norms: Optional[bool] = None  # norms that are no part of a product
    latent: Optional[bool] = None  # latent attention's up projections
    expert_activation: Optional[bool] = None  # the experts' activation
    mlp: Optional[bool] = None  # MLPs without experts
    experts: Optional[bool] = None  # routers, exchanges and experts
    shared_experts: Optional[bool] = None  # experts that every token visits
    delta_norm: Optional[bool] = None  # the norm behind a gated delta rule
    streams: Optional[bool] = None  # mixtures of the residual's streams


@dataclass
class Training:
    optimizer: Optional[Literal["adamw", "adamw8", "adafactor", "sgd", "muon"]] = None  # what updates the weights
    bf16_gradients: Optional[bool] = None  # gradients are summed and kept in 16 bits
    deterministic: Optional[bool] = None  # kernels give the same result in every run
    adapter_rank: Optional[int] = None  # rank of LoRA's adapters; 0: all weights are trained
    adapter_targets: List[Literal["qkv", "output", "up", "down", "experts"]] = field(default_factory=list)  # products with adapters
    expert_rank_factor: Optional[int] = None  # rank of adapters on the experts' first product, in adapter_rank
    frozen_format: Optional[Literal["bf16", "fp8", "nf4", "int8"]] = None  # how frozen weights are stored
    frozen: List[Literal["embedding", "mixers", "mlps", "experts", "head"]] = field(default_factory=list)  # parts that are not trained
    offloaded: List[Literal["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]] = field(default_factory=list)  # modules whose activations wait in the host's memory
    packed_length: Optional[float] = None  # length of equal sequences whose attention costs as much as the packed ones'
    packed_spread: Optional[float] = None  # deviation of a packed sequence's attention over its mean
    packed_sequences: Optional[int] = None  # packed sequences of a step
    masked: Optional[float] = None  # share of the tokens that the loss leaves out


@dataclass
class Execution:
    framework: Optional[str] = None  # name of the framework
    attention: Optional[Literal["flash", "cudnn", "flash1", "flash2", "sdpa", "unfused", "plain", "own"]] = None  # flash, cudnn, flash1, flash2, sdpa, unfused, plain or own
    elementwise: Optional[Literal["fused", "compiled", "eager"]] = None  # fused, compiled or eager
    loss: Optional[Literal["own", "fused", "fp32", "chunked"]] = None  # own, fused or fp32
    loss_chunks: Optional[int] = None  # chunks of a loss by chunks; 0: each has as many logits as all tokens have hidden units
    loss_tile_words: Optional[int] = None  # words of the vocabulary in a tile of a loss by tiles; 0: none
    dropout: Optional[bool] = None  # dropout masks are kept
    extras_apart: Optional[bool] = None  # experts' biases, limits of activations and scaled rotary positions have kernels of their own
    early_products: Optional[bool] = None  # matrix products of cuBLAS 11
    graphs: Optional[bool] = None  # kernels are launched from graphs
    router_graphs: Optional[bool] = None  # routers and what prepares their exchange are launched from graphs
    fuses_experts: Optional[bool] = None  # experts' products narrow their inputs to fp8 themselves
    pads_expert_rows: Optional[bool] = None  # in fp8 experts' rows are copied to multiples of what products take
    fp8_attention: Optional[bool] = None  # where products run in fp8, attention does too
    fp8_head: Optional[bool] = None  # where products run in fp8, the head's does too
    fp8_in_any_order: Optional[bool] = None  # fp8 with one scale for a matrix is multiplied in any order, as the device does
    gathers_logits: Optional[bool] = None  # tensor ranks gather the logits before the loss
    vocabulary_multiple: Optional[int] = None  # the vocabulary is padded to a multiple of this for every tensor rank
    epilogue_activations: Optional[bool] = None  # products of an MLP without gate compute its activation, too
    narrows_apart: Optional[bool] = None  # in fp8 operands are narrowed by kernels of their own, and copies of weights stay
    splits_next_token_projection: Optional[bool] = None  # a next-token module has a product for each half of its input
    one_adapter_per_product: Optional[bool] = None  # queries, keys and values, or an MLP's halves, have one adapter together
    one_product_of_mlp_halves: Optional[bool] = None  # both halves of a gated MLP are one product
    receives_in_place: Optional[bool] = None  # received tensors are kept as they are
    keeps_expert_outputs: Optional[bool] = None  # what experts give is kept for the gradients of their scores
    recomputes_whole_layer: Optional[bool] = None  # full recompute runs the last projection again
    keeps_core_output: Optional[bool] = None  # selective recompute keeps the attention core's output
    keeps_every_second_product: Optional[bool] = None  # selective recompute keeps every second product's output
    one_product_of_queries_keys_values: Optional[bool] = None  # among these products queries, keys and values are one
    empty_gradients: Optional[bool] = None  # an empty gradient for each shape of weight stays
    logit_copies: Optional[int] = None  # fp32 copies of the logits beside them
    split_logit_copies: Optional[int] = None  # further copies of its logits that a loss over tensor ranks holds: in fp32, or in 16 bits where it is compiled
    frees_logits: Optional[bool] = None  # the logits in 16 bits are freed before the backward
    keeps_stage_outputs: Optional[bool] = None  # a stage of a pipeline keeps its outputs until their backward
    returns_loss: Optional[bool] = None  # the output of the last stage of a pipeline is its loss
    full_recompute_inputs: Optional[int] = None  # parts of a layer that full recompute makes again apart
    fp32_expert_outputs: Optional[bool] = None  # with keeps_expert_outputs, in fp32
    gathered_inputs: Optional[bool] = None  # with sequence parallelism products keep the inputs that they gathered
    frees_after_input_gradient: Optional[bool] = None  # only what weight gradients read waits for them
    keeps_fp8_inputs: Optional[bool] = None  # products in fp8 keep their input in 8 bits
    extra_kept_bytes: Optional[int] = None  # bytes that a layer keeps per token and hidden unit beside
    rms_norm_bytes: Optional[int] = None  # bytes per element that an RMS norm of eager kernels keeps beyond its input
    layer_norm_bytes: Optional[int] = None  # bytes per element that a layer norm of eager kernels keeps beyond its input; 0: it is one kernel
    narrows_each_input: Optional[bool] = None  # products keep a narrow copy of their input each
    copies_core_output: Optional[bool] = None  # the attention core's output is copied for the next product
    keeps_sliced_projection: Optional[bool] = None  # values are a slice of a product's output, which stays whole
    activation_bytes: Optional[int] = None  # bytes per element that an activation of eager kernels keeps beyond its input
    fp32_router_input: Optional[bool] = None  # the router keeps a copy of its input in fp32
    shares_norm_output: Optional[bool] = None  # a norm that a mixer and an MLP share is kept once
    keeps_whole_projection: Optional[bool] = None  # gated attention and delta rules keep the output of their first product as it is
    remakes_fp8_inputs: Optional[bool] = None  # compiled layers make the narrow inputs of products again from what norms and activations keep
    merges_expert_adapters: Optional[bool] = None  # experts' adapters are added to a copy of their weights, which stays for backward
    fp32_softmax: Optional[bool] = None  # plain attention without sinks keeps its softmax in fp32, and a copy in 16 bits
    adapter_dropout: Optional[bool] = None  # each adapter keeps the mask of its input's dropout
    waits_on_host: Optional[bool] = None  # what layers keep for backward waits in the host's memory
    rounded_weight_bytes: Optional[int] = None  # bytes per weight that products keep of the weights that they round
    rounded_input_bytes: Optional[int] = None  # bytes per element that products keep of the inputs that they round
    weight_bytes: Optional[int] = None  # bytes of one weight; 0: by precision
    fp8_weight_bytes: Optional[int] = None  # bytes of one weight where products run in fp8; 0: as many
    gradient_bytes: Optional[int] = None  # bytes of one gradient; 0: by precision
    optimizer_bytes: Optional[int] = None  # bytes of one parameter's optimizer state; 0: by precision
    bucket_bytes: Optional[int] = None  # of the bytes of the optimizer's state those of buckets, which one rank alone does not have
    reduced_bytes: Optional[int] = None  # bytes of one gradient while it is reduced; 0: 4
    offloads_gradients: Optional[bool] = None  # shares of gradients wait in the host's memory beside an offloaded optimizer
    offloads_weights: Optional[bool] = None  # shares of weights wait in the host's memory beside an offloaded optimizer
    host_gradient_bytes: Optional[int] = None  # bytes of the gradient that an offloaded optimizer's step reads in the host's memory
    host_weight_bytes: Optional[int] = None  # bytes of the host's copy of a new weight that the device holds whole
    narrows_experts: Optional[bool] = None  # frozen experts are stored in as few bits as the rest
    flattens_states: Optional[bool] = None  # with ZeRO an optimizer gets its weights as one row, of which it factors nothing
    narrow_weights: Optional[bool] = None  # in bf16 all weights, their gradients and moments are in 16 bits, if there are no adapters
    narrow_adapters: Optional[bool] = None  # adapters over weights of 4 or 8 bits, their gradients and moments are in 16 bits
    nested_scales: Optional[bool] = None  # scales of frozen weights in 4 bits are quantised again
    whole_table_gradients: Optional[bool] = None  # each tensor rank has the gradient of the whole token table
    gathers_tied_twice: Optional[bool] = None  # a table that the head shares is gathered for each of the two
    shards_whole_rows: Optional[bool] = None  # sharding cuts each weight in whole rows, and pads them to equal shares
    shards_whole_experts: Optional[bool] = None  # sharding deals out whole experts, and pads them to equal shares
    frees_head_before_loss: Optional[bool] = None  # logits leave the head's module, whose gathered weights are freed, before the loss
    deals_enough_experts: Optional[bool] = None  # sharding deals out whole experts, padded, where each rank gets one
    deals_uneven_experts: Optional[bool] = None  # sharding deals out whole experts, padded, where none of their dimensions divides
    frees_pieces: Optional[bool] = None  # with sharded gradients whole weights and gradients live while their layer runs
    late_gradients: Optional[bool] = None  # there are no gradients before the first backward of a step
    keeps_head: Optional[bool] = None  # the gathered head stays to its backward
    whole_at_start: Optional[int] = None  # frozen weights of 4 or 8 bits on a device before it shards them: 0 its share, 1 all, 2 all and its share
    wide_table_moments: Optional[bool] = None  # where moments are in 8 bits, those of token and position tables are not
    narrow_moment_block: Optional[int] = None  # moments are in 8 bits where a rank's share of a tensor is a multiple of this many weights
    scatters_transfers: Optional[bool] = None  # tensor ranks send shares between stages
    sums_beside_weight_gradient: Optional[bool] = None  # input gradients are summed over tensor ranks beside the weight gradient's product
    keeps_gathered_in_pipeline: Optional[bool] = None  # in a pipeline sharded weights and gradients stay whole between micro-batches
    sums_by_projection: Optional[bool] = None  # without sequence parallelism tensor ranks sum the input gradient of each projection apart
    head_gathers: Optional[int] = None  # times that a micro-batch gathers the head's weights with ZeRO 3
    defers_gradient_sums: Optional[bool] = None  # gradients stay whole until the last micro-batch, in the type in which they are summed
    all_reduces_gradients: Optional[bool] = None  # ZeRO 1 and 2 sum whole gradients on all ranks, each of which keeps its share
    sums_shares_in_backward: Optional[bool] = None  # gradients' shares are summed beside the last backward
    sharded_network_rate: Optional[float] = None  # of the network's rate, what gathers of sharded weights reach
    deduplicates_dispatch: Optional[bool] = None  # tokens go once to a device that holds several experts
    balanced_experts: Optional[bool] = None  # routing is forced to an even load
    expert_load: Optional[float] = None  # copies that the fullest rank of spread experts gets, over an even share
    sends_to_expert_parts: Optional[bool] = None  # tokens are sent to every part of an expert that is split by width
    exchanges_shared_heads: Optional[bool] = None  # tensor ranks exchange what all heads share: sums of a norm over all heads, a latent key's rotary part
    joins_shared_experts: Optional[bool] = None  # shared and routed experts share a gathered input and sums by all-reduce, where experts have no ranks of their own
    muon_gathered_bytes: Optional[int] = None  # bytes of each weight of sharded matrices that every rank gathers for Muon
    muon_exchanged_bytes: Optional[int] = None  # bytes of each weight of sharded matrices that go to one rank and back for Muon
    launch_us: Optional[float] = None  # host's microseconds per kernel
    expert_layer_us: Optional[float] = None  # host's microseconds per layer of experts, both ways
    graphed_expert_layer_us: Optional[float] = None  # the same where graphs launch the router
    micro_batch_us: Optional[float] = None  # host's microseconds per micro-batch and stage
    step_ms: Optional[float] = None  # host's milliseconds per step
    blocking_launches: Optional[bool] = None  # the host waits for each kernel
    context_gib: Optional[float] = None  # GiB of a process beside its tensors
    allocator_slack: Optional[float] = None  # share of tensors that the allocator loses
    allocator_cache: Optional[float] = None  # share of tensors that the allocator keeps cached
    counts_each_buffer: Optional[bool] = None  # tensors lie in one pool, and workspaces and communicators' buffers are counted one by one
    host_build_bytes: Optional[int] = None  # bytes of a trained weight in a host's memory while the model is built
    process_build_bytes: Optional[int] = None  # the same for each process of the host


@dataclass
class Layout:
    tensor: int  # tensor-parallel degree
    pipeline: int  # pipeline ranks
    data: int  # data-parallel degree
    chunks: int  # virtual stages per pipeline rank
    micro_batch: int  # sequences per micro-batch
    recompute: Literal["none", "selective", "full"]  # what is recomputed in backward
    precision: Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]  # precision of compute
    schedule: str  # name of the pipeline schedule
    layers_per_stage: List[int]  # decoder layers of each virtual stage
    context: Optional[int] = None  # context-parallel degree
    expert: Optional[int] = None  # expert-parallel degree
    expert_tensor: Optional[int] = None  # ways to split each expert; 0: as tensor
    sequence_parallel: Optional[bool] = None  # norms and residuals split over the tensor group
    context_method: Optional[Literal["ring", "all_to_all"]] = None  # how context ranks attend
    zero: Optional[int] = None  # ZeRO stage: what data-parallel ranks share out
    shard: Optional[int] = None  # ranks that the states are shared out over
    offload_optimizer: Optional[bool] = None  # optimizer state in the host's memory
    order: Optional[Literal["pipeline_outermost", "data_outermost"]] = None  # which axis lies outermost
    overlap_gradient_reduce: Optional[bool] = None  # gradients are reduced during the last backward
    overlap_parameter_gather: Optional[bool] = None  # weights are gathered during forward
    overlap_tensor: Optional[bool] = None  # tensor-parallel collectives run beside their products
    overlap_transfer: Optional[bool] = None  # transfers between stages run beside compute
    overlap_exchange: Optional[bool] = None  # tokens go to their experts and back beside another micro-batch's other pass
    selective: Optional[Selective] = None  # with selective recompute, what runs again
    recomputed_layers: List[int] = field(default_factory=list)  # with full recompute, layers of each stage that recompute; empty: all
    training: Optional[Training] = None  # what is trained, by which optimizer
    execution: Optional[Execution] = None  # what the framework that runs it does


@dataclass
class Observed:
    layout: str  # short form of its layout (docs/notation.md)
    measured: str  # step time, memory of the fullest GPU, or both: 28.1s,61GiB; oom: memory ran out
    exact: Optional[Layout] = None  # the layout itself
    model: Optional[Union[str, Model]] = None  # its model
    cluster: Optional[Union[str, Cluster]] = None  # its cluster
    framework: Optional[str] = None  # software that ran it
    precision: Optional[Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]] = None  # its precision
    gpus: Optional[int] = None  # GPUs that it used
    global_batch: Optional[int] = None  # its sequences per step
    seq: Optional[int] = None  # its tokens per sequence


@dataclass
class PlanRequest:
    model: Optional[Union[str, Model]] = None  # Name such as llama3-70b (mpt-plan model list), Hugging Face id, or path of a config.json
    global_batch: Optional[int] = None  # Sequences per optimizer step; 4M-tokens: as many as have so many tokens
    batch_tokens: Optional[int] = None  # Tokens per optimizer step, in place of --global-batch: the nearest number of sequences
    seq: Optional[int] = None  # Tokens per sequence; in 8k, k is 1024 (default: 4096, or less if the model's limit is lower)
    precision: Optional[Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]] = None  # fp32, bf16, fp16, fp8, mxfp8 or nvfp4 (default: bf16; on CPUs fp32)
    framework: Optional[str] = None  # Software that will run the plan; an unknown name lists all (default: megatron-core, or the first that trains the model; mpt on CPUs)
    cluster: Optional[Union[str, Cluster]] = None  # Nodes such as dgx-h100:8 (mpt-plan cluster list), a cluster file (docs/clusters.md), this-machine:4 for CPU ranks, or several joined: dgx-a100:8+dgx-h100:4@100Gb/s@5ms
    gpus: Optional[int] = None  # GPUs to use, or CPU ranks; names the nodes where --cluster has no count (default: all of the cluster)
    memory: Optional[str] = None  # Limit of each GPU, such as 70GiB (default: what driver and framework leave)
    profile: Optional[str] = None  # Times of this machine, written by mpt-profile (default: none)
    bounds: Optional[Bounds] = None  # values that the search may take
    optimizer: Optional[Literal["adamw", "adamw8", "adafactor", "sgd", "muon"]] = None  # adamw, adamw8 (moments in 8 bits), adafactor, sgd or muon (default: adamw)
    gradients: Optional[Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]] = None  # Precision in which gradients are summed and kept, fp32 or bf16 (default: as the framework does)
    deterministic: Optional[bool] = None  # Kernels that give the same result in every run, as Megatron-LM's --deterministic-mode
    lora: Optional[int] = None  # Rank of LoRA adapters, which alone are trained (default: all weights)
    lora_targets: List[Literal["qkv", "output", "up", "down", "experts"]] = field(default_factory=list)  # Linear layers with adapters: qkv, output, up, down, experts (default: the first four)
    frozen_weights: Optional[Literal["bf16", "fp8", "nf4", "int8"]] = None  # How weights that are not trained are stored: bf16, fp8, int8 or nf4, as QLoRA does (default: bf16)
    freeze: List[Literal["embedding", "mixers", "mlps", "experts", "head"]] = field(default_factory=list)  # Parts that are not trained: embedding, mixers, mlps, experts, head
    lengths: List[str] = field(default_factory=list)  # Lengths of the sequences that are packed to --seq tokens: mean:longest, or lengths with their shares, such as 512=0.3,2048=0.7 (default: nothing is packed)
    masked: Optional[float] = None  # Share of the tokens that the loss leaves out, as prompts and padding of fine-tuning: layouts that would weigh the others unequally are left out (default: 0)
    offload_activations: List[Literal["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]] = field(default_factory=list)  # Modules whose activations wait in CPU memory, by Megatron Core's names: attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act
    execution: List[str] = field(default_factory=list)  # Settings of your framework that differ from its default, by the names in a plan's execution (docs/file_formats.md), such as fp8_attention=true,graphs=true (default: as known)
    overlap: List[str] = field(default_factory=list)  # Communication beside compute: none, or some of gradient-reduce, parameter-gather, tensor, transfer, exchange, the all-to-all of experts (default: all but tensor and exchange; only transfer on one node with --framework mpt)
    recompute_modules: List[str] = field(default_factory=list)  # What selective recompute runs again, by Megatron Core's names: core_attn, layernorm, mla_up_proj, mlp, moe, moe_act, shared_experts, gdn_norm_out, mhc (default: core_attn)
    expert_load: Optional[float] = None  # Expert imbalance: tokens of the busiest GPU divided by the average; mpt-run measures it (default: 1)
    dispatch: Optional[Literal["each", "once"]] = None  # each: a token is sent once for every expert it goes to. once: once for every GPU or node, as DeepEP and HybridEP do (default: each)
    kernels: Optional[str] = None  # Kernel times of the cluster's GPU, written by mpt-profile import (default: those that come with mpt-plan)
    memory_margin: Optional[str] = None  # Share of a GPU's memory to leave free, such as 5% (default: with what is left, a plan is 90 % likely to fit)
    beyond_framework: Optional[bool] = None  # Consider layouts that the framework cannot run, too
    threads: Optional[int] = None  # Threads of the search (default: one per core, at most 8)
    gap: Optional[str] = None  # Share by which a faster layout may be missed, such as 1%: the search ends sooner, with fewer layouts to rank (default: none; 1% where plans are compared)
    time_limit: Optional[float] = None  # Seconds of search, then the best so far and how far it may be from the optimum (default: 120)
    top: Optional[int] = None  # Layouts to rank (default: 5)
    pareto: Optional[bool] = None  # Print what trades time against memory and GPUs; -o writes the fastest
    try_first: Optional[bool] = None  # Plan the layout that may not fit, where it is worth a trial
    or_nodes: List[int] = field(default_factory=list)  # Fewer nodes, such as 15,14: the best layout on each, and what it costs to go on there (docs/clusters.md)
    storage_bandwidth: Optional[str] = None  # What all nodes together read from storage, such as 20GB/s: times the reading of --or-nodes (default: no time)
    layout: Optional[Layout] = None  # exactly this layout, to estimate
    layers_per_stage: List[int] = field(default_factory=list)  # Decoder layers of each stage of the layout to estimate, in order
    observed: List[Observed] = field(default_factory=list)  # runs that were measured, which correct the predictions (docs/observed.md)


@dataclass
class Workload:
    global_batch: int  # sequences per optimizer step
    sequence: int  # tokens per sequence


@dataclass
class Schedule:
    name: str  # name of the schedule
    ranks: int  # pipeline ranks
    chunks: int  # virtual stages per rank
    micro_batches: int  # micro-batches per step
    rank_of_stage: List[int]  # pipeline rank of each virtual stage
    rows: Dict[str, str]  # actions of each pipeline rank in order: F, B, I or W and the micro-batch


@dataclass
class Footprint:
    parameter_bytes: int  # weights
    gradient_bytes: int  # accumulated gradients
    optimizer_bytes: int  # moments and master weights
    boundary_bytes: int  # activation at the stage's edge, per micro-batch
    saved_bytes: int  # activations kept per micro-batch
    saved_for_weight_bytes: int  # kept from input to weight gradient
    forward_workspace_bytes: int  # during one forward
    backward_workspace_bytes: int  # during one backward
    tied_embedding_bytes: int  # gradient shared by first and last stage
    input_gradient_workspace_bytes: Optional[int] = None  # during an input gradient that is apart
    weight_gradient_workspace_bytes: Optional[int] = None  # during a weight gradient that is apart
    late_gradient_bytes: Optional[int] = None  # of the gradients, made by the first backward
    first_backward_workspace_bytes: Optional[int] = None  # during the first backward, late gradients included
    receives_in_place: Optional[bool] = None  # what arrives is kept as it is: no transfer slots


@dataclass
class Cost:
    source: str  # profile, kernels, own kernels or roofline
    machine: str  # machine of the measurements
    date: str  # date of the profile, ISO 8601; empty for a catalog
    digest: str  # digest of the profile or kernels; empty for a catalog
    spread: Optional[float] = None  # largest spread of the profile's timings of layers; 0 without a profile


@dataclass
class Duration:
    kind: Literal["forward", "backward", "input_gradient", "weight_gradient", "transfer_activation", "transfer_gradient", "reduce_gradient", "reduce_tied_embedding", "reduce_norm", "optimizer_step", "gather_parameters"]  # kind of instruction
    stage: int  # virtual stage; -1 where there is none
    seconds: float  # duration of one


@dataclass
class Memory:
    rank: int  # pipeline rank
    parameter_bytes: int  # weights
    gradient_bytes: int  # gradients
    optimizer_bytes: int  # moments and master weights
    transfer_buffer_bytes: int  # transfer slots
    activation_peak_bytes: int  # activations and workspace at the peak
    peak_bytes: int  # peak in all


@dataclass
class PipelineIdle:
    fill: float  # share of the step: idle with stages that all take equally long
    unequal_stages: float  # share of the step: idle because some stages take longer
    waiting: float  # share of the step: idle because of communication


@dataclass
class Exposed:
    kind: Literal["tensor", "context", "expert", "sharding", "transfer", "gradients"]  # kind of traffic
    seconds: float  # by which it lengthens the step


@dataclass
class Confidence:
    least_s: Optional[float] = None  # a step takes less than this in one case of ten
    most_s: Optional[float] = None  # a step takes more than this in one case of ten
    fits: Optional[float] = None  # probability that it does not run out of memory
    new_in: List[str] = field(default_factory=list)  # what no published run with this software has, or the software itself: the range is wide


@dataclass
class Prediction:
    step_time_s: float  # seconds of one optimizer step
    bubble_share: float  # share of the ranks' time in which compute idles
    tokens_per_s: float  # over all ranks
    model_flop_per_step: float  # forward and backward, without recompute
    memory: List[Memory]  # peak of each pipeline rank
    start_s: List[float]  # simulated start of each instruction of the lowered program; may be empty
    end_s: List[float]  # simulated end of each instruction
    pipeline_idle: Optional[PipelineIdle] = None  # what that share is made of, with a pipeline
    exposed: List[Exposed] = field(default_factory=list)  # communication that compute does not hide, by kind
    confidence: Optional[Confidence] = None  # how sure it is


@dataclass
class Pruned:
    tier: str  # test of the search that pruned them
    reason: Literal["memory", "bound", "duplicate"]  # what the tier proves
    layouts: int  # how many


@dataclass
class Drawn:
    draws: int  # how often errors were drawn
    layouts: int  # layouts among which each draw chooses
    other_wins: float  # share of draws in which another layout is faster
    regret_mean: float  # share by which the recommended layout takes longer than the fastest of a draw, on average
    regret_95: float  # the same, at most, in 95 of 100 draws
    measure: List[int] = field(default_factory=list)  # places in the ranking of two layouts to measure, from 1


@dataclass
class Search:
    layouts: int  # layouts in the space
    over_memory: int  # ruled out by memory
    over_bound: int  # ruled out by the lower bound
    simulated: int  # simulated
    optimal: bool  # whether every layout is accounted for
    seconds: float  # time of the search
    counted: Optional[bool] = None  # whether the space was counted to its end before a stop
    same: Optional[int] = None  # equal to another layout
    not_reached: Optional[int] = None  # left when the search was stopped
    fastest_s: Optional[float] = None  # step time of the fastest layout that fits; 0: not known
    gap: Optional[float] = None  # share by which the best may be above the optimum
    pruned: List[Pruned] = field(default_factory=list)  # layouts that were not simulated, by the tier that pruned them
    drawn: Optional[Drawn] = None  # how far the choice depends on errors of the prices


@dataclass
class Ranking:
    layout: Layout  # the layout
    step_time_s: float  # predicted
    bubble_share: float  # predicted
    peak_bytes: int  # of the fullest rank
    tokens_per_s: float  # predicted
    confidence: Optional[Confidence] = None  # how sure the prediction is
    role: Optional[Literal["recommended", "alternative", "simplest"]] = None  # what it is there for; simplest: the fastest with at most two of tp, pp, cp, ep, dp


@dataclass
class InputDigests:
    model: Optional[str] = None
    cluster: Optional[str] = None
    workload: Optional[str] = None
    memory_limit_bytes: Optional[str] = None
    layout: Optional[str] = None


@dataclass
class Link:
    axis: str  # tensor, context, expert, pipeline, or gradients of all replicas
    degree: int  # ranks of a group
    level: Level  # outermost level of the network that a group crosses


@dataclass
class FasterStages:
    layers_per_stage: List[int]  # decoder layers of each virtual stage, in model order
    step_time_s: float  # of a step with them


@dataclass
class Risk:
    try_first: int  # place in the ranking, from 1, of the layout that may not fit
    fall_back: int  # place in the ranking, from 1, of the safe layout
    expected_s: float  # seconds of a step on average, failed trials counted
    gain: float  # share by which that is less than a step of the safe layout


@dataclass
class FewerNode:
    nodes: int  # nodes that train
    gpus: int  # their GPUs
    best: Optional[Ranking] = None  # the layout that is recommended for them
    why: Optional[str] = None  # why there is none, and what would help
    reads: Optional[Literal["not_judged", "as_it_is", "prepared"]] = None  # whether the framework reads the plan's checkpoint in that layout
    stopped: Optional[bool] = None  # the time limit ended the search: there may be a faster one


@dataclass
class Checkpoint:
    weight_bytes: int  # all weights, masters and frozen ones with them; 0: not judged
    moment_bytes: int  # the optimizer's moments
    prepared_by: Optional[str] = None  # what the layouts need that read it only when it is prepared
    read_s: Optional[float] = None  # seconds to read each byte once; 0: no bandwidth was given


@dataclass
class CorrectedLayout:
    layout: Layout  # the layout
    predicted_s: float  # step time without the runs
    step_time_s: float  # expected step time with them
    confidence: Optional[Confidence] = None  # how sure that is
    peak_bytes: Optional[int] = None  # expected peak of the fullest rank; 0: no run told its memory
    ran: Optional[bool] = None  # whether one of the runs was its
    out_of_memory: Optional[bool] = None  # whether that ran out of memory


@dataclass
class Corrected:
    runs: int  # observed runs that count
    learned: List[str]  # what they show
    layouts: List[CorrectedLayout]  # recommended first, then by expected step time
    loss: float  # share by which the recommended one takes longer than the fastest, on average
    measure_next: Optional[int] = None  # place among the layouts, from 1, of the one to measure next; 0: none is worth it
    loss_after: Optional[float] = None  # the loss once that one was measured
    likely_loss: Optional[float] = None  # share by which the recommended one takes longer than the fastest, in 95 of 100 cases at most


@dataclass
class Verdict:
    verdict: Literal["exported", "not_written", "not_run", "not_judged"]  # whether it runs, and whether MPT writes it
    reason: str  # why MPT does not write it, or why it does not run
    source: str  # where the framework says so, with its version


@dataclass
class Objective:
    same: bool  # whether loss and gradients are known to be those of one GPU that takes one sequence at a time
    why: Optional[str] = None  # why they are not
    seen: Optional[str] = None  # the run or the line that shows that; empty: not known


@dataclass
class PlanFields:
    format: str  # always "mpt-plan"
    version: int  # version of this format
    model: Model  # what is trained
    cluster: Cluster  # where
    workload: Workload  # batch and sequence
    memory_limit_bytes: int  # per rank
    layout: Layout  # how it is split
    schedule: Schedule  # order of work on each pipeline rank
    footprints: List[Footprint]  # bytes of each virtual stage
    program_digest: str  # digest of the lowered program
    cost: Cost  # where the durations came from
    durations: List[Duration]  # seconds by kind and stage
    rate_by_active_ranks: List[float]  # speed of one of n ranks computing at once
    prediction: Prediction  # what the planner expects
    search: Search  # certificate of the search
    ranking: List[Ranking]  # the best layouts
    reasons: List[str]  # why this layout
    rejected: List[str]  # what ruled the others out
    request: PlanRequest  # what was asked; mpt-plan --request repeats it
    input_digests: InputDigests  # digests of what the prediction is about
    links: List[Link] = field(default_factory=list)  # which axis lies on which level of the network
    faster_stages: Optional[FasterStages] = None  # of an estimate: layers of the stages with which it is faster
    risk: Optional[Risk] = None  # a faster layout that may not fit, and the safe one to fall back on
    front: List[Ranking] = field(default_factory=list)  # layouts that none beats in time, memory and ranks
    fewer_nodes: List[FewerNode] = field(default_factory=list)  # the best layouts on the numbers of nodes of or_nodes
    checkpoint: Optional[Checkpoint] = None  # with or_nodes: what is read to go on there
    evidence: List[str] = field(default_factory=list)  # what published runs took and held beside their predictions
    corrected: Optional[Corrected] = None  # what observed runs make of the predictions
    notes: List[str] = field(default_factory=list)  # what to know before the plan is used
    verdict: Optional[Verdict] = None  # what the framework makes of the model, where MPT does not write it
    objective: Optional[Objective] = None  # whether it trains what one GPU would


class Options(TypedDict, total=False):
    global_batch: int  # Sequences per optimizer step; 4M-tokens: as many as have so many tokens
    batch_tokens: int  # Tokens per optimizer step, in place of --global-batch: the nearest number of sequences
    seq: int  # Tokens per sequence; in 8k, k is 1024 (default: 4096, or less if the model's limit is lower)
    precision: Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]  # fp32, bf16, fp16, fp8, mxfp8 or nvfp4 (default: bf16; on CPUs fp32)
    framework: str  # Software that will run the plan; an unknown name lists all (default: megatron-core, or the first that trains the model; mpt on CPUs)
    gpus: int  # GPUs to use, or CPU ranks; names the nodes where --cluster has no count (default: all of the cluster)
    memory: str  # Limit of each GPU, such as 70GiB (default: what driver and framework leave)
    profile: str  # Times of this machine, written by mpt-profile (default: none)
    optimizer: Literal["adamw", "adamw8", "adafactor", "sgd", "muon"]  # adamw, adamw8 (moments in 8 bits), adafactor, sgd or muon (default: adamw)
    gradients: Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]  # Precision in which gradients are summed and kept, fp32 or bf16 (default: as the framework does)
    deterministic: bool  # Kernels that give the same result in every run, as Megatron-LM's --deterministic-mode
    lora: int  # Rank of LoRA adapters, which alone are trained (default: all weights)
    lora_targets: Union[Literal["qkv", "output", "up", "down", "experts"], Sequence[Literal["qkv", "output", "up", "down", "experts"]]]  # Linear layers with adapters: qkv, output, up, down, experts (default: the first four)
    frozen_weights: Literal["bf16", "fp8", "nf4", "int8"]  # How weights that are not trained are stored: bf16, fp8, int8 or nf4, as QLoRA does (default: bf16)
    freeze: Union[Literal["embedding", "mixers", "mlps", "experts", "head"], Sequence[Literal["embedding", "mixers", "mlps", "experts", "head"]]]  # Parts that are not trained: embedding, mixers, mlps, experts, head
    lengths: Union[str, Sequence[str]]  # Lengths of the sequences that are packed to --seq tokens: mean:longest, or lengths with their shares, such as 512=0.3,2048=0.7 (default: nothing is packed)
    masked: float  # Share of the tokens that the loss leaves out, as prompts and padding of fine-tuning: layouts that would weigh the others unequally are left out (default: 0)
    offload_activations: Union[Literal["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"], Sequence[Literal["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]]]  # Modules whose activations wait in CPU memory, by Megatron Core's names: attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act
    execution: Union[str, Sequence[str]]  # Settings of your framework that differ from its default, by the names in a plan's execution (docs/file_formats.md), such as fp8_attention=true,graphs=true (default: as known)
    overlap: Union[str, Sequence[str]]  # Communication beside compute: none, or some of gradient-reduce, parameter-gather, tensor, transfer, exchange, the all-to-all of experts (default: all but tensor and exchange; only transfer on one node with --framework mpt)
    recompute_modules: Union[str, Sequence[str]]  # What selective recompute runs again, by Megatron Core's names: core_attn, layernorm, mla_up_proj, mlp, moe, moe_act, shared_experts, gdn_norm_out, mhc (default: core_attn)
    expert_load: float  # Expert imbalance: tokens of the busiest GPU divided by the average; mpt-run measures it (default: 1)
    dispatch: Literal["each", "once"]  # each: a token is sent once for every expert it goes to. once: once for every GPU or node, as DeepEP and HybridEP do (default: each)
    kernels: str  # Kernel times of the cluster's GPU, written by mpt-profile import (default: those that come with mpt-plan)
    memory_margin: str  # Share of a GPU's memory to leave free, such as 5% (default: with what is left, a plan is 90 % likely to fit)
    beyond_framework: bool  # Consider layouts that the framework cannot run, too
    threads: int  # Threads of the search (default: one per core, at most 8)
    gap: str  # Share by which a faster layout may be missed, such as 1%: the search ends sooner, with fewer layouts to rank (default: none; 1% where plans are compared)
    time_limit: float  # Seconds of search, then the best so far and how far it may be from the optimum (default: 120)
    top: int  # Layouts to rank (default: 5)
    pareto: bool  # Print what trades time against memory and GPUs; -o writes the fastest
    try_first: bool  # Plan the layout that may not fit, where it is worth a trial
    or_nodes: Union[int, Sequence[int]]  # Fewer nodes, such as 15,14: the best layout on each, and what it costs to go on there (docs/clusters.md)
    storage_bandwidth: str  # What all nodes together read from storage, such as 20GB/s: times the reading of --or-nodes (default: no time)
    layers_per_stage: Union[int, Sequence[int]]  # Decoder layers of each stage of the layout to estimate, in order
    observed: Union[Union[str, Observed], Sequence[Union[str, Observed]]]  # runs that were measured, which correct the predictions (docs/observed.md)
    tp: Union[int, Sequence[int]]  # Tensor-parallel degree
    cp: Union[int, Sequence[int]]  # Context-parallel degree
    pp: Union[int, Sequence[int]]  # Pipeline stages
    dp: Union[int, Sequence[int]]  # Data-parallel degree
    zero: Union[int, Sequence[int]]  # ZeRO stage, 0 to 3: 0 is DDP, 3 is fully sharded (FSDP, FULL_SHARD)
    ep: Union[int, Sequence[int]]  # Expert-parallel degree
    micro_batch: Union[int, Sequence[int]]  # Sequences per micro-batch; gradient accumulation runs several
    recompute: Union[Literal["none", "selective", "full"], Sequence[Literal["none", "selective", "full"]]]  # Activation (gradient) checkpointing: none, selective or full
    schedule: Union[str, Sequence[str]]  # Pipeline schedule
    sp: Union[bool, Union[Literal["off", "on"], Sequence[Literal["off", "on"]]]]  # Sequence parallel beside tensor parallel
    cp_method: Union[Literal["ring", "all_to_all"], Sequence[Literal["ring", "all_to_all"]]]  # How context ranks attend: ring or all_to_all
    chunks: Union[int, Sequence[int]]  # Virtual stages on each GPU of a pipeline
    offload: Union[bool, Union[Literal["off", "on"], Sequence[Literal["off", "on"]]]]  # Optimizer state in CPU memory
    order: Union[Literal["pipeline_outermost", "data_outermost"], Sequence[Literal["pipeline_outermost", "data_outermost"]]]  # Which axis spans nodes: pipeline_outermost or data_outermost
    etp: Union[int, Sequence[int]]  # GPUs that share one expert


BOUNDS = ('tp', 'cp', 'pp', 'dp', 'zero', 'ep', 'micro_batch', 'recompute', 'schedule', 'sp', 'cp_method', 'chunks', 'offload', 'order', 'etp')
LISTS = ('chunks', 'cp', 'cp_method', 'dp', 'ep', 'etp', 'execution', 'freeze', 'layers_per_stage', 'lengths', 'lora_targets', 'micro_batch', 'observed', 'offload', 'offload_activations', 'or_nodes', 'order', 'overlap', 'pp', 'recompute', 'recompute_modules', 'schedule', 'sp', 'tp', 'zero')
SWITCHES = ('offload', 'sp')
OPTIONS = ('global_batch', 'batch_tokens', 'seq', 'precision', 'framework', 'gpus', 'memory', 'profile', 'optimizer', 'gradients', 'deterministic', 'lora', 'lora_targets', 'frozen_weights', 'freeze', 'lengths', 'masked', 'offload_activations', 'execution', 'overlap', 'recompute_modules', 'expert_load', 'dispatch', 'kernels', 'memory_margin', 'beyond_framework', 'threads', 'gap', 'time_limit', 'top', 'pareto', 'try_first', 'or_nodes', 'storage_bandwidth', 'layers_per_stage', 'observed', 'tp', 'cp', 'pp', 'dp', 'zero', 'ep', 'micro_batch', 'recompute', 'schedule', 'sp', 'cp_method', 'chunks', 'offload', 'order', 'etp')
