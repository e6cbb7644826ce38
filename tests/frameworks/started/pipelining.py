# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.pipelining with fully_shard: 2 stages' ranks x 2 data ranks, 8 micro-batches, a decoder of 8 layers."""

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "pytorch"
MICRO_BATCHES, LAYERS, ROWS, LENGTH = 8, 8, 16, 8
# Class of the schedule, and the stages of each of the two pipeline ranks.
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", ((0,), (1,))),
    "1f1b": ("Schedule1F1B", ((0,), (1,))),
    "interleaved": ("ScheduleInterleaved1F1B", ((0, 2), (1, 3))),
    "zb-interleaved": ("ScheduleInterleavedZeroBubble", ((0, 2), (1, 3))),
    "zb-v": ("ScheduleZBVZeroBubble", ((0, 3), (1, 2))),
    "dualpipe-v": ("ScheduleDualPipeV", ((0, 3), (1, 2))),
}
SPLIT = ("zb-interleaved", "zb-v", "dualpipe-v")
# fully_shard's reshard_after_forward; "default" is None, which reshards all groups but the root's.
SHARDINGS = {"none": None, "replicate": None, "zero2": False, "zero3": True, "default": None}
RECOMPUTES = ("none", "full", "ops", "core")


def expected(schedule, sharding, recompute):
    """What torch 2.15.0 does, and why."""
    if schedule in SPLIT and recompute == "ops":
        return "raises Trying to backward an extra time", "A region with create_selective_checkpoint_contexts allows one backward, and a split backward needs two."
    if schedule in SPLIT and sharding in ("zero3", "default"):
        return "wrong", "A split backward looks its weights up while they are resharded, and finds no gradient for them."
    if schedule in SPLIT and recompute == "full":
        return "right", "The layer runs again for the inputs' gradients, and once more for the gradient of each of its weights."
    return "right", "Loss, gradients and norm are those of one process."


def named(schedule, sharding, recompute, tied=False):
    words = [schedule, sharding] + ([] if recompute == "none" else [recompute]) + (["tied"] if tied else [])
    return "torch-" + "-".join(words)


def cases():
    sample = {("zb-v", "zero2", "none"), ("zb-v", "zero3", "none"), ("1f1b", "zero3", "full"), ("interleaved", "zero3", "none"),
              ("dualpipe-v", "zero2", "none"), ("zb-v", "none", "ops"), ("zb-v", "zero2", "full")}
    for schedule in SCHEDULES:
        for sharding in SHARDINGS:
            for recompute in RECOMPUTES:
                outcome, sentence = expected(schedule, sharding, recompute)
                axes = {"schedule": schedule, "sharding": sharding, "recompute": recompute, "pp": 2, "dp": 2}
                yield Case(named(schedule, sharding, recompute), 4, axes, "decoder", outcome, sentence, (schedule, sharding, recompute) in sample)
    for schedule in SCHEDULES:
        for sharding in ("none", "zero2"):
            axes = {"schedule": schedule, "sharding": sharding, "recompute": "none", "pp": 2, "dp": 2}
            yield Case(named(schedule, sharding, "none", True), 4, axes, "decoder with a tied head", *tied_expected(schedule, sharding))


def unscaled_cases():
    """The division by micro-batches is left to the loss."""
    for schedule in ("zb-v", "dualpipe-v"):
        axes = {"schedule": schedule, "sharding": "none", "recompute": "none", "pp": 2, "dp": 2, "scale_grads": False}
        yield Case(f"torch-{schedule}-none-tied-unscaled", 4, axes, "decoder with a tied head", "right", "Both ends of the V are on one rank and share the weight.")


def tied_expected(schedule, sharding):
    if SCHEDULES[schedule][1][0] != (0, 3):
        return "wrong", "Embedding and head are on two ranks, and nothing sums their gradients: each rank has its own part."
    if sharding != "none":
        return "wrong", "fully_shard makes two weights out of the one that both ends of the V share."
    return "wrong", "Both ends of the V share the weight, and each of the two stages divides its gradient by the number of micro-batches."


CASES = [*cases(), *unscaled_cases()]


def prepare():
    import torch
    import torch.distributed.pipelining  # noqa: F401  so that forks have it
    from . import small_models  # noqa: F401
    torch.set_num_threads(1)


def package_version():
    import torch
    return "torch " + torch.__version__.split("+")[0]


def is_tied(case):
    return case.model.endswith("tied head")


def alone(case):
    from . import small_models as small
    model = small.Decoder(LAYERS, is_tied(case))
    tokens, targets = small.rows(ROWS, LENGTH)
    loss = small.loss_of(model(tokens), targets)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def again(layer, recompute):
    """A layer that recomputes all of itself, or what a policy of operations leaves out."""
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    if recompute == "full":
        return checkpoint_wrapper(layer)
    keep = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE)

    def policy(_, operation, *arguments, **options):
        return keep[operation != torch.ops.aten.mm.default]
    return checkpoint_wrapper(layer, context_fn=lambda: create_selective_checkpoint_contexts(policy))


