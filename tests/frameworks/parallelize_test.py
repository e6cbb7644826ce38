# SPDX-License-Identifier: Apache-2.0
"""mpt.torch.parallelize on CPU processes over gloo, against one process: losses and gradients of the first step, and a second step's loss.
What is no such comparison is in parallelize_acts.py.

Usage: parallelize_test.py PROGRAMS [--all] [NAMES], with an interpreter that has torch and transformers. --all runs the slow cases, too.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback

from sample import sample

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))

BASE = ["--seq", "16", "--global-batch", "8", "--precision", "fp32", "--framework", "pytorch", "--micro-batch", "1", "--sp", "off", "--recompute", "none"]
PP, ZB, DUAL = "--pp 2 --zero 0 --schedule 1f1b", "--pp 2 --zero 0 --schedule zb-v --chunks 2", "--pp 2 --zero 0 --schedule dualpipe-v --chunks 2"
INTERLEAVED = "--pp 2 --zero 0 --schedule interleaved --chunks 2"
CORE, PRODUCTS = "--framework megatron-core --recompute selective", "--framework torchtitan --recompute selective"
LARGE = "--framework mpt --pp 2 --dp 2 --chunks 2"
# Model, processes, options of mpt-plan estimate, and the text with which it is refused; or, with a model "act NAME", what it says.
CASES = {
    "zero3": ("own", 2, "--dp 2 --zero 3", ""),
    "zero0": ("own", 2, "--dp 2 --zero 0", ""),
    "zero1 recompute": ("own", 4, "--dp 4 --zero 1 --recompute full", ""),
    "tensor": ("own", 2, "--tp 2 --zero 0", ""),
    "sequence": ("own", 2, "--tp 2 --zero 0 --sp on", ""),
    "sequence zero3": ("own", 4, "--tp 2 --dp 2 --zero 3 --sp on --recompute full", ""),
    "1f1b": ("own", 2, PP, ""),
    "interleaved": ("own", 2, "--pp 2 --zero 0 --schedule interleaved --chunks 2", ""),
    "interleaved, rounds of another": ("own", 2, f"{INTERLEAVED} --framework mpt --global-batch 6 --micro-batch 2", "PyTorch takes rounds of 3"),
    "interleaved zero bubble, rounds of another": ("own", 2, "--framework mpt --pp 2 --zero 0 --schedule zb-interleaved --chunks 2 --global-batch 3",
                                                   "zb-interleaved with 3 micro-batches on 2 ranks: PyTorch takes rounds of 3"),
    "interleaved zero bubble": ("own", 2, "--pp 2 --zero 0 --schedule zb-interleaved --chunks 2", ""),
    "zero bubble": ("own", 2, ZB, ""),
    "pipeline tensor": ("own", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b --sp on", ""),
    "pipeline zero1": ("own", 4, "--pp 2 --dp 2 --zero 1 --schedule gpipe", ""),
    "learned positions": ("learned", 2, PP, ""),
    "documents": ("documents", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b --sp on", ""),
    "documents zb-v": ("documents", 2, ZB, ""),
    "pads interleaved": ("pads", 2, INTERLEAVED, ""),
    "llama zero3": ("llama", 2, "--dp 2 --zero 3", ""),
    "llama sequence": ("llama", 4, "--tp 2 --dp 2 --zero 3 --sp on", ""),
    "llama pipeline": ("llama", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b", ""),
    "norms of heads": ("qwen3", 2, "--tp 2 --zero 0", ""),
    "norms of heads, sequence": ("qwen3", 4, "--tp 2 --dp 2 --zero 3 --sp on", ""),
    "fused": ("fused", 2, "--tp 2 --zero 0", "one matrix for queries, keys and values"),
    "matrices of a class of their own": ("gpt2", 2, "--tp 2 --zero 0", "outside of an nn.Linear"),
    "gpt2 zero3": ("gpt2", 2, "--dp 2 --zero 3", ""),
    "tied": ("tied", 2, "--tp 2 --zero 0", ""),
    "context ring": ("own", 2, "--cp 2 --zero 0 --cp-method ring", ""),
    "context ring zero3": ("own", 4, "--cp 2 --dp 2 --zero 3 --cp-method ring --recompute full", ""),
    "context heads": ("own", 2, "--cp 2 --zero 2 --cp-method all_to_all", ""),
    "context tensor": ("own", 4, "--cp 2 --tp 2 --zero 0 --sp on --cp-method ring", ""),
    "context learned positions": ("learned", 2, "--cp 2 --zero 3 --cp-method ring", ""),
    "llama context": ("llama", 4, "--cp 2 --dp 2 --zero 3 --cp-method ring", ""),
    "llama context tensor": ("llama", 4, "--cp 2 --tp 2 --zero 0 --sp on --cp-method all_to_all", ""),
    "context, own positions": ("rotary", 2, "--cp 2 --zero 3", "positions that blocks.0 counts itself"),
    "context, a mask": ("masked", 2, "--cp 2 --zero 3", "attention with a mask in blocks.0"),
    "context stages": ("own", 4, "--cp 2 --pp 2 --zero 0 --schedule 1f1b", "context ranks beside pipeline stages"),
    "core again": ("own", 2, f"--dp 2 --zero 1 {CORE}", ""),
    "llama core again": ("llama", 2, f"--tp 2 --zero 0 {CORE} --sp on", ""),
    "every second product": ("own", 2, f"--dp 2 --zero 3 {PRODUCTS}", ""),
    "every second product, tensor": ("own", 4, f"--dp 2 --tp 2 --zero 3 --sp on {PRODUCTS}", ""),
    "every second product, stages": ("own", 2, f"{PP} {PRODUCTS}", ""),
    "core again in context ranks": ("own", 2, f"--cp 2 --zero 1 {CORE} --cp-method all_to_all", ""),
    "norms again": ("own", 2, f"--dp 2 --zero 1 {CORE} --recompute-modules layernorm", "selective recompute of norms, no attention core"),
    "no core to run again": ("plain", 2, f"--dp 2 --zero 1 {CORE}", "without torch.nn.functional.scaled_dot_product_attention"),
    "tied stages": ("tied", 2, PP, "on two stages"),
    # Split backward.
    "zero3 zb-v": ("own", 4, f"{LARGE} --zero 3 --schedule zb-v", "PyTorch loses the gradients of layers"),
    "zero3 dualpipe-v": ("own", 4, f"{LARGE} --zero 3 --schedule dualpipe-v", "PyTorch loses the gradients of layers"),
    "zero3 v-half": ("own", 4, f"{LARGE} --zero 3 --schedule v-half", "PyTorch loses the gradients of layers"),
    "recompute zb-v": ("own", 2, f"{ZB} --recompute full", "runs a layer again for each of its weights"),
    "recompute dualpipe-v": ("own", 2, f"{DUAL} --recompute full", "runs a layer again for each of its weights"),
    "products again zb-v": ("own", 2, f"{ZB} {PRODUCTS}", "raises at the first gradient of a weight"),
    "zero3 1f1b": ("own", 4, "--framework mpt --pp 2 --dp 2 --zero 3 --schedule 1f1b", ""),
    "llama zb-v": ("llama", 2, ZB, ""),
    "llama dualpipe-v zero2": ("llama", 4, "--framework mpt --pp 2 --dp 2 --zero 2 --schedule dualpipe-v --chunks 2", ""),
    "views zb-v": ("views", 2, ZB, ""),
    # What stands before the layers and behind the head.
    "granite stages": ("granite", 2, PP, ""),
    "cohere2 stages": ("cohere2", 2, "--pp 2 --zero 0 --schedule interleaved --chunks 2", ""),
    "bloom stages": ("bloom", 2, PP, ""),
    "gemma2 stages": ("gemma2", 2, PP, ""),
    "nanochat stages": ("nanochat", 2, PP, ""),
    "gpt2 stages": ("gpt2", 2, PP, ""),
    "opt stages": ("opt", 2, PP, ""),
    "dressed stages": ("dressed", 2, PP, ""),
    "dressed zb-v": ("dressed", 2, ZB, ""),
    "mixed stages": ("mixed", 2, PP, "which layers use and which is not theirs"),
    "skip stages": ("skip", 2, PP, ""),
    "auxiliary loss": ("mixtral aux", 2, PP, "a result beside the logits, aux_loss"),
    "experts stages": ("mixtral", 2, PP, ""),
    # Tensor ranks.
    "opt tensor": ("opt", 2, "--tp 2 --zero 0", "a part of the heads"),
    "stablelm tensor": ("stablelm", 2, "--tp 2 --zero 0", "stops with a part of the heads"),
    "olmo2 tensor": ("olmo2", 2, "--tp 2 --zero 0", "stops with a part of the heads"),
    "named heads": ("named heads", 2, "--tp 2 --zero 0", "a part of the heads"),
    "apertus tensor": ("apertus", 2, "--tp 2 --zero 0", ""),
    "picks": ("picks", 2, "--dp 2 --zero 3", ""),
    "picks stages": ("picks", 4, "--pp 2 --dp 2 --zero 2 --schedule 1f1b", "this model trains wrong by pipeline 2, data 2"),
    "gains tensor": ("gains", 2, "--tp 2 --zero 0", ""),
    "gains sequence": ("gains", 4, "--tp 2 --dp 2 --zero 3 --sp on --recompute full", ""),
    "used twice": ("used twice", 2, "--tp 2 --zero 0", "off that of one process"),
    # Models of transformers as they come, with a cache of keys and values.
    "gemma2 recompute": ("gemma2", 2, "--dp 2 --zero 2 --recompute full", ""),
    "qwen3 context": ("qwen3", 2, "--cp 2 --zero 0 --cp-method ring", ""),
    "llama products again": ("llama", 2, f"--dp 2 --zero 3 {PRODUCTS}", ""),
    # Acts.
    "the documents' lines": ("act documents", 2, "--dp 2 --zero 3", ""),
    "dropout recompute": ("act dropout_again", 2, "--dp 2 --zero 3", ""),
    "dropout recompute, tensor": ("act dropout_again", 2, "--tp 2 --zero 0", ""),
    "dropout products": ("act dropout_products", 2, f"--dp 2 --zero 3 {PRODUCTS}", ""),
    "dropout over tensor ranks": ("act seeds", 2, "--tp 2 --zero 0", ""),
    "clip data": ("act clip", 2, "--dp 2 --zero 3", ""),
    "clip tensor": ("act clip", 4, "--tp 2 --dp 2 --zero 1 --sp on", ""),
    "clip stages": ("act clip", 4, "--pp 2 --tp 2 --zero 0 --schedule 1f1b", ""),
    "clip zb-v": ("act clip", 2, ZB, ""),
    "batches": ("act batches", 2, "--dp 2 --zero 0", ""),
    "padding": ("act padding", 2, "--dp 2 --zero 3", ""),
    "padding stages": ("act padding", 4, "--pp 2 --dp 2 --zero 0 --schedule 1f1b", ""),
    "padding context": ("act padding", 2, "--cp 2 --zero 0 --cp-method ring", ""),
    "bf16 model": ("act narrow_weights", 2, "--dp 2 --zero 3 --precision bf16", ""),
    "checkpoints": ("act checkpoints", 4, "--dp 2 --tp 2 --zero 3", ""),
    "refusals": ("act refusals", 2, "--tp 2 --zero 0 --sp on", ""),
    "check": ("act check", 2, "--tp 2 --zero 0", ""),
}
SLOW = ("zero0", "context heads", "llama core again", "every second product, tensor", "nanochat stages", "dressed zb-v", "zero3 dualpipe-v", "recompute dualpipe-v",
        "olmo2 tensor", "clip zb-v", "experts stages", "llama context tensor", "padding stages", "qwen3 context", "context learned positions", "llama products again")


def loss_of(result, targets):
    import torch.nn.functional as F
    logits = getattr(result, "logits", result)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def data(step, sequences=8):
    import torch
    rows = torch.randint(3, 128, (sequences, 17), generator=torch.Generator().manual_seed(step))
    return rows[:, :-1], rows[:, 1:].clone()


def one_process(kind, batches):
    """Losses of steps, and the gradients of the first one."""
    import torch
    from parallelize_models import make_model
    model = make_model(kind)
    optimizer, losses, gradients = torch.optim.SGD(model.parameters(), lr=0.1), [], None
    for tokens, targets in batches:
        loss = loss_of(model(tokens), targets)
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
    return losses, gradients


def whole(value):
    from torch.distributed.tensor import DTensor
    return value.full_tensor() if isinstance(value, DTensor) else value


def own_rows(parallel, rows):
    """Of a batch, the sequences of this replica."""
    count = len(rows) // parallel.plan["layout"]["data"]
    return rows[parallel.replica * count : (parallel.replica + 1) * count]


def check_gradients(parallel, gradients):
    """Those of all ranks, by the model's names. A gradient that is zero but for rounding is compared with the others' size."""
    import torch.distributed as dist
    norm = sum(float(one.norm()) ** 2 for one in gradients.values()) ** 0.5
    names = []
    for name, parameter in parallel.named_parameters():
        off = (whole(parameter.grad) - gradients[name]).norm() / max(gradients[name].norm(), 1e-3 * norm)
        assert off < 2e-5, f"{name} is {100 * off:.2g}% off"
        names.append(name)
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, names)
    missing = set(gradients) - {name for one in told for name in one}
    assert not missing, missing


def check_recompute(plan, parallel):
    """A step runs again what the plan says, and no more: seven products of a layer and its core; backward has two of each product."""
    from parallelize_acts import count_calls
    layout = plan["layout"]
    sequences = 8 // layout["data"]
    layers = sum(layout["layers_per_stage"][stage] for stage in parallel.parts)
    heads = int(len(layout["layers_per_stage"]) - 1 in parallel.parts)
    cores, products = count_calls(lambda: parallel.step(*(rows[:sequences] for rows in data(0)), loss_of))
    micro_batches = sequences // layout["micro_batch"]
    alternate = layout["execution"].get("keeps_every_second_product", False)
    wanted = (layers * micro_batches * (1 if alternate else 2), micro_batches * (layers * (7 * 3 + (3 if alternate else 0)) + 3 * heads))
    assert (cores, products) == wanted, f"cores and products: {(cores, products)}, expected {wanted}"


def compare(kind, plan):
    """Two steps of all ranks against those of one process."""
    import torch
    import torch.distributed as dist
    from parallelize_models import make_model

    import mpt.torch
    layout = plan["layout"]
    parallel = mpt.torch.parallelize(make_model(kind), plan)
    assert parallel.comparison.startswith("compared the loss and"), parallel.comparison
    losses, gradients = one_process(kind, [data(0), data(1)])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for step in range(2):
        loss = parallel.step(*(own_rows(parallel, rows) for rows in data(step)), loss_of)
        sums = torch.tensor([0.0 if loss is None else loss.item(), loss is not None], dtype=torch.float64)
        dist.all_reduce(sums)
        assert abs(sums[0] / sums[1] - losses[step]) < 2e-5, (step, sums[0] / sums[1], losses[step])
        if step == 0:
            check_gradients(parallel, gradients)
        optimizer.step()
        optimizer.zero_grad()
    if layout["recompute"] == "selective" and kind == "own" and layout["context"] == 1:
        check_recompute(plan, parallel)


def run_case(name, plan):
    """What it says, and whether that is wrong."""
    import mpt
    import parallelize_acts
    kind, _, _, refused = CASES[name]
    with open(plan, encoding="utf-8") as file:
        fields = json.load(file)
    try:
        getattr(parallelize_acts, kind[4:])(fields, plan) if kind.startswith("act ") else compare(kind, fields)
        return "as one process", refused != ""
    except mpt.InputError as error:
        return f"refused: {error}", refused == "" or refused not in str(error)
    except Exception:  # the other ranks wait, up to the limit
        return traceback.format_exc()[-2500:], True


def rank(path):
    """All cases of a number of processes."""
    import datetime

    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    with open(path, encoding="utf-8") as file:
        cases = json.load(file)
    wrong = 0
    for name, plan in cases:
        begin = time.process_time()
        said, is_wrong = run_case(name, plan)
        wrong += is_wrong
        if dist.get_rank() == 0 or is_wrong:
            print(f"{name}: {'FAILED: ' if is_wrong else ''}{said} ({time.process_time() - begin:.1f} s)", flush=True)
        dist.barrier()
    dist.destroy_process_group()
    sys.exit(wrong > 0)


def make_plan(name, program, folder):
    from parallelize_models import SIZES
    kind, ranks, options, _ = CASES[name]
    config = os.path.join(folder, f"{kind}.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({**SIZES, "model_type": "llama", "tie_word_embeddings": kind == "tied"}, file)  # a Llama of the same width and layers
    extra = options.split()
    words = [word for pair in zip(BASE[::2], BASE[1::2]) if pair[0] not in extra for word in pair]
    plan = os.path.join(folder, f"plan of {name}.json")
    done = subprocess.run([program, "estimate", "--model", config, "--cluster", "dgx-h100", "--gpus", str(ranks), *words, *extra, "-o", plan],
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    return plan


def launch(ranks, path):
    """As torchrun does; returns whether a rank failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, os.path.abspath(__file__), "--rank", path]
    processes = [subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    return max(process.wait() for process in processes) != 0


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    names = [name for name in sys.argv[2:] if name != "--all"] or sample([name for name in CASES if "--all" in sys.argv or name not in SLOW])
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (2, 4):
            cases = [(name, make_plan(name, program, folder)) for name in names if CASES[name][1] == ranks]
            path = os.path.join(folder, "cases.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(cases, file)
            if cases:
                failed += launch(ranks, path)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank(*sys.argv[2:])
    else:
        main()
