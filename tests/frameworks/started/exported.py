# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan exports, started on CPU processes: plans that started_test.py drew, or that are kept in drawn.json.

MPT_EXPORTED names a folder with cases.json, rows of a case's name, framework, model and ranks, and a folder for each case with the model's
config.json, plan.json and the exported files. Model, tokens and loss of one process are of transformers, without a framework."""

import contextlib
import json
import os
import runpy
import types

from . import drawing
from .harness import Case, Seen, norm_of, require

FRAMEWORK = "exported"
FOLDER = os.environ.get("MPT_EXPORTED", "")
SAME = "Loss, gradients and norm are those of one process."
EAGER = ("gpt_oss", "gemma2")  # of which other attention leaves a part out


def cases():
    if FOLDER:
        with open(os.path.join(FOLDER, "cases.json"), encoding="utf-8") as file:
            for row in json.load(file):
                yield Case(row["case"], row["ranks"], {"framework": row["framework"], "layout": row["layout"]}, row["model"], "right", SAME)


CASES = list(cases())


def prepare():
    import stubs
    stubs.use()
    import accelerate.commands.launch  # noqa: F401  so that forks have it
    import deepspeed
    import torch
    import transformers
    from deepspeed.utils import safe_get_full_grad  # noqa: F401
    stubs.plain_gloo()
    torch.set_num_threads(1)
    transformers.Trainer  # noqa: B018  a lazy import
    return deepspeed


def package_version():
    import importlib.metadata
    return ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in ("torch", "transformers", "accelerate", "deepspeed"))


def write_models(folder):
    """config.json of each model that is drawn."""
    from . import hf_models
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as architectures
    for name in (*drawing.ALL, "mistral", *drawing.WINDOWS, *drawing.MIXED, *drawing.NO_BALANCE, *drawing.TYPES):
        kind, values, _ = hf_models.values_of(name, vocab_size=256)
        values["architectures"] = [architectures[kind]]
        if "num_experts_per_tok" in values:  # a balance loss is of a micro-batch, so that no layout has that of one process
            values["router_aux_loss_coef"] = 0.0
        config = hf_models.AutoConfig.for_model(kind, **values)
        os.makedirs(os.path.join(folder, drawing.dashes(name)))
        config.to_json_file(os.path.join(folder, drawing.dashes(name), "config.json"), use_diff=False)


def folder_of(case):
    return os.path.join(FOLDER, case.name)


def plan_of(case):
    with open(os.path.join(folder_of(case), "plan.json"), encoding="utf-8") as file:
        return json.load(file)


def sequences(case):
    """All of a step, each with one token more than the sequence has."""
    import torch
    workload = plan_of(case)["workload"]
    return torch.randint(3, 256, (workload["global_batch"], workload["sequence"] + 1), generator=torch.Generator().manual_seed(5), dtype=torch.int64)


def targets_of(case):
    """Successors, of which the loss counts another part of each sequence."""
    import torch
    targets = sequences(case)[:, 1:]
    count, length = targets.shape
    return torch.where(torch.arange(length) < torch.tensor([[(5 * number) % length + 1] for number in range(count)]), targets, -100)


def model_of(case):
    """transformers' model of the plan with the same weights at each call; those of norms are away from one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(os.path.join(folder_of(case), "model"))
    torch.manual_seed(3)
    eager = {"attn_implementation": "eager"} if config.model_type in EAGER else {}
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **eager)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.train()


