# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer over gloo with accelerate's FSDP2: adapters of PEFT, frozen parts, and computing in bf16, there and with plain DDP."""

from . import trainer_ddp
from .harness import Case, Seen, norm_of, require
from .trainer_ddp import ROWS, SAME, STEPS

FRAMEWORK = "transformers-fsdp"
BF16 = 2**-9  # the largest relative error of rounding a number to bf16
ROUNDED = "Each micro-batch has the gradients of one process that computes in bf16, but for the roundings of their sums."


def axes(shares, micro_batches=4, recompute="none", **more):
    return {"api": "Trainer", "shares": shares, "dp": 2, "recompute": recompute, "micro_batches": micro_batches, **more}


def cases():
    for zero in (2, 3):
        for recompute in ("none", "full"):
            for adapters, model in (("linear layers", "llama"), ("experts", "qwen3-moe")):
                kind = "lora" if model == "llama" else "lora-experts"
                sample, choices = (zero, recompute, model) == (3, "full", "llama"), axes("FSDP2", recompute=recompute, zero=zero, adapters=adapters)
                yield Case(f"trainer-fsdp2-zero{zero}-{kind}-{recompute}", 2, choices, model, "right", SAME, sample)
    yield Case("trainer-fsdp2-zero3-frozen-embedding", 2, axes("FSDP2", recompute="full", zero=3, frozen="embed_tokens"), "llama", "right", SAME)
    yield Case("trainer-fsdp2-zero3-packed", 2, axes("FSDP2", zero=3, tokens="packed"), "llama", "right", SAME)
    yield Case("trainer-fsdp2-zero3-unequal-tokens", 2, axes("FSDP2", zero=3, tokens="unequal"), "llama", "right", SAME)
    yield from bf16_cases()


def bf16_cases():
    """FSDP2 sums each micro-batch over the two ranks in bf16, and rounds by up to 2^-9 of it: together less than twice that of the largest
    gradient, as micro-batches cancel each other in part. DDP sums in fp32."""
    for model in ("llama", "qwen3-moe"):
        yield Case(f"trainer-ddp-bf16-{model}", 2, axes("none", precision="bf16"), model, "right", ROUNDED, False, 1e-5)
        for zero in (2, 3):
            yield Case(f"trainer-fsdp2-zero{zero}-bf16-{model}", 2, axes("FSDP2", zero=zero, precision="bf16"), model, "right", ROUNDED, False, 2 * BF16)


CASES = list(cases())


def prepare():
    trainer_ddp.prepare()
    import accelerate.commands.launch  # noqa: F401  so that forks have it
    import peft  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401


def package_version():
    import importlib.metadata
    return ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in ("transformers", "accelerate", "peft"))


def alone(case):
    return alone_bf16(case) if "precision" in case.axes else trainer_ddp.alone(case)


def alone_bf16(case):
    """The micro-batches of all ranks one after another: both compute under autocast, FSDP2 with weights in bf16. Sums are in fp32."""
    import torch
    model, rows = trainer_ddp.make(case), trainer_ddp.documents(case)
    for weight in model.parameters() if case.axes["shares"] == "FSDP2" else ():
        weight.data = weight.data.bfloat16()  # buffers, such as the frequencies of positions, stay in fp32
    total, sums, size = 0.0, {}, ROWS // case.ranks // case.axes["micro_batches"]
    for start in range(0, ROWS, size):
        tokens, labels = (torch.stack(parts) for parts in zip(*(document for row in rows[start:start + size] for document in row)))
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=tokens, labels=labels, num_items_in_batch=ROWS * (tokens.shape[1] - 1)).loss
        model.zero_grad()
        loss.backward()
        total += loss.item()
        for name, gradient in trainer_ddp.trained_gradients(model).items():
            sums[name] = sums.get(name, 0) + gradient.float()
    return Seen(total, sums, norm_of(sums))


