# SPDX-License-Identifier: Apache-2.0
"""NeMo AutoModel's own FSDP2Manager and AutoPipeline over gloo, with a small Llama or Qwen3 of transformers in fp32."""

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "automodel"
ROWS, LENGTH, MICRO_BATCHES = 16, 8, 8
SAME = "Loss, gradients and norm are those of one process."
SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved1f1b", "zb-interleaved": "InterleavedZeroBubble", "zb-v": "ZBVZeroBubble"}
RESHARDS = {"unset": None, "zero2": False, "zero3": True}


def cases():
    lost = "A split backward looks its weights up while they are resharded, and finds no gradient for them."
    for schedule in SCHEDULES:
        for reshard in RESHARDS:
            wrong = schedule.startswith("zb") and reshard != "zero2"
            axes = {"schedule": schedule, "reshard_after_forward": reshard, "pp": 2, "dp": 2, "recompute": "none"}
            yield Case(f"automodel-{schedule}-{reshard}", 4, axes, "llama", "wrong" if wrong else "right", lost if wrong else SAME, (schedule, reshard) == ("zb-v", "unset"))
    for model in ("llama", "qwen3"):
        yield Case(f"automodel-dp2-{model}", 2, {"dp": 2, "reshard_after_forward": "unset", "recompute": "none"}, model, "right", SAME)
        yield Case(f"automodel-dp2-full-{model}", 2, {"dp": 2, "reshard_after_forward": "unset", "recompute": "full"}, model, "right", SAME)


CASES = list(cases())


def prepare():
    import stubs
    stubs.use()
    stubs.untuned_kernels()
    stubs.older_fsdp()
    import torch
    from nemo_automodel.components.distributed.fsdp2 import FSDP2Manager  # noqa: F401  so that forks have it
    from nemo_automodel.components.distributed.pipelining.autopipeline import AutoPipeline  # noqa: F401
    from . import hf_models
    torch.set_num_threads(1)
    hf_models.make("llama")


def package_version():
    import importlib.metadata
    return "nemo-automodel " + importlib.metadata.version("nemo-automodel")


def layers_of(case):
    return 8 if "pp" in case.axes else 4


def loss_of(logits, targets):
    from torch.nn.functional import cross_entropy
    logits = getattr(logits, "logits", logits)
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def alone(case):
    from . import hf_models, small_models
    model = hf_models.make(case.model, layers=layers_of(case))
    tokens, targets = small_models.rows(ROWS, LENGTH)
    loss = loss_of(model(input_ids=tokens), targets)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def manager_of(case):
    import torch
    from nemo_automodel.components.distributed.config import FSDP2Config
    from nemo_automodel.components.distributed.fsdp2 import FSDP2Manager
    from nemo_automodel.components.distributed.mesh import ParallelismSizes
    from nemo_automodel.components.distributed.mesh_utils import _create_device_meshes
    from torch.distributed.fsdp import MixedPrecisionPolicy
    config = FSDP2Config(mp_policy=MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32),
                         reshard_after_forward=RESHARDS[case.axes["reshard_after_forward"]], activation_checkpointing=case.axes["recompute"] == "full")
    mesh, _ = _create_device_meshes(config, ParallelismSizes(dp_size=2, pp_size=case.axes.get("pp", 1)), world_size=case.ranks)
    return FSDP2Manager(config, mesh)


def run(case, rank):
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule
    from . import hf_models, small_models
    dist.init_process_group("gloo")
    manager, model = manager_of(case), hf_models.make(case.model, layers=layers_of(case))
    if "pp" in case.axes:
        return run_pipeline(case, rank, manager, model)
    model = manager.parallelize(model) or model
    require(isinstance(model, FSDPModule), type(model).__name__)
    tokens, targets = (value.chunk(2)[rank] for value in small_models.rows(ROWS, LENGTH))
    loss = loss_of(model(input_ids=tokens), targets)
    loss.backward()
    return seen_of([model], [loss.detach()], None)


def run_pipeline(case, rank, manager, model):
    from nemo_automodel.components.distributed.pipelining.autopipeline import AutoPipeline
    from . import small_models
    kind = case.axes["schedule"]
    mesh = manager.device_mesh

    def parallelize(part, **_):
        manager.parallelize(part)
    pipeline = AutoPipeline(world_mesh=mesh, dp_axis_names=("dp_replicate", "dp_shard"), pp_schedule=SCHEDULES[kind], pp_microbatch_size=1,
                            pp_batch_size=MICRO_BATCHES, layers_per_stage=4 if kind == "1f1b" else 2)
    pipeline.build(model, loss_fn=lambda logits, targets: loss_of(logits, targets) / MICRO_BATCHES, parallelize_fn=parallelize)
    require(len(pipeline.parts) == (1 if kind == "1f1b" else 2), f"{len(pipeline.parts)} parts on each rank")
    require(any(weight.to_local().numel() < weight.numel() for part in pipeline.parts for weight in part.parameters()), "no weight is split")
    tokens, targets = (value.chunk(2)[rank % 2] for value in small_models.rows(ROWS, LENGTH))
    last = pipeline.info.has_last_stage
    losses = [] if last else None
    pipeline.step(tokens, target=targets if last else None, losses=losses)
    return seen_of(pipeline.parts, [loss.detach() for loss in losses or []], mesh)


def seen_of(parts, losses, mesh):
    """Without a pipeline the loss is averaged over all ranks, with one over the data ranks of the last stage."""
    import torch
    import torch.distributed as dist
    from . import small_models as small
    gradients = {name.replace("_checkpoint_wrapped_module.", ""): None if weight.grad is None else small.whole(weight.grad)
                 for part in parts for name, weight in part.named_parameters()}
    loss = None
    if losses:
        total = torch.stack(losses).sum()
        dist.all_reduce(total, group=None if mesh is None else mesh["dp_shard"].get_group())
        loss = total.item() / 2
    square = torch.tensor(norm_of(gradients)**2)
    if mesh is not None:
        dist.all_reduce(square, group=mesh["pp"].get_group())
    return Seen(loss, gradients, square.sqrt().item())
