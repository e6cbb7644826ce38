#!/usr/bin/env bash
# torch 2.15.0: an optimizer made after a forward pass without a backward never updates FSDP2's root: the embedding, the last norm, the head.
#
# Expected: an optimizer of model.parameters() trains all weights. It does not matter whether the model was evaluated before.
# Seen, 2 ranks, a small language model in two stages: 20 steps, an evaluation, a new AdamW for stage 2, 60 steps.
#   In stage 2 the embedding, the last norm and the head move by 0.0000. The layers move. The loss ends at 0.2741, not at 0.0091.
#   Gradients of all weights exist, clip_grad_norm_ has their norm, and nothing warns.
# Controls: without the evaluation, with model.reshard() after it, and with reshard_after_forward=True for the root all weights move.
#   The weights are then the same to the last bit. One process without FSDP2 does not mind the evaluation.
# Why: by default the root keeps its whole weights after a forward, as the backward needs them soon. After an evaluation there is no
#   backward. model.parameters() gives the whole tensors of the root then. Gradients arrive at its shards, which no optimizer holds.
#   The documentation says which tensors a module has after a forward. It does not say that an optimizer may take the wrong ones.
# Why it matters: people evaluate a base model before they train, or make a new optimizer for each stage. The loss falls with the layers
#   alone. The weights that matter most for new tokens and new text stay as they were.
# Usage: ./fsdp2_optimizer_made_after_evaluation_never_trains_the_head.sh (a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 numpy==2.4.6
cat >"$folder/stages.py" <<'END'
import os
import socket

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

WORDS, WIDTH = 64, 32
ROOT = ("embedding", "norm", "head")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        layer = torch.nn.TransformerEncoderLayer
        self.layers = torch.nn.ModuleList(layer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        states, mask = self.embedding(tokens), torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            states = layer(states, src_mask=mask, is_causal=True)
        return self.head(self.norm(states))


def loss_of(model, stage, step):
    """Words follow each other by a rule, another one in stage 2."""
    tokens = torch.randint(WORDS, (8, 16), generator=torch.Generator().manual_seed(1000 * stage + step))
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens.flatten() * 3 + stage) % WORDS)


def train(model, stage, steps):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, stage, step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item(), float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def whole(model):
    return {name: (value.full_tensor() if isinstance(value, DTensor) else value).clone() for name, value in model.state_dict().items()}


def two_stages(evaluate=True, reshard=False, mesh=None, **options):
    torch.manual_seed(0)
    model = Model()
    if mesh is not None:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh, **options)
    train(model, 1, 20)
    start = whole(model)
    if evaluate:
        model.eval()
        with torch.no_grad():
            loss_of(model, 1, 999)
        if reshard:
            model.reshard()
    loss, norm = train(model, 2, 60)
    end = whole(model)
    way = {part: max((end[name] - start[name]).norm().item() for name in end if name.startswith(part)) for part in ROOT + ("layers",)}
    return loss, norm, way, torch.cat([value.flatten() for value in end.values()])


def run(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    results = {"one process, evaluation": two_stages(), "FSDP2, no evaluation": two_stages(False, mesh=mesh),
               "FSDP2, evaluation": two_stages(mesh=mesh), "FSDP2, evaluation and reshard()": two_stages(reshard=True, mesh=mesh),
               "FSDP2, evaluation, reshard_after_forward=True": two_stages(mesh=mesh, reshard_after_forward=True)}
    for name, (loss, norm, way, weights) in results.items():
        if rank == 0:
            print(f"{name}: loss {loss:.4f}, gradient norm {norm:.3f}, way in stage 2:",
                  ", ".join(f"{part} {length:.4f}" for part, length in way.items()), flush=True)
        if name == "FSDP2, evaluation":
            assert all(way[part] == 0 for part in ROOT) and way["layers"] > 1, "the behaviour changed"
            assert loss > 5 * results["FSDP2, no evaluation"][0] and norm > 0.01
        else:
            assert all(length > 0.1 for length in way.values())
            if name.startswith("FSDP2"):
                assert torch.equal(weights, results["FSDP2, no evaluation"][3])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    assert torch.__version__.startswith("2.15.0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torch.multiprocessing.spawn(run, args=(port,), nprocs=2)
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/stages.py" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
