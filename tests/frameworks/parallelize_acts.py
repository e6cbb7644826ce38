# SPDX-License-Identifier: Apache-2.0
"""What parallelize_test.py tries beside two steps against one process. Each act has a plan's fields and its path."""

import copy
import os
import re
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parallelize_models import make_model
from parallelize_test import ROOT, check_gradients, data, loss_of, one_process, own_rows, whole

import mpt
import mpt.torch


def refused(words, act):
    try:
        act()
    except mpt.InputError as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def documents(_, path):
    """The lines of docs/python.md on a model of one's own."""
    with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
            lines = [one for one in re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S) if "mpt.torch" in one]
    assert len(lines) == 2
    half = slice(dist.get_rank() * 4, dist.get_rank() * 4 + 4)
    names = {"model": make_model("own"), "batches": [tuple(rows[half] for rows in data(0)) for _ in range(3)], "loss_of": loss_of}
    for snippet in lines:
        exec(compile(snippet.replace("plan.json", path).replace('"checkpoint"', repr(path[:-5])), "docs/python.md", "exec"), names)
    assert 0 < names["loss"] < one_process("own", [data(0)])[0][0], names["loss"]  # it learns


def count_calls(act):
    """Attention cores and products that a step computes on this rank, forward and again. Under modes of checkpoints: these do not call what they kept."""
    from torch.utils._python_dispatch import TorchDispatchMode
    cores, products = [], []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, arguments=(), named=None):
            name = str(operator)
            (cores if "_scaled_dot_product_" in name and "backward" not in name else products if name.startswith(("aten.mm.", "aten.addmm.")) else []).append(name)
            return operator(*arguments, **(named or {}))
    with Count():
        act()
    return len(cores), len(products)


def gradients_of(plan, kind, **layout):
    """Of one step from one seed."""
    plan = copy.deepcopy(plan)
    plan["layout"].update(layout)
    parallel = mpt.torch.parallelize(make_model(kind).train(), plan)
    assert "without dropout" in parallel.comparison, parallel.comparison
    torch.manual_seed(7)
    loss = parallel.step(*(own_rows(parallel, rows) for rows in data(0)), loss_of)
    return loss.item(), {name: whole(parameter.grad).clone() for name, parameter in parallel.named_parameters()}


def dropout_again(plan, _):
    """Recompute drops what forward dropped: the gradient is the same with it and without."""
    for kind in ("dropout",) if plan["layout"]["tensor"] > 1 else ("gpt2 dropout", "dropout"):
        (loss, once), (again, twice) = gradients_of(plan, kind, recompute="none"), gradients_of(plan, kind, recompute="full")
        assert abs(loss - again) < 1e-5, (loss, again)
        for name, gradient in once.items():
            assert (twice[name] - gradient).norm() <= 1e-4 * gradient.norm() + 1e-6, (kind, name)


def dropout_products(plan, _):
    (loss, once), (again, twice) = gradients_of(plan, "dropout", recompute="none"), gradients_of(plan, "dropout")
    assert abs(loss - again) < 1e-5 and all((twice[name] - once[name]).norm() <= 1e-4 * once[name].norm() + 1e-6 for name in once)


def seeds(plan, _):
    """Tensor ranks whose seeds differ train one model."""
    for kind in ("starcoder2", "dropout"):
        parallel = mpt.torch.parallelize(make_model(kind).train(), plan)
        torch.manual_seed(11 + dist.get_rank())
        parallel.step(*data(0), loss_of)
        told = [None, None]
        dist.all_gather_object(told, {name: whole(parameter.grad) for name, parameter in parallel.named_parameters()})
        for name in told[0]:
            assert torch.allclose(told[0][name], told[1][name], rtol=1e-4, atol=1e-6), (kind, name)


