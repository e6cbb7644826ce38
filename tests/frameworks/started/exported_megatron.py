# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan exports for Megatron-LM, started on CPU processes: its own arguments, groups, model builder, optimizer and train_step().

Weights, tokens and gradients of one process are those of transformers' model, in Megatron's names. Stand-ins are those of
megatron_parts.py: the CPU answers for "cuda", layers are the local ones, and with context ranks attention gathers keys and values here."""

import json
import os
import sys

from . import exported
from .exported import folder_of, model_of, plan_of, sequences
from .harness import Seen, norm_of, require

FRAMEWORK = "exported"
CASES = [case for case in exported.CASES if case.axes["framework"] == "megatron-core"]
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../acceptance"))
VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_CPU_OFFLOAD_V1", "NCCL_ALGO")
TRIAL = os.path.join(os.path.dirname(__file__), "../../../frameworks/megatron-core/framework.json")
# Kernels of GPUs and the balance loss of experts, which is of a micro-batch, are left out. 256 tokens are not padded. The step changes no weight.
ON_CPUS = ("--transformer-impl local --use-cpu-initialization --no-persist-layer-norm --no-masked-softmax-fusion --no-bias-swiglu-fusion "
           "--no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion --no-gradient-accumulation-fusion --distributed-backend gloo "
           "--make-vocab-size-divisible-by 64 --clip-grad 1e9 --weight-decay 0 --moe-aux-loss-coeff 0 --moe-router-load-balancing-type none")


def prepare():
    import stubs
    stubs.use()
    stubs.gpu("h100")
    stubs.unequal_shares()
    import torch
    torch.set_num_threads(1)
    from . import megatron_parts
    megatron_parts.cpu_for_cuda()
    torch.cuda.device_count = lambda: 1
    import megatron.training.training
    import transformers
    transformers.AutoModelForCausalLM  # noqa: B018  a lazy import, so that forks have it
    return megatron.training.training


def package_version():
    import importlib.metadata
    return "megatron-core " + importlib.metadata.version("megatron-core")


def launched(case):
    """What run_megatron.sh hands to pretrain_gpt.py, and the variables that it sets."""
    import launching
    with open(TRIAL, encoding="utf-8") as file:
        trial = [word.replace("@steps@", "10") for word in json.load(file)["trial"]["arguments"]]
    script = os.path.join(folder_of(case), "run_megatron.sh")
    (job,) = launching.run(["bash", script, *trial, *ON_CPUS.split()], {"NODE_RANK": "0"})
    words = job["arguments"][job["arguments"].index("pretrain_gpt.py"):]
    return [word for word in words if word != "--moe-grouped-gemm"], {name: job["environment"].get(name) for name in VARIABLES}


def targets_of(case):
    """The loss counts all, unless a plan is for masked tokens."""
    return exported.targets_of(case) if plan_of(case)["layout"].get("training", {}).get("masked") else sequences(case)[:, 1:]


def alone(case):
    import torch
    from torch.nn.functional import cross_entropy
    model = model_of(case)
    targets = targets_of(case)
    losses = cross_entropy(model(input_ids=sequences(case)[:, :-1], use_cache=False).logits.transpose(1, 2), targets, reduction="none")
    counted = (targets >= 0).sum(1)
    with open(os.path.join(folder_of(case), "megatron_args.txt"), encoding="utf-8") as file:  # else micro-batches, here of one sequence, weigh the same
        by_token = "--calculate-per-token-loss" in file.read()
    loss = losses.sum() / counted.sum() if by_token else (losses.sum(1) / counted).mean()
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    torch.save(as_megatron(dict(model.named_parameters()), model.config), os.path.join(folder_of(case), "weights.pt"))
    return Seen(loss.item(), as_megatron(gradients, model.config), norm_of(gradients))


def as_megatron(tensors, config):
    """transformers' tensors by Megatron's names: groups of queries with key and value, gate and up as one product, experts apart."""
    import torch
    found = {"embedding.word_embeddings.weight": tensors["model.embed_tokens.weight"], "decoder.final_layernorm.weight": tensors["model.norm.weight"]}
    if "lm_head.weight" in tensors:
        found["output_layer.weight"] = tensors["lm_head.weight"]
    same = {"input_layernorm": "input_layernorm", "pre_mlp_layernorm": "post_attention_layernorm", "self_attention.linear_proj": "self_attn.o_proj",
            "self_attention.q_layernorm": "self_attn.q_norm", "self_attention.k_layernorm": "self_attn.k_norm", "mlp.linear_fc2": "mlp.down_proj",
            "mlp.router": "mlp.gate"}
    for number in range(config.num_hidden_layers):
        def at(name):
            return tensors.get(f"model.layers.{number}.{name}")
        layer = {name: at(f"{other}.weight") for name, other in same.items()}
        heads = [at(f"self_attn.{part}_proj.weight").unflatten(0, (config.num_key_value_heads, -1)) for part in "qkv"]
        layer["self_attention.linear_qkv"] = torch.cat(heads, 1).flatten(0, 1)
        if at("mlp.gate_proj.weight") is not None:
            layer["mlp.linear_fc1"] = torch.cat([at("mlp.gate_proj.weight"), at("mlp.up_proj.weight")])
        found.update({f"decoder.layers.{name}.weight.{number}": value for name, value in layer.items() if value is not None})
        for name, other in (("linear_fc1", "gate_up_proj"), ("linear_fc2", "down_proj")):
            stacked = at(f"mlp.experts.{other}")
            for expert, value in enumerate(stacked if stacked is not None else ()):
                found[f"decoder.layers.mlp.experts.experts.{name}.weight.{number}.{expert}"] = value
    return {name: value.detach() for name, value in found.items()}


def parsed(case):
    """The arguments, as pretrain_gpt.py reads and checks them."""
    from megatron.training import arguments
    sys.argv, variables = launched(case)
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    args = arguments.parse_args()
    arguments.validate_args(args)
    return args


def fill(case):
    """A hook of the model's builder that gives each weight its part of transformers'."""
    import torch
    from . import megatron_parts
    values = torch.load(os.path.join(folder_of(case), "weights.pt"))

    def filled(models):
        for model in models:
            with torch.no_grad():
                for share in megatron_parts.shares(model):
                    whole = values[megatron_parts.name_of(share)]
                    share.data.copy_(whole[megatron_parts.place_of(share)])
        return models
    return filled


def layers(model_config, vp_stage=None):
    from megatron.core import parallel_state as groups
    from . import megatron_parts
    return megatron_parts.layers_of(model_config.transformer, vp_stage, groups.get_pipeline_model_parallel_rank())


def built(case, args):
    """Model, optimizer and scheduler by Megatron's own function, and the model's configuration with what train() adds to it."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.enums import ModelType
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.training import global_vars, initialize, training
    from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
    global_vars.set_global_variables(args, build_tokenizer=False)
    initialize._initialize_distributed(None, None, None)
    model_config = gpt_config_from_args(args)
    model_config.transformer_layer_spec = layers
    model_config.pre_wrap_hooks = [fill(case)]
    container = pretrain_cfg_container_from_args(args, model_config)
    parts, optimizer, scheduler = training.setup_model_and_optimizer(
        ModelType.encoder_or_decoder, cfg_container=container, pg_collection=ProcessGroupCollection.use_mpu_process_groups())
    config = model_config.transformer
    config.grad_scale_func, config.finalize_model_grads_func = optimizer.scale_loss, finalize_model_grads
    one = (lambda functions: functions[0]) if len(parts) == 1 else (lambda functions: functions)
    if args.overlap_grad_reduce:
        config.no_sync_func = one([part.no_sync for part in parts])
        if args.align_grad_reduce:
            config.grad_sync_func = one([part.start_grad_sync for part in parts])
    if args.overlap_param_gather and args.align_param_gather:
        config.param_sync_func = one([part.start_param_sync for part in parts])
    return parts, optimizer, scheduler, config


