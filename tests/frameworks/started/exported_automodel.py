# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan exports for NeMo AutoModel, started on CPU processes by its own recipe: setup() and an optimizer step of automodel.yaml.

Weights, tokens and gradients of one process are those of transformers' model, in the names of AutoModel's class by its own adapter."""

import contextlib
import functools
import inspect
import os
import types
import unittest.mock

from . import exported
from .exported import folder_of, model_of, plan_of, sequences, targets_of
from .harness import Seen, norm_of, require

FRAMEWORK = "exported"
CASES = [case for case in exported.CASES if case.axes["framework"] == "automodel"]
SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
             "zb-interleaved": "ScheduleInterleavedZeroBubble", "zb-v": "ScheduleZBVZeroBubble"}

OUTPUTS = ("o_proj", "self_attn.dense", "attention.dense", "out_proj")  # of attention

IN_FP32 = ["--model.torch_dtype=float32", "--distributed.mp_policy._target_=torch.distributed.fsdp.MixedPrecisionPolicy",
           "--distributed.mp_policy.param_dtype=float32", "--distributed.mp_policy.reduce_dtype=float32"]


def prepare():
    import stubs
    stubs.use()
    stubs.untuned_kernels()
    stubs.older_fsdp()
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling a norm takes a minute
    import logging
    import torch
    import transformers
    from nemo_automodel.components.datasets.llm import mock_iterable_dataset  # noqa: F401  so that forks have it
    from nemo_automodel.recipes.llm import train_ft
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    transformers.AutoModelForCausalLM  # noqa: B018  a lazy import, so that forks have it
    return train_ft


def package_version():
    import importlib.metadata
    return "nemo-automodel " + importlib.metadata.version("nemo-automodel")


@contextlib.contextmanager
def on_cpu():
    """The CPU in place of the GPU that setup() takes."""
    import torch
    from nemo_automodel._transformers import auto_model
    from nemo_automodel.components.checkpoint.checkpointing import Checkpointer
    from nemo_automodel.components.models.gpt_oss import rope_utils
    from nemo_automodel.recipes.llm import train_ft
    cpu = torch.device("cpu")
    rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    place = types.SimpleNamespace(backend="gloo", rank=rank, world_size=count, device=cpu, is_main=rank == 0)
    with contextlib.ExitStack() as stack:
        for name in ("reset_peak_memory_stats", "empty_cache", "synchronize"):
            stack.enter_context(unittest.mock.patch(f"torch.cuda.{name}", lambda *_, **__: None))
        for name in ("current_device", "max_memory_allocated"):
            stack.enter_context(unittest.mock.patch(f"torch.cuda.{name}", lambda *_, **__: 0))
        for name in ("instantiate_infrastructure", "apply_model_infrastructure"):
            real = getattr(auto_model, name)
            stack.enter_context(unittest.mock.patch.object(auto_model, name, lambda *words, real=real, **options: real(*words, **{**options, "device": cpu})))
        stack.enter_context(unittest.mock.patch.object(train_ft, "initialize_distributed", lambda **_: place))
        stack.enter_context(unittest.mock.patch.object(rope_utils.RotaryEmbedding, "device", property(lambda _: cpu, lambda *_: None), create=True))
        stack.enter_context(unittest.mock.patch.object(Checkpointer, "initialize_model_weights", staticmethod(
            lambda model, *words, real=Checkpointer.initialize_model_weights, **options: real(with_buffers(model, cpu), *words, **options))))
        yield


def with_buffers(model, device):
    """The model, which initializes its buffers there: its own classes take the GPU."""
    start = getattr(model, "initialize_weights", None)
    if start and "buffer_device" in inspect.signature(start).parameters:
        model.initialize_weights = functools.partial(start, buffer_device=device)
    return model


def alone(case):
    import torch
    from nemo_automodel import NeMoAutoModelForCausalLM
    from torch.nn.functional import cross_entropy
    model = model_of(case)
    loss = cross_entropy(model(input_ids=sequences(case)[:, :-1], use_cache=False).logits.flatten(0, 1), targets_of(case).flatten())
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    with on_cpu():
        own = NeMoAutoModelForCausalLM.from_config(os.path.join(folder_of(case), "model"), torch_dtype="float32")
    adapter = getattr(own, "state_dict_adapter", None)
    names = {name for name, _ in own.named_parameters()}

    def adapted(tensors):
        with torch.no_grad():
            tensors = adapter.from_hf(as_written({name: value.detach() for name, value in tensors.items()})) if adapter else tensors
        return {name: None if value is None else value.detach().clone() for name, value in tensors.items() if name in names}
    weights = adapted(dict(model.named_parameters()))
    require(names == set(weights), f"other weights than transformers': {sorted(names ^ set(weights))[:4]}")
    torch.save(weights, os.path.join(folder_of(case), "weights.pt"))
    return Seen(loss.item(), adapted(gradients), norm_of(gradients))


def as_written(tensors):
    """Experts one after another, as files of checkpoints have them."""
    found = {}
    for name, value in tensors.items():
        layer, _, kind = name.rpartition(".mlp.experts.")
        if not layer:
            found[name] = value
            continue
        for number, one in enumerate(value):
            parts = zip(("gate_proj", "up_proj"), one.chunk(2)) if kind == "gate_up_proj" else [("down_proj", one)]
            found.update({f"{layer}.mlp.experts.{number}.{part}.weight": value for part, value in parts})
    return found


def recipe_of(case):
    """The recipe after setup(), by the words of run_automodel.sh; the step changes no weight."""
    from nemo_automodel.components.config._arg_parser import parse_args_and_load_config
    from nemo_automodel.recipes.llm import train_ft
    words = ["--model.config=" + os.path.join(folder_of(case), "model"), "--optimizer.lr=0.0", "--clip_grad_norm.max_norm=1e9"]
    layout = plan_of(case)["layout"]
    narrow, shares = layout["precision"] != "fp32", layout["zero"] > 0 or layout["data"] == 1
    if narrow:
        words += IN_FP32[:1] + IN_FP32[1:] * shares + [word.replace("--distributed.", "--distributed.moe.") for word in IN_FP32[1:]] * (layout["expert"] > 1)
    config = parse_args_and_load_config(argv=["--config", os.path.join(folder_of(case), "automodel.yaml"), *words])
    if narrow:
        config.set_by_dotted("distributed.autocast_dtype", None)
    recipe = train_ft.TrainFinetuneRecipeForNextTokenPrediction(config)
    recipe.setup()
    return recipe


def plain(name):
    return name.replace("_checkpoint_wrapped_module.", "").removeprefix("module.")


def fill(case, parts):
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor
    values = torch.load(os.path.join(folder_of(case), "weights.pt"))
    with torch.no_grad():
        for part in parts:
            for name, weight in part.named_parameters():
                value = values[plain(name)]
                if isinstance(weight, DTensor):
                    value = distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None)
                weight.copy_(value)


def batches_of(case, recipe):
    """This data rank's, as the recipe's scheduler takes them. With a pipeline its loader adds masks."""
    import torch
    from nemo_automodel.recipes.llm import train_ft
    wrapper = train_ft._build_pp_collate_wrapper(recipe.cfg.model, recipe.pp_enabled)
    masked = wrapper(lambda batch: batch) if wrapper else (lambda batch: batch)
    rank, count = recipe._get_dp_rank(), recipe._get_dp_group_size()
    tokens, targets = sequences(case)[:, :-1], targets_of(case)
    batch = {"input_ids": tokens, "labels": targets, "position_ids": torch.arange(tokens.shape[1]).repeat(len(tokens), 1)}
    size = recipe.cfg.get("step_scheduler.local_batch_size")
    parts = {name: value.chunk(count)[rank].contiguous().split(size) for name, value in batch.items()}
    require(len(parts["labels"]) == recipe.step_scheduler.grad_acc_steps, f"{recipe.step_scheduler.grad_acc_steps} steps of accumulation")
    return [masked({name: value[number].clone() for name, value in parts.items()}) for number in range(len(parts["labels"]))]


def run(case, rank):
    import time
    import torch.distributed as dist
    from . import small_models as small
    dist.init_process_group("gloo")
    with on_cpu():
        recipe = recipe_of(case)
        fill(case, recipe.model_parts)
        watch, kept = watched(recipe), {}
        step = recipe.optimizer[0].step

        def noted(*words, **options):
            kept.update({plain(name): None if weight.grad is None else small.whole(weight.grad)
                         for part in recipe.model_parts for name, weight in part.named_parameters()})
            return step(*words, **options)
        recipe.optimizer[0].step = noted
        for part in recipe.model_parts:
            part.train()
        recipe.timestamp = time.perf_counter()
        metrics = recipe._run_train_optim_step(batches_of(case, recipe), recipe.max_grad_norm).metrics
        active(case, recipe, watch)
    return Seen(metrics["loss"], kept, float(metrics["grad_norm"]))


def layers_of(part):
    inner = getattr(part, "module", part)
    inner = next((getattr(inner, name) for name in ("model", "gpt_neox", "transformer") if hasattr(inner, name)), inner)
    inner = getattr(inner, "language_model", inner)
    return next(getattr(inner, name) for name in ("layers", "h", "blocks") if hasattr(inner, name))


def mlp_of(layer):
    """What a layer runs last."""
    name = next(name for name in ("mlp", "feed_forward", "block_sparse_moe", "ffn") if hasattr(layer, name))
    module = getattr(layer, name)
    return getattr(module, "_checkpoint_wrapped_module", module)


def watched(recipe):
    """Tokens that each layer's second norm has, at each run: it lies within what recompute runs again."""
    seen = {}
    for part in recipe.model_parts:
        layers = layers_of(part)
        for name, layer in layers.items() if hasattr(layers, "items") else enumerate(layers):
            module = getattr(layer, "_checkpoint_wrapped_module", layer)
            mlp_of(module).register_forward_pre_hook(
                lambda _, words, options, name=name: seen.setdefault(name, []).append((words or tuple(options.values()))[0].shape[1]), with_kwargs=True)
    return seen


