# SPDX-License-Identifier: Apache-2.0
"""megatron-core's own GPTModel, schedules, gradient buffers and optimizer over gloo, with its local layers.

Stand-ins: the CPU answers for "cuda"; norms are torch's, marked as Transformer Engine's are; with context ranks attention gathers
keys and values here, in place of Transformer Engine's; normalization of queries and keys in the delta rule is a line of Python.
"""

from .harness import Case, Piece, Seen, require

FRAMEWORK = "megatron-core"
ROWS, LENGTH, VOCABULARY = 8, 16, 64
COUNTS = {"unequal": (16, 3, 9, 1, 12, 2, 16, 5), "half": (8,) * 8, None: (16,) * 8}
SAME = "Loss, gradients and norm are those of one process."
# Fields of TransformerConfig beside those of every model.
MODELS = {
    "dense": {},
    "dense, norms of queries and keys": {"qk_layernorm": True},
    "dense, tied": {},
    "delta rule": {"experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 2, "linear_conv_kernel_dim": 4,
                   "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                   "deterministic_mode": True},
    "sinks": {"softmax_type": "learnable"},
    "experts": {"num_moe_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 16, "moe_token_dispatcher_type": "alltoall",
                "moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0},
    "experts, aux_loss": {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 0.1},
    "experts, seq_aux_loss": {"moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 0.1},
    "experts, capacity": {"moe_expert_capacity_factor": 1.0},
}
OTHER = "The objective is not that of one process with micro-batches of one sequence: "


def layout_cases():
    rows = [("tp2", "dense", {"tp": 2}), ("tp2-sp", "dense", {"tp": 2, "sp": True}),
            ("tp2-sp-qk-norms", "dense, norms of queries and keys", {"tp": 2, "sp": True}),
            ("tp2-qk-norms", "dense, norms of queries and keys", {"tp": 2}),
            ("tp2-sp-full", "dense", {"tp": 2, "sp": True, "recompute": "full"}), ("tp2-sp-core", "dense", {"tp": 2, "sp": True, "recompute": "core"}),
            ("pp2", "dense", {"pp": 2}), ("pp2-full", "dense", {"pp": 2, "recompute": "full"}), ("pp2-tied", "dense, tied", {"pp": 2}),
            ("pp2-tp2-sp", "dense", {"pp": 2, "tp": 2, "sp": True}), ("pp2-dp2", "dense", {"pp": 2, "dp": 2}),
            ("pp2-interleaved-overlap", "dense", {"pp": 2, "chunks": 2, "overlap_p2p": True}),
            ("dp2", "dense", {"dp": 2, "zero": 0}), ("dp2-zero1", "dense", {"dp": 2, "zero": 1}), ("pp2-dp2-zero1", "dense", {"pp": 2, "dp": 2, "zero": 1}),
            ("tp2-sp-dp2-zero1", "dense", {"tp": 2, "sp": True, "dp": 2, "zero": 1}), ("cp2", "dense", {"cp": 2}), ("cp2-dp2-zero1", "dense", {"cp": 2, "dp": 2, "zero": 1}),
            ("ep2", "experts", {"ep": 2, "dp": 2}), ("ep2-zero1", "experts", {"ep": 2, "dp": 2, "zero": 1}),
            ("experts-tp2-sp", "experts", {"tp": 2, "sp": True}), ("ep2-tp2-sp", "experts", {"ep": 2, "tp": 2, "sp": True, "etp": 1}),
            ("ep2-pp2", "experts", {"ep": 2, "dp": 2, "pp": 2}), ("ep2-seq-aux", "experts, seq_aux_loss", {"ep": 2, "dp": 2}),
            ("ep2-aux", "experts, aux_loss", {"ep": 2, "dp": 2}), ("delta-tp2-sp", "delta rule", {"tp": 2, "sp": True}),
            ("delta-pp2", "delta rule", {"pp": 2}), ("delta-dp2-zero1", "delta rule", {"dp": 2, "zero": 1}), ("sinks-pp2", "sinks", {"pp": 2}),
            ("sinks-dp2-zero1", "sinks", {"dp": 2, "zero": 1})]
    sample = ("tp2-sp", "pp2-dp2-zero1", "ep2")
    for name, model, axes in rows:
        yield case(name, model, axes, "right", SAME, name in sample)
    yield case("pp2-interleaved", "dense", {"pp": 2, "chunks": 2, "overlap_p2p": False}, "wrong",
               "Two stages with two chunks each exchange two messages at once with one partner, and mix them; overlap_p2p_comm parts them.")
    yield case("delta-tp2", "delta rule", {"tp": 2}, "wrong",
               "The gradient of the delta rule's out_norm is each tensor rank's own part: it is summed with sequence parallelism alone.", True)
    yield case("sinks-tp2", "sinks", {"tp": 2}, "wrong", "Every gradient is right; the norm for clipping leaves out the sinks of all tensor ranks but the first.")
    yield case("sinks-tp2-sp", "sinks", {"tp": 2, "sp": True}, "wrong",
               "Every gradient is right; the norm for clipping leaves out the sinks of all tensor ranks but the first.")


def objective_cases():
    masks = {"masks": "unequal"}
    divided = OTHER + "each micro-batch and context rank divides by its own count of tokens."
    yield case("cp2-masks", "dense", {"cp": 2, **masks}, "wrong", divided, True)
    yield case("cp2-masks-per-token", "dense", {"cp": 2, **masks, "per_token": True}, "right", SAME)
    yield case("dp2-masks", "dense", {"dp": 2, **masks}, "right", SAME)
    yield case("dp2-masks-per-token", "dense", {"dp": 2, **masks, "per_token": True}, "right", SAME)
    yield case("dp2-masks-micro-batch-2", "dense", {"dp": 2, **masks, "micro_batch": 2}, "wrong", divided)
    yield case("dp2-masks-micro-batch-2-per-token", "dense", {"dp": 2, **masks, "micro_batch": 2, "per_token": True}, "right", SAME)
    yield case("dp2-micro-batch-2", "dense", {"dp": 2, "micro_batch": 2}, "right", SAME)
    yield case("aux-micro-batch-2", "experts, aux_loss", {"dp": 2, "micro_batch": 2}, "wrong", OTHER + "the load is balanced over both sequences.")
    yield case("seq-aux-micro-batch-2", "experts, seq_aux_loss", {"dp": 2, "micro_batch": 2}, "right", SAME)
    yield case("capacity-micro-batch-2", "experts, capacity", {"dp": 2, "micro_batch": 2}, "wrong", OTHER + "an expert's capacity is shared by both sequences.")
    yield case("capacity-ep2", "experts, capacity", {"ep": 2, "dp": 2}, "right", SAME)
    yield case("aux-per-token", "experts, aux_loss", {"dp": 2, "per_token": True}, "right", SAME)
    yield case("aux-masks-per-token", "experts, aux_loss", {"dp": 2, "masks": "half", "per_token": True, "objective": "balance as without per_token"}, "wrong",
               "The balance loss is multiplied by all tokens over those that the mask leaves, here by 2.")


def case(name, model, axes, expected, sentence, sample=False):
    degrees = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, "zero": 0, **axes}
    ranks = max(degrees["tp"] * degrees["cp"] * degrees["pp"] * degrees["dp"], axes.get("ep", 1))
    return Case("megatron-" + name, ranks, axes, model, expected, sentence, sample)


CASES = [*layout_cases(), *objective_cases()]


def package_version():
    import importlib.metadata
    return "megatron-core " + importlib.metadata.version("megatron-core")


def prepare():
    import stubs
    stubs.use()
    import torch
    torch.set_num_threads(1)
    from . import megatron_parts
    megatron_parts.cpu_for_cuda()
    import megatron.core.distributed
    import megatron.core.models.gpt
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel  # noqa: F401  so that forks have it


def alone(case):
    """One process with micro-batches of one sequence, and the count of tokens as the case has it."""
    import os
    import torch.distributed as dist
    from . import megatron_parts
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    keep = {key: value for key, value in case.axes.items() if key in ("masks", "per_token")}
    return megatron_parts.step(case.model, MODELS, {**keep, "objective": case.axes.get("objective", "")}, whole=True)


def run(case, rank):
    import torch.distributed as dist
    from megatron.core import parallel_state as groups
    from . import megatron_parts
    dist.init_process_group("gloo")
    seen = megatron_parts.step(case.model, MODELS, case.axes)
    held = {"tp": groups.get_tensor_model_parallel_world_size(), "pp": groups.get_pipeline_model_parallel_world_size(),
            "cp": groups.get_context_parallel_world_size(), "ep": groups.get_expert_model_parallel_world_size()}
    for key, size in held.items():
        require(size == case.axes.get(key, 1), f"{size} ranks of {key}")
    return seen