def micro_batches(case, args):
    """This rank's, as Megatron's sampler deals them out, and of each sequence what its context rank has."""
    import torch
    from megatron.core import parallel_state as groups
    from megatron.core.utils import get_batch_on_this_cp_rank
    rank, count = groups.get_data_parallel_rank(), groups.get_data_parallel_world_size()
    targets = targets_of(case)
    batch = {"tokens": sequences(case)[:, :-1].contiguous(), "labels": targets.clamp(min=0), "loss_mask": (targets >= 0).float(),
             "position_ids": torch.arange(targets.shape[1]).repeat(len(targets), 1)}
    found = []
    for rows in torch.arange(len(targets)).split(args.micro_batch_size)[rank::count]:
        part = {name: value[rows].clone() for name, value in batch.items()}
        found.append(get_batch_on_this_cp_rank(part, False, cp_group=groups.get_context_parallel_group()))
    return found


def forward_step(iterator, model):
    """As pretrain_gpt.py: the sum of the losses and the count of tokens."""
    import torch
    batch = next(iterator)
    losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])

    def loss_of(output):
        total, count = (output.flatten() * batch["loss_mask"].flatten()).sum(), batch["loss_mask"].sum().int()
        return total, count, {"lm loss": torch.cat([total.detach().view(1), count.view(1).float()])}
    return losses, loss_of