def active(case, recipe, watch):
    from torch.distributed.tensor import DTensor, Shard
    layout, mesh = plan_of(case)["layout"], recipe.mesh_context
    sizes = {"tensor": mesh.tp_size, "pipeline": mesh.pp_size, "context": mesh.cp_size, "expert": mesh.ep_size}
    for axis, size in sizes.items():
        require(size == layout[axis], f"{size} ranks of {axis}")
    matrices = [(name, weight) for part in recipe.model_parts for name, weight in part.named_parameters() if any(part in name for part in OUTPUTS) and weight.ndim == 2]
    if layout["zero"]:
        for name, weight in matrices:
            shares = {axis: weight.device_mesh[axis].size() for axis, kind in zip(weight.device_mesh.mesh_dim_names, weight.placements) if isinstance(kind, Shard)} \
                if isinstance(weight, DTensor) else {}
            product = 1
            for size in shares.values():
                product *= size
            require(product == layout["tensor"] * layout["shard"], f"{name} is shared out over {shares}")
    elif layout["data"] > 1:
        require(type(recipe.model_parts[0]).__name__ == "DistributedDataParallel", type(recipe.model_parts[0]).__name__)
    if layout["expert"] > 1:
        experts = [weight for part in recipe.model_parts for name, weight in part.named_parameters() if ".experts." in name]
        require(experts and all("ep" in weight.device_mesh.mesh_dim_names for weight in experts), "experts are not on the mesh of expert ranks")
    if layout["pipeline"] > 1:
        require(type(recipe.pp.info.schedule).__name__ == SCHEDULES[layout["schedule"]], type(recipe.pp.info.schedule).__name__)
    plan = plan_of(case)
    rounds = plan["workload"]["global_batch"] // layout["data"] // layout["micro_batch"]
    runs = {len(lengths) for lengths in watch.values()}
    extra = layout["pipeline"] > 1  # a stage may ask its layers once for the sizes of what they send
    again = 2 if layout["recompute"] == "full" else 1
    require(all(again * rounds <= count <= again * rounds + extra for count in runs), f"runs of a layer: {watch}")
    tokens = plan["workload"]["sequence"] // layout["context"]
    require(all(length in (tokens, tokens // layout["tensor"]) for lengths in watch.values() for length in lengths), f"tokens of a layer: {watch}")