def clip(plan, _):
    """The norm is that of one process, on each rank, and so are the gradients behind it."""
    for kind in ("llama", "gains"):
        _, gradients = one_process(kind, [data(0)])
        for norm_type in (2.0, float("inf")):
            norm = torch.nn.utils.get_total_norm(list(gradients.values()), norm_type)
            parallel = mpt.torch.parallelize(make_model(kind), plan, check=False)
            parallel.step(*(own_rows(parallel, rows) for rows in data(0)), loss_of)
            found = parallel.clip_grad_norm_(0.5 * float(norm), norm_type)
            assert abs(found / norm - 1) < 1e-4, (kind, norm_type, found, norm)
            check_gradients(parallel, {name: gradient * 0.5 for name, gradient in gradients.items()})


def batches(plan, _):
    """A batch that does not divide is refused; padded sequences stand for it."""
    parallel = mpt.torch.parallelize(make_model("own"), plan)
    for count in (5, 7, 0):
        tokens, targets = data(0, count)
        refused(f"{count} sequences in tokens", lambda: parallel.step(tokens, targets, loss_of))
    tokens, targets = data(0)
    used = torch.arange(8) % 4 < 3  # of each replica's four the last one is padding
    model = make_model("own")
    loss = loss_of(model(tokens[used]), targets[used])
    loss.backward()
    padded = torch.where(used[:, None], targets, -100)
    found = parallel.step(own_rows(parallel, tokens), own_rows(parallel, padded), loss_of)
    assert abs(found - loss) < 2e-5, (found, loss)
    check_gradients(parallel, {name: parameter.grad for name, parameter in model.named_parameters()})


def padding(plan, _):
    """With unequal counts of targets the loss is the mean over all of them, be loss_of a mean or a sum."""
    tokens, targets = data(0)
    for row, wanted in enumerate(targets):
        wanted[1 + 2 * row :] = -100
    model = make_model("llama")
    loss = loss_of(model(tokens), targets)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    parallel = mpt.torch.parallelize(make_model("llama"), plan, check=False)

    def total(result, wanted):
        return F.cross_entropy(getattr(result, "logits", result).flatten(0, 1), wanted.flatten(), reduction="sum")
    for meaning, one in (("mean", loss_of), ("sum", total)):
        found = parallel.step(own_rows(parallel, tokens), own_rows(parallel, targets), one, loss_is=meaning)
        assert found is None or abs(found - loss) < 2e-5, (meaning, found, loss)
        check_gradients(parallel, gradients)
        for parameter in parallel.parameters():
            parameter.grad = None
    refused("loss_is='max'", lambda: parallel.step(own_rows(parallel, tokens), own_rows(parallel, targets), loss_of, loss_is="max"))


def narrow_weights(plan, _):
    """Weights of bf16 become fp32, so that small steps are not lost; layers compute in bf16."""
    for kind in ("llama", "granite", "gpt2"):
        parallel = mpt.torch.parallelize(make_model(kind).bfloat16(), plan)
        assert "where rounding to bfloat16 makes" in parallel.comparison, parallel.comparison
        parallel.step(*(own_rows(parallel, rows) for rows in data(0)), loss_of)
        assert {parameter.dtype for parameter in parallel.parameters()} == {torch.float32}
        before = {name: whole(parameter).clone() for name, parameter in parallel.named_parameters()}
        torch.optim.AdamW(parallel.parameters(), lr=1e-5).step()
        stuck = max(float((whole(parameter) == before[name]).float().mean()) for name, parameter in parallel.named_parameters() if "mlp" in name and parameter.ndim > 1)
        assert stuck < 0.05, (kind, stuck)


LAYOUTS = ({}, {"tensor": 1, "pipeline": 2, "layers_per_stage": [2, 2], "schedule": "1f1b", "zero": 0},
           {"tensor": 1, "pipeline": 2, "layers_per_stage": [1, 1, 1, 1], "schedule": "zb-v", "zero": 0, "chunks": 2}, {"tensor": 4, "data": 1, "zero": 0})


def other_plan(plan, changes):
    plan = copy.deepcopy(plan)
    plan["layout"].update(changes)
    stages = len(plan["layout"]["layers_per_stage"])
    plan["schedule"]["rank_of_stage"] = [0] if stages == 1 else [0, 1] if stages == 2 else [0, 1, 1, 0]
    plan["layout"].update(shard=plan["layout"]["data"])
    return plan


