# SPDX-License-Identifier: Apache-2.0
"""Which frequencies of LongRoPE and dynamic scaling context ranks choose, where positions are cut as by accelerate's ring (PyTorch's
context_parallel) and by Ulysses. The planner refuses what rotates apart (rotates_by_rank, SplitRules::positions()).

Usage: rotary_by_rank_test.py, with PyTorch and transformers. Two processes over gloo; it skips with a reason elsewhere."""
import importlib.util
import os
import sys

LENGTH, RANKS = 32, 2
# Kind, positions of pre-training, method, and whether two ranks rotate apart. In a ring rank 1 sees 24 positions, with Ulysses rank 0 sees 16.
CASES = [("longrope", 32, "ring", False), ("longrope", 31, "ring", True), ("longrope", 24, "ring", True), ("longrope", 23, "ring", False),
         ("longrope", 32, "all_to_all", False), ("longrope", 16, "all_to_all", True), ("longrope", 15, "all_to_all", False),
         ("dynamic", 32, "ring", False), ("dynamic", 31, "ring", True), ("dynamic", 8, "ring", True), ("dynamic", 8, "all_to_all", True),
         ("default", 16, "ring", False)]


def positions_of(method, rank, mesh):
    """What a rank gets of the positions of a sequence."""
    import torch
    from torch.distributed.tensor.experimental import context_parallel
    positions = torch.arange(LENGTH)[None].clone()
    if method == "all_to_all":
        return positions.chunk(RANKS, 1)[rank]
    with context_parallel(mesh, buffers=[positions], buffer_seq_dims=[1], no_restore_buffers={positions}):
        return positions.clone()


def run(rank, port):
    import torch
    import transformers as hf
    hf.logging.set_verbosity_error()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 96, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2}
    for kind, original, method, apart in CASES:
        rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
        if kind == "longrope":
            rope |= {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": original}
            config = hf.Phi3Config(**sizes, max_position_embeddings=64, original_max_position_embeddings=original, rope_parameters=rope)
        else:
            config = hf.LlamaConfig(**sizes, max_position_embeddings=original, rope_parameters=rope)
        model = hf.AutoModelForCausalLM.from_config(config)
        positions = positions_of(method, rank, mesh)
        model.model.rotary_emb(torch.zeros(1, positions.shape[1], 64), positions)
        chosen = [None] * RANKS
        torch.distributed.all_gather_object(chosen, [round(x, 9) for x in model.model.rotary_emb.inv_freq.tolist()])
        assert (chosen[0] != chosen[1]) == apart, (kind, original, method, chosen)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        print("skipped: no PyTorch or transformers here")
        sys.exit(0)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "acceptance"))
    import torch
    from training import free_port
    torch.multiprocessing.spawn(run, (free_port(),), nprocs=RANKS)
    print(f"frequencies by rank: {len(CASES)} cases as the planner takes them")