def launch(case):
    """What accelerate's launcher sets by the file that exports have."""
    import os
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.state import DistributedType, PartialState
    from accelerate.utils.launch import prepare_multi_gpu_env
    own = {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    if case.axes["shares"] == "FSDP2":
        with open("accelerate.yaml", "w", encoding="utf-8") as file:
            file.write("distributed_type: FSDP\nnum_machines: 1\nnum_processes: 2\nmachine_rank: 0\nuse_cpu: false\n"
                       f"mixed_precision: '{case.axes.get('precision', 'no')}'\nfsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                       f"  fsdp_reshard_after_forward: {str(case.axes['zero'] == 3).lower()}\n  fsdp_offload_params: false\n"
                       f"  fsdp_activation_checkpointing: {str(case.axes['recompute'] == 'full').lower()}\n"
                       "  fsdp_cpu_ram_efficient_loading: false\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n")
        args, _, _ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", "accelerate.yaml", "train.py"]))
        os.environ.update(prepare_multi_gpu_env(args))
    plain = case.axes["shares"] == "none"
    os.environ.update(own, **({"ACCELERATE_USE_CPU": "true"} if plain else {"ACCELERATE_TORCH_DEVICE": "cpu"}))
    if case.axes["shares"] == "FSDP2":
        PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)  # accelerate shards on GPUs alone


def arguments(case):
    rounds, more = case.axes["micro_batches"], {}
    if case.axes["shares"] == "FSDP2":
        more["accelerator_config"] = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    again = case.axes["recompute"] == "full" and case.axes["shares"] != "FSDP2"
    return {"bf16": "precision" in case.axes, "use_cpu": case.axes["shares"] == "none", "activation_checkpointing": again, "max_steps": STEPS, "learning_rate": 0.0, "max_grad_norm": 0.0,
            "per_device_train_batch_size": ROWS // case.ranks // rounds, "gradient_accumulation_steps": rounds, "logging_steps": 1, "report_to": [],
            "train_sampling_strategy": "sequential", "save_strategy": "no", "disable_tqdm": True, "log_level": "error",
            "remove_unused_columns": case.axes.get("tokens") != "packed", **more}


def run(case, rank):
    from transformers import Trainer, TrainerCallback, TrainingArguments, training_args
    model, kept = trainer_ddp.make(case), {}
    launch(case)
    training_args.is_torch_bf16_gpu_available = lambda: True  # CPU processes take the place of GPUs
    options = TrainingArguments("out", **arguments(case))
    plain = {id(weight): name for name, weight in model.named_parameters() if weight.requires_grad}

    class Watcher(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            kept["wrapped"] = trainer.model_wrapped

        def on_pre_optimizer_step(self, args, state, control, model=None, **_):
            kept.setdefault("gradients", {clean(name): whole(weight) for name, weight in model.named_parameters() if weight.requires_grad})

    rows = [{"documents": [tokens for tokens, _ in row]} if case.axes.get("tokens") == "packed" else {"input_ids": row[0][0], "labels": row[0][1]}
            for row in trainer_ddp.documents(case)]
    trainer = Trainer(model, options, train_dataset=rows, data_collator=trainer_ddp.collator(case), callbacks=[Watcher()])
    trainer.train()
    require(set(kept["gradients"]) == set(plain.values()), "other weights are trained")
    active(case, kept["wrapped"], trainer)
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return Seen(losses[0], kept["gradients"], norm_of(kept["gradients"]))


def clean(name):
    return name.removeprefix("module.").replace("_checkpoint_wrapped_module.", "")


def whole(weight):
    return None if weight.grad is None else getattr(weight.grad, "full_tensor", lambda: weight.grad)().detach().float().clone()


def active(case, model, trainer):
    import torch
    bf16 = "precision" in case.axes
    if case.axes["shares"] == "FSDP2":
        from torch.distributed.fsdp import FSDPModule
        require(isinstance(model, FSDPModule), type(model).__name__)
        layers = [part for name, part in model.named_modules() if type(part).__name__.endswith("DecoderLayer")]
        groups = [getattr(part, "_get_fsdp_state", lambda: None)() for part in model.modules() if isinstance(part, FSDPModule)]
        require(len(groups) > len(layers), f"{len(groups)} groups of {len(layers)} layers")
        require(all(weight.to_local().numel() * 2 == weight.numel() for weight in model.parameters() if weight.shape[0] % 2 == 0), "a weight is whole")
        require(all((group._mp_policy.param_dtype == torch.bfloat16) == bf16 for group in groups), "precision")
    else:
        require(type(model).__name__ == "DistributedDataParallel" and trainer.accelerator.mixed_precision == "bf16", type(model).__name__)