def checkpoints(plan, _):
    """What one plan saves another one loads, with the optimizer's state; and the unsplit model's weights are loaded, too."""
    import torch.distributed.checkpoint as dcp
    told = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(told)
    parallel = mpt.torch.parallelize(make_model("llama"), plan, check=False)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    asked = parallel.optimizer_state_dict(optimizer)  # before the first step: it counts as none
    assert not optimizer.state and not any(value.any() for key, value in asked.items() if key.startswith("state."))
    parallel.step(*(own_rows(parallel, rows) for rows in data(0)), loss_of)
    optimizer.step()
    optimizer.zero_grad()
    dcp.save({"model": parallel.state_dict(), "optimizer": parallel.optimizer_state_dict(optimizer)}, checkpoint_id=told[0])
    after = float(parallel.step(*(own_rows(parallel, rows) for rows in data(1)), loss_of))
    optimizer.step()
    last = float(parallel.step(*(own_rows(parallel, rows) for rows in data(2)), loss_of))
    for changes in LAYOUTS:
        other = mpt.torch.parallelize(make_model("llama"), other_plan(plan, changes), check=False)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        steps = torch.optim.AdamW(other.parameters(), lr=1e-2)
        state = {"model": other.state_dict(), "optimizer": other.optimizer_state_dict(steps)}
        dcp.load(state, checkpoint_id=told[0])
        other.load_state_dict(state["model"])
        other.load_optimizer_state_dict(steps, state["optimizer"])
        for step, wanted in ((1, after), (2, last)):
            loss = other.step(*(own_rows(other, rows) for rows in data(step)), loss_of)
            assert loss is None or abs(float(loss) - wanted) < 2e-4, (changes, step, float(loss), wanted)
            steps.step()
            steps.zero_grad()
        whole_state = make_model("llama").state_dict()
        other.load_state_dict(whole_state)
        assert all(torch.equal(whole(value), whole_state[name]) for name, value in other.state_dict().items()), changes
        refused("no ", lambda: other.load_state_dict({}))
        refused("unknown extra", lambda: other.load_state_dict({**whole_state, "extra": torch.zeros(1)}))


def refusals(plan, _):
    """In words of ours, each with a remedy."""
    parallel = mpt.torch.parallelize(make_model("own"), plan, check=False)
    tokens, targets = data(0)
    refused("sequences of 15 tokens for 2 tensor ranks", lambda: parallel.step(tokens[:, :15], targets[:, :15], loss_of))
    refused("tokens that are dict", lambda: parallel.step({"input_ids": tokens}, targets, loss_of))
    with torch.no_grad():
        refused("torch.no_grad()", lambda: parallel.step(tokens, targets, loss_of))
    refused("torch.compile has compiled", lambda: mpt.torch.parallelize(torch.compile(make_model("own")), plan))
    wide = copy.deepcopy(plan)
    wide["model"]["hidden"] = 128
    refused("a width of 64 in blocks; expected the plan's 128", lambda: mpt.torch.parallelize(make_model("own"), wide))
    model = make_model("own")
    model.blocks[0].scale = torch.nn.Parameter(torch.tensor(1.0))
    refused("blocks.0.scale, a weight without an axis", lambda: mpt.torch.parallelize(model, plan))
    model = make_model("own")
    model.blocks[0].eval()
    assert not mpt.torch.parallelize(model, plan).parts[0].blocks[0].training


def check(plan, _):
    """What it says: a comparison, why there is none, or what differs between processes."""
    found = mpt.torch.parallelize(make_model("own"), plan)
    assert re.fullmatch(r"compared the loss and 59 gradients with one process: equal to \d+e-0[5-9]", found.comparison), found.comparison
    assert all(parameter.grad is None for parameter in found.parameters())
    assert mpt.torch.parallelize(make_model("own"), plan, check=False).comparison == ""
    with torch.device("meta"):
        model = make_model("own")
    assert mpt.torch.parallelize(model, plan).comparison == "not compared with one process: its weights are on the meta device"
    model = make_model("own")
    with torch.no_grad():
        model.blocks[1].mix.back.weight.mul_(1 + dist.get_rank())
    refused("weights that differ between processes", lambda: mpt.torch.parallelize(model, plan))