def part_of(whole_model, stage, stages):
    """The stage's part of the model; a tied head is the same parameter where both ends are on one rank."""
    import copy
    part = copy.copy(whole_model)
    part._modules = dict(whole_model._modules)
    each = LAYERS // stages
    keep = [str(n) for n in range(stage * each, (stage + 1) * each)]
    part.layers = type(whole_model.layers)({name: whole_model.layers[name] for name in keep})
    if stage > 0:
        part.words = None
    if stage < stages - 1:
        part.norm = part.head = None
    return part


def shard(part, sharding, mesh):
    from torch.distributed._composable.replicate_with_fsdp import replicate
    from torch.distributed.fsdp import fully_shard
    groups = [*part.layers.values(), part]
    for group in groups:
        if sharding == "replicate":
            replicate(group, mesh=mesh)
        elif sharding != "none":
            fully_shard(group, mesh=mesh, reshard_after_forward=SHARDINGS[sharding])


def check_active(schedule, parts, case):
    """The schedule is of its class and splits or not, and each rank holds half of a sharded matrix."""
    from . import small_models as small
    kind = case.axes["schedule"]
    require(type(schedule).__name__ == SCHEDULES[kind][0], f"schedule {type(schedule).__name__}")
    order = getattr(schedule, "pipeline_order", {})
    actions = {action.computation_type.name for rank in order.values() for action in rank if action is not None}
    require(("BACKWARD_WEIGHT" in actions or "OVERLAP_F_B" in actions) == (kind in SPLIT), f"actions {sorted(actions)}")
    sharded = case.axes["sharding"] in ("zero2", "zero3", "default")
    for part in parts:
        weight = next(value for name, value in part.named_parameters() if name.endswith("up.weight"))
        held = weight.to_local() if hasattr(weight, "to_local") else weight
        require(held.numel() == 48 * small.WIDTH // (2 if sharded else 1), f"{held.numel()} elements of a matrix on each rank")


def count_after_shapes(stage, layers):
    """A stage runs its part once to learn shapes before the first micro-batch; that is not counted."""
    def reset_after(prepare):
        def prepare_and_reset(*arguments, **options):
            answer = prepare(*arguments, **options)
            for layer in layers:
                layer.runs = 0
            return answer
        return prepare_and_reset
    stage._prepare_forward_infra = reset_after(stage._prepare_forward_infra)
    stage._prepare_backward_infra = reset_after(stage._prepare_backward_infra)


def run(case, rank):
    import torch.distributed as dist
    import torch.distributed.pipelining as pipelining
    from torch.distributed.device_mesh import init_device_mesh
    from . import small_models as small
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    kind, sharding, recompute = (case.axes[key] for key in ("schedule", "sharding", "recompute"))
    class_name, places = SCHEDULES[kind]
    count = 2 * len(places[0])
    model = small.Decoder(LAYERS, is_tied(case))
    layers = list(model.layers.values())
    for name, layer in model.layers.items():
        layer.attention.core_again = recompute == "core"
        if recompute in ("full", "ops"):
            model.layers[name] = again(layer, recompute)
    parts = {place: part_of(model, place, count) for place in places[rank // 2]}
    for part in parts.values():
        shard(part, sharding, mesh["dp"])
    stages = [pipelining.PipelineStage(part, place, count, mesh.device_type, group=mesh.get_group("pp")) for place, part in parts.items()]
    parts_of_loss = 1 if case.axes.get("scale_grads", True) else MICRO_BATCHES
    schedule = getattr(pipelining.schedules, class_name)(
        stages if len(stages) > 1 else stages[0], MICRO_BATCHES, loss_fn=lambda logits, targets: small.loss_of(logits, targets) / parts_of_loss,
        scale_grads=parts_of_loss == 1)
    check_active(schedule, parts.values(), case)
    for stage in stages:
        count_after_shapes(stage, layers)
    tokens, targets = (value.chunk(2)[rank % 2] for value in small.rows(ROWS, LENGTH))
    losses = []
    schedule.step(*([tokens] if 0 in parts else []), **({"target": targets, "losses": losses} if count - 1 in parts else {}))
    facts = {"forwards of a layer": max(layer.runs for layer in layers) / MICRO_BATCHES} if recompute == "full" else {}
    return after(parts, sharding, is_tied(case), [loss * parts_of_loss for loss in losses], mesh, facts)


def after(parts, sharding, tied, losses, mesh, facts):
    """What this rank has after the step; without sharding the data ranks' gradients are averaged here, as a user would."""
    import torch
    import torch.distributed as dist
    from . import small_models as small
    gradients, known = {}, {}
    for part in parts.values():
        for name, weight in part.named_parameters():
            if weight.grad is not None and id(weight) not in known:
                known[id(weight)] = small.whole(weight.grad)
                if sharding == "none":
                    dist.all_reduce(known[id(weight)], group=mesh.get_group("dp"))
                    known[id(weight)] /= 2
            name = name.replace("_checkpoint_wrapped_module.", "")
            gradients["words.weight" if tied and name == "head.weight" else name] = known.get(id(weight))
    loss = None
    if losses:
        loss = torch.stack(losses).mean().detach()
        dist.all_reduce(loss, group=mesh.get_group("dp"))
        loss = loss.item() / 2
    square = torch.tensor(norm_of(gradients)**2)
    dist.all_reduce(square, group=mesh.get_group("pp"))
    return Seen(loss, gradients, square.sqrt().item(), facts)