def run(case, rank):
    import torch.distributed as dist
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.training import training
    from . import megatron_parts
    dist.init_process_group("gloo")
    args = parsed(case)
    parts, optimizer, scheduler, config = built(case, args)
    runs = watched(parts)
    held = training.should_disable_forward_pre_hook(args)
    sync = config.param_sync_func
    if held:
        training.disable_forward_pre_hook(parts, param_sync=False)
        config.param_sync_func = None

    def step(number):
        made = [iter(micro_batches(case, args)) for _ in parts]
        said = training.train_step(forward_step, made if len(parts) > 1 else made[0], parts, optimizer, scheduler, config,
                                   get_forward_backward_func(), iteration=number)
        return said[0].get("lm loss"), float(said[5])
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    loss, norm = step(0)
    active(case, args, config, parts, runs)
    if args.use_distributed_optimizer:
        megatron_parts.gather_buffers(parts)
    gradients = megatron_parts.gradients_of(parts, False)
    if held:
        training.enable_forward_pre_hook(parts)
        config.param_sync_func = sync
    again, _ = step(1)
    require(loss is None or abs(float(again) / float(loss) - 1) < 1e-6, f"the loss of the second step is {again}, of the first {loss}")
    return Seen(None if loss is None else float(loss), gradients, norm)


def watched(parts):
    """How often the attention of each layer runs; each kind of recompute that is drawn runs it again."""
    runs = {}
    for part in parts:
        for layer in part.module.decoder.layers:
            layer.self_attention.core_attention.register_forward_pre_hook(
                lambda *_, name=layer.layer_number: runs.update({name: runs.get(name, 0) + 1}))
    return runs


def active(case, args, config, parts, runs):
    """Groups, shares, recompute and the schedule are the plan's."""
    from megatron.core import parallel_state as groups
    from megatron.core.pipeline_parallel import get_forward_backward_func
    layout, workload = plan_of(case)["layout"], plan_of(case)["workload"]
    sizes = {"tensor": groups.get_tensor_model_parallel_world_size(), "pipeline": groups.get_pipeline_model_parallel_world_size(),
             "context": groups.get_context_parallel_world_size(), "data": groups.get_data_parallel_world_size(), "chunks": len(parts)}
    if args.num_experts:
        sizes.update(expert=groups.get_expert_model_parallel_world_size(), expert_tensor=groups.get_expert_tensor_parallel_world_size())
    if layout["zero"]:
        sizes["shard"] = parts[0].buffers[0].data_parallel_group.size()
    for axis, size in sizes.items():
        require(size == (layout[axis] or layout["tensor"]), f"{size} ranks of {axis}")
    require(args.use_distributed_optimizer == (layout["zero"] == 1), "the distributed optimizer")
    require(config.sequence_parallel == (layout["sequence_parallel"] and layout["tensor"] > 1), "sequence parallelism")
    schedule = {"1f1b": "forward_backward_pipelining_without_interleaving", "interleaved": "forward_backward_pipelining_with_interleaving"}
    wanted = schedule[layout["schedule"]] if layout["pipeline"] > 1 else "forward_backward_no_pipelining"
    require(get_forward_backward_func().__name__ == wanted, get_forward_backward_func().__name__)
    rounds = workload["global_batch"] // layout["data"] // layout["micro_batch"]
    if not layout["recomputed_layers"]:
        require(set(runs.values()) == {rounds * (1 if layout["recompute"] == "none" else 2)}, f"runs of attention: {runs}")