def alone(case):
    from torch.nn.functional import cross_entropy
    model, rows = model_of(case), sequences(case)
    model.save_pretrained(os.path.join(folder_of(case), "weights"))
    if case.axes["framework"].startswith("transformers"):  # the Trainer's models shift the labels themselves
        rows = rows[:, :-1]
    loss = cross_entropy(model(input_ids=rows[:, :-1], use_cache=False).logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def run(case, rank):
    framework = case.axes["framework"]
    return run_pytorch(case, rank) if framework == "pytorch" else run_engine(case, rank) if framework == "deepspeed" else run_trainer(case, rank)


def run_pytorch(case, rank):
    """A step of the file's Trainer. Gradients take the weights' place, so that the file writes them as Hugging Face names them."""
    import torch
    import torch.distributed as dist
    from safetensors.torch import load_file
    dist.init_process_group("gloo")
    path = os.path.join(folder_of(case), "mpt_train.py")
    file = types.ModuleType("mpt_train")
    with open(path, encoding="utf-8") as text:
        exec(compile(text.read(), path, "exec"), file.__dict__)
    rows = sequences(case)
    file.Dataset.__init__ = lambda *_: None
    file.Dataset.sample = lambda _, number: rows[number]
    trainer = file.Trainer(types.SimpleNamespace(data=[], data_format="text", seed=1, init=os.path.join(folder_of(case), "weights"), weight_decay=0.0))
    held = sum(file.local(weight).numel() for weight in trainer.parameters)
    layout = plan_of(case)["layout"]
    if layout["zero"] or layout["tensor"] > 1 or layout["pipeline"] > 1:
        require(held < sum(weight.numel() for weight in model_of(case).parameters()), "each process holds all weights")
    tokens, targets = trainer.data.batch(0, trainer.mesh)
    if hasattr(file, "AddedLoss"):
        file.AddedLoss.scale = trainer.loss_scale
    with file.loss_parallel() if file.AXIS["tp"] > 1 else contextlib.nullcontext():
        trainer.run_micro_batches(tokens, targets)
    loss, norm = trainer.sum_up()
    with torch.no_grad():
        for weight in trainer.parameters:
            weight.copy_(weight.grad)
    file.save_weights(trainer.models, trainer.mesh, os.path.abspath("gradients"))
    dist.barrier()
    if rank:
        return Seen(loss, {}, norm)
    known = dict(model_of(case).named_parameters())
    written = {name: value for part in os.listdir("gradients") if part.endswith(".safetensors") for name, value in load_file(f"gradients/{part}").items()}
    return Seen(loss, {name: value for name, value in as_trained(written).items() if name in known}, norm)


def as_trained(written):
    """Experts as transformers' classes hold them, stacked; files have one after another."""
    import re
    import torch
    found, experts = {}, {}
    for name, value in written.items():
        match = re.fullmatch(r"(.*)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj)\.weight", name)
        if match:
            experts.setdefault(match[1], {})[int(match[2]), {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}.get(match[3], match[3])] = value
        else:
            found[name.replace("block_sparse_moe", "mlp")] = value
    for layer, parts in experts.items():
        count = 1 + max(number for number, _ in parts)
        found[f"{layer}.mlp.experts.gate_up_proj"] = torch.stack([torch.cat([parts[n, "gate_proj"], parts[n, "up_proj"]]) for n in range(count)])
        found[f"{layer}.mlp.experts.down_proj"] = torch.stack([parts[n, "down_proj"] for n in range(count)])
    return found


def smoke_settings(framework):
    """What mpt-plan export --smoke puts before its command."""
    with open(os.path.join(os.path.dirname(__file__), "../../../frameworks/smoke.json"), encoding="utf-8") as file:
        words = json.load(file)[framework]["command"].split()
    return dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))


def launch(case):
    """The variables that accelerate's launcher gives to each process by the exported run_accelerate.sh."""
    import sys
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../acceptance"))
    from trainer_judging import launched
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
    own = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    arguments, settings = launched(folder_of(case), os.path.join(folder_of(case), "mpt_trainer_trial.py"), "1")
    os.environ.update(settings)
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    args.deepspeed_fields_from_accelerate_config = ""
    os.environ.update(prepare_deepspeed_cmd_env(args)[1] if args.use_deepspeed else prepare_multi_gpu_env(args))
    os.environ.update(own, **smoke_settings(case.axes["framework"]))


def gather_in_subgroups():
    """PyTorch 2.15's gradient of all_gather() takes ranks of a group for those of all processes where gloo has it; NCCL's scatters sums."""
    import torch
    import torch.distributed.nn.functional as collectives

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, group):
            ctx.group = group
            parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size(group))]
            torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
            return tuple(parts)

        @staticmethod
        def backward(ctx, *gradients):
            sums = torch.stack(gradients)
            torch.distributed.all_reduce(sums, group=ctx.group)
            return sums[torch.distributed.get_rank(ctx.group)], None

    collectives.all_gather = lambda tensor, group=None: Gather.apply(tensor, group)


