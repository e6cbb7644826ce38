# SPDX-License-Identifier: Apache-2.0
"""transformers' own DistributedConfig, and accelerate's FSDP2, over gloo with small models of transformers."""

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "transformers-fsdp"
ROWS, LENGTH = 8, 16
SAME = "Loss, gradients and norm are those of one process."


def cases():
    partial = "Gradients of the norms of queries and keys are each tensor rank's own part; the loss is right."
    balance = "The balance loss is each data rank's own."
    tensor = {"llama": ("right", SAME), "llama tied": ("right", SAME), "qwen3": ("right", SAME), "qwen3-moe": ("right", SAME),
              "mixtral": ("right", SAME), "mixtral, aux loss": ("right", SAME), "gpt-oss, sinks": ("right", SAME), "gemma3, windows": ("right", SAME),
              "qwen3.5, linear attention": ("right", SAME), "glm4-moe": ("wrong", partial)}
    for model, outcome in tensor.items():
        tolerance = 1e-3 if "linear" in model else 1e-5  # the delta rule enlarges what is rounded
        yield Case("transformers-tp2-" + dashes(model), 2, {"api": "DistributedConfig", "tp": 2}, model, *outcome, model in ("llama", "glm4-moe"), tolerance)
    for model in ("llama", "llama tied", "gpt-oss, sinks"):
        yield Case("transformers-fsdp2-" + dashes(model), 2, {"api": "DistributedConfig", "dp": 2, "zero": 3}, model, "right", SAME)
    yield Case("transformers-fsdp2-mixtral-aux-loss", 2, {"api": "DistributedConfig", "dp": 2, "zero": 3}, "mixtral, aux loss", "wrong", balance)
    yield Case("transformers-fsdp2-ep2-gpt-oss-sinks", 2, {"api": "DistributedConfig", "dp": 2, "zero": 3, "ep": 2}, "gpt-oss, sinks", "right", SAME)
    yield Case("transformers-fsdp2-tp2-llama", 4, {"api": "DistributedConfig", "dp": 2, "zero": 3, "tp": 2}, "llama", "right", SAME)
    axes = {"api": "accelerate", "dp": 2, "zero": 3, "recompute": "every 2", "micro_batches": 4}
    yield Case("accelerate-fsdp2-zero3-every-2", 2, axes, "llama", "right", SAME)
    for zero in (2, 3):
        for recompute in ("none", "full"):
            for rounds in (1, 4):
                axes = {"api": "accelerate", "dp": 2, "zero": zero, "recompute": recompute, "micro_batches": rounds}
                yield Case(f"accelerate-fsdp2-zero{zero}-{recompute}-{rounds}", 2, axes, "llama", "right", SAME, (zero, recompute, rounds) == (3, "full", 4))


def dashes(model):
    return model.replace(", ", "-").replace(" ", "-")


CASES = list(cases())


def prepare():
    import stubs
    stubs.use()
    import accelerate  # noqa: F401  so that forks have it
    import torch
    import torch.distributed.fsdp  # noqa: F401
    from . import hf_models, small_models  # noqa: F401
    torch.set_num_threads(1)
    hf_models.make("llama")


def package_version():
    import accelerate
    import transformers
    return f"transformers {transformers.__version__}, accelerate {accelerate.__version__}"


def loss_of(model, tokens, targets):
    """The mean over tokens, with the balance loss where the model has one."""
    from torch.nn.functional import cross_entropy
    answer = model(input_ids=tokens)
    loss = cross_entropy(answer.logits.flatten(0, 1), targets.flatten())
    balance = getattr(answer, "aux_loss", None)
    return loss if balance is None else loss + 0.1 * balance


def alone(case):
    from . import hf_models, small_models
    model = hf_models.make(case.model)
    loss = loss_of(model, *small_models.rows(ROWS, LENGTH))
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def run(case, rank):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    return run_accelerate(case, rank) if case.axes["api"] == "accelerate" else run_transformers(case, rank)


def run_transformers(case, rank):
    """The model comes from a folder, as from_pretrained shards it while it loads."""
    import os
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig
    from . import hf_models, small_models
    folder = os.path.abspath("model")
    plain = hf_models.make(case.model)
    if rank == 0:
        plain.save_pretrained(folder)
    dist.barrier()
    sizes = {"tp_size": case.axes.get("tp", 1), "fsdp_size": case.axes.get("dp", 1), "ep_size": case.axes.get("ep")}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=plain.config._attn_implementation,
                                                 distributed_config=DistributedConfig(**{key: size for key, size in sizes.items() if size}))
    model.config.use_cache = False
    model.train()
    require(any(held(weight) < weight.numel() for weight in model.parameters()), "no weight is split")
    data, part = case.axes.get("dp", 1), rank // case.axes.get("tp", 1)
    tokens, targets = (value.chunk(data)[part] for value in small_models.rows(ROWS, LENGTH))
    loss = loss_of(model, tokens, targets)
    loss.backward()
    return seen_of(model, loss.detach(), case.ranks)


def held(weight):
    return (weight.to_local() if hasattr(weight, "to_local") else weight).numel()


def seen_of(model, loss, ranks):
    import torch.distributed as dist
    from . import small_models as small
    dist.all_reduce(loss)
    gradients = {name: None if weight.grad is None else small.whole(weight.grad) for name, weight in model.named_parameters()}
    return Seen(loss.item() / ranks, {name.replace("_checkpoint_wrapped_module.", ""): value for name, value in gradients.items()}, norm_of(gradients))


def run_accelerate(case, rank):
    """The plugin is set by hand as on GPUs; accelerate leaves it out on CPU ranks."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import FSDPModule
    from . import hf_models, small_models
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=case.axes["zero"] == 3, auto_wrap_policy="transformer_based_wrap",
                                            activation_checkpointing=case.axes["recompute"] == "full", cpu_ram_efficient_loading=False)
    rounds = case.axes["micro_batches"]
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=rounds)
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    model = hf_models.make(case.model)
    if case.axes["recompute"] == "every 2":
        model.activation_checkpointing_enable(every_n_layers=2)
        require(sum(getattr(layer, "gradient_checkpointing", False) for layer in model.model.layers) == (len(model.model.layers) + 1) // 2, "other layers")
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0))
    require(isinstance(model, FSDPModule) and any(held(weight) < weight.numel() for weight in model.parameters()), "no weight is split")
    tokens, targets = (value.chunk(2)[rank] for value in small_models.rows(ROWS, LENGTH))
    total = torch.zeros(())
    for rows, wanted in zip(tokens.chunk(rounds), targets.chunk(rounds)):
        with accelerator.accumulate(model):
            loss = loss_of(model, rows, wanted)
            accelerator.backward(loss)
            total += loss.detach() / rounds
    return seen_of(model, total, case.ranks)