def run_trainer(case, rank):
    """The exported trial, with known tokens and weights."""
    import torch
    import transformers
    launch(case)
    gather_in_subgroups()
    trial = runpy.run_path(os.path.join(folder_of(case), "mpt_trainer_trial.py"))
    names, rows, kept = trial["main"].__globals__, sequences(case), {}
    weights = os.path.join(folder_of(case), "weights")

    class Tokens(trial["Tokens"]):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "input_ids": rows[index % len(rows), :-1], "labels": rows[index % len(rows), :-1]}

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **_):
            kept["model"] = kept["trainer"].model_wrapped
            if case.axes["framework"] == "transformers-deepspeed":
                watch_engine(kept["model"], kept)

        def on_pre_optimizer_step(self, args, state, control, model=None, **_):
            if "gradients" not in kept:
                kept["gradients"] = {clean(name): whole(weight) for name, weight in model.named_parameters() if weight.requires_grad}

    class InOrder(trial["Trainer"]):
        def __init__(self, **options):
            super().__init__(**options, callbacks=[Watch()])
            kept["trainer"] = self

        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    def arguments(steps, **more):
        clip = {} if case.axes["framework"] == "transformers-deepspeed" else {"max_grad_norm": 1e9}
        return trial["arguments"](steps, **{"logging_steps": 1, "learning_rate": 0.0, "disable_tqdm": True, **clip, **more})

    def build(config, dtype):
        eager = {"attn_implementation": "eager"} if config.model_type in EAGER else {}
        return transformers.AutoModelForCausalLM.from_pretrained(weights, config=config, dtype=torch.float32, **eager)

    names.update(Tokens=Tokens, Trainer=InOrder, arguments=arguments, build=build, sys=types.SimpleNamespace(argv=["trial", "1"]))
    trial["main"]()
    active(case, kept["model"])
    log = next(log for log in kept["trainer"].state.log_history if "loss" in log)
    norm = log.get("grad_norm")  # DeepSpeed has none with ZeRO 0
    return Seen(log["loss"], kept["gradients"], None if norm is None else float(norm))


def clean(name):
    return name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")


def whole(weight):
    return None if weight.grad is None else getattr(weight.grad, "full_tensor", lambda: weight.grad)().detach().clone()


def watch_engine(engine, kept):
    from .deepspeed_engine import gathered
    step = engine.step

    def noted(*arguments, **options):
        if engine.is_gradient_accumulation_boundary() and "gradients" not in kept:
            kept["gradients"] = {clean(name): value for name, value in gathered(engine).items()}
        step(*arguments, **options)

    engine.step = noted


def active(case, model):
    layout = plan_of(case)["layout"]
    if case.axes["framework"] == "transformers-fsdp":
        from torch.distributed.fsdp import FSDPModule
        require(isinstance(model, FSDPModule), type(model).__name__)
        require(all(weight.to_local().numel() < weight.numel() for weight in model.parameters() if weight.ndim > 1), "a weight is whole")
    elif case.axes["framework"] == "transformers-ddp":
        require(type(model).__name__ == "DistributedDataParallel" and model.process_group.size() == case.ranks, type(model).__name__)
    else:
        require(model.zero_optimization_stage() == layout["zero"], f"ZeRO {model.zero_optimization_stage()}")
        require(model.sequence_parallel_size == layout["context"], f"{model.sequence_parallel_size} context ranks")


def run_engine(case, rank):
    """The exported trial of DeepSpeed's engine, with known tokens and weights."""
    import sys
    import torch
    import transformers
    os.environ.update(smoke_settings("deepspeed"))
    sys.path.insert(0, folder_of(case))
    import mpt_deepspeed
    trial = runpy.run_path(os.path.join(folder_of(case), "mpt_deepspeed_trial.py"))
    names, kept, rows = trial["main"].__globals__, {"losses": []}, sequences(case)
    context = mpt_deepspeed.CONTEXT
    mine = iter(rows.chunk(case.ranks // context)[rank // context])

    def batch_of(count, places, words):
        taken = torch.stack([next(mine) for _ in range(count)])
        return [taken[:, places], taken[:, places + 1]]

    def loss_of(engine, words):
        loss = real_loss(engine, words)
        kept["losses"].append(loss.detach() * (1 if engine.zero_optimization_stage() == 3 else context))
        return loss

    def engine_of(model, **options):
        engine, *rest = real_engine(model, **options)
        kept["engine"] = engine
        watch_engine(engine, kept)
        return engine, *rest

    real_loss, real_engine = trial["loss_of"], mpt_deepspeed.engine
    mpt_deepspeed.engine = engine_of
    models = types.SimpleNamespace(from_config=lambda config, dtype=None: transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(folder_of(case), "weights"), config=config, dtype=torch.float32, **({"attn_implementation": "eager"} if config.model_type in EAGER else {})))
    names.update(batch_of=batch_of, loss_of=loss_of, AutoModelForCausalLM=models, optimizer_of=lambda model, _: torch.optim.AdamW(model.parameters(), lr=0.0),
                 sys=types.SimpleNamespace(argv=["trial", "1"]))
    trial["main"]()
    active(case, kept["engine"])
    loss = torch.stack(kept["losses"]).mean()
    torch.distributed.all_reduce(loss)
    norm = kept["engine"].get_global_grad_norm()  # none with ZeRO 0 without clipping
    return Seen(loss.item() / case.ranks, kept["gradients"], None if norm is None else float(norm))
