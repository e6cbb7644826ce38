# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own Trainer over gloo with its debug models, cut to four layers, in fp32: its constructor, and two of its steps.

FlexAttention and its masks run uncompiled. Experts, which torchtitan computes in bf16, run in fp32 here, so that sums in another order agree."""

import dataclasses
import functools
import importlib
import itertools

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "torchtitan"
ROWS, LENGTH, STEPS = 8, 16, 2
SAME = "Loss, gradients and norm are those of one process."
# torchtitan's name of a schedule, PyTorch's class, and the stages of each of the two pipeline ranks.
SCHEDULES = {"gpipe": ("GPipe", "ScheduleGPipe", ((0,), (1,))), "1f1b": ("1F1B", "Schedule1F1B", ((0,), (1,))),
             "interleaved": ("Interleaved1F1B", "ScheduleInterleaved1F1B", ((0, 2), (1, 3))),
             "zb-interleaved": ("InterleavedZeroBubble", "ScheduleInterleavedZeroBubble", ((0, 2), (1, 3))),
             "zb-v": ("ZBVZeroBubble", "ScheduleZBVZeroBubble", ((0, 3), (1, 2))), "dualpipe-v": ("DualPipeV", "ScheduleDualPipeV", ((0, 3), (1, 2)))}
SPLIT = ("zb-interleaved", "zb-v", "dualpipe-v")
DOWN = "Each tensor rank adds the biases of the experts' second product, for torchtitan divides them where weights are DTensors, which they are not in a layer."
EXPERTS = ("qwen3, 8 experts", "deepseek_v3, 8 experts", "gpt_oss, 8 experts")


def dashes(model):
    return model.replace(", ", "-").replace(" ", "-")


def case(model="llama3", outcome="right", sentence=SAME, sample=False, tolerance=1e-5, **axes):
    """A case whose name is of its axes and model."""
    ranks = axes.get("dp", 1) * axes.get("replicas", 1) * axes.get("tp", 1) * axes.get("cp", 1) * axes.get("pp", 1)
    words = [f"{axis}{axes[axis]}" for axis in ("dp", "replicas", "tp", "cp", "ep", "pp", "zero") if axis in axes]
    words += [axes["schedule"]] if "schedule" in axes else []
    words += [axes["recompute"]] if axes.get("recompute", "none") != "none" else []
    words += ["no-sp"] if axes.get("sp") is False else []
    words += ["offload"] if axes.get("offload") else []
    words += [f"{axes['balancer']}-balanced"] if "balancer" in axes else []
    words += [axes["tokens"]] if "tokens" in axes else []
    words += ["whole-loss"] if axes.get("loss") == "whole" else []
    return Case("-".join(["titan", *words, *([] if model == "llama3" else [dashes(model)])]), ranks, axes, model, outcome, sentence, sample, tolerance)


def data_cases():
    for zero in (2, 3):
        for recompute in ("none", "selective", "full"):
            yield case(dp=2, zero=zero, recompute=recompute)
        yield case(dp=2, replicas=2, zero=zero)
        yield case(dp=2, zero=zero, model="qwen3, tied")
        yield case(dp=2, zero=zero, offload=True)
    yield case(replicas=2)
    yield case(dp=2, replicas=2, zero=3, offload=True, recompute="full")
    yield case(dp=2, tp=2, zero=3, offload=True)
    yield case(dp=2, pp=2, zero=2, offload=True, schedule="1f1b")
    yield case(dp=2, ep=2, zero=3, offload=True, model="qwen3, 8 experts")
    yield case(dp=2, zero=3, tokens="packed")
    yield case(dp=2, zero=3, tokens="unequal")


def tensor_cases():
    for sp in (True, False):
        for model in ("llama3", "qwen3, tied", *EXPERTS):
            yield case(tp=2, sp=sp, model=model, **({"outcome": "wrong", "sentence": DOWN} if "gpt_oss" in model else {}))
        yield case(tp=2, dp=2, zero=3, sp=sp)
    for recompute in ("selective", "full"):
        yield case(tp=2, dp=2, zero=2, recompute=recompute)
    yield case(tp=2, tokens="packed")
    yield case(tp=4, sp=True, model="llama3, 4 key heads")


def context_cases():
    for balancer in ("headtail", "ptrr", "no"):
        yield case(cp=2, balancer=balancer)
    yield case(cp=2, balancer="no", tokens="packed")
    yield case(cp=2, balancer="no", tokens="unequal")
    yield case(cp=2, dp=2, zero=3, balancer="no", recompute="full")
    yield case(cp=2, tp=2, balancer="no")
    for model in (*EXPERTS, "qwen3, tied"):
        yield case(cp=2, balancer="no", model=model)


def expert_cases():
    for model in EXPERTS:
        yield case(dp=2, zero=3, model=model)
        yield case(dp=2, ep=2, zero=3, model=model, sample=model.startswith("qwen3"))
        for recompute in ("selective", "full"):
            yield case(dp=2, ep=2, zero=2, recompute=recompute, model=model)
        yield case(tp=2, ep=2, model=model)
        yield case(tp=2, ep=2, sp=False, model=model)
        yield case(cp=2, ep=2, balancer="no", model=model)
        yield case(dp=2, pp=2, ep=2, zero=2, schedule="1f1b", model=model)
    yield case(dp=4, ep=2, zero=3, model="qwen3, 8 experts")
    yield case(dp=4, zero=3, model="qwen3, 2 experts")
    yield case(dp=4, ep=2, zero=3, model="qwen3, 2 experts")
    yield case(dp=2, tp=2, ep=4, zero=3, model="qwen3, 8 experts")
    yield case(dp=2, replicas=2, ep=2, zero=3, model="qwen3, 8 experts")


def split_outcome(zero=0, recompute="none", loss="chunked", **_):
    """What a schedule that splits its backward does."""
    if recompute == "selective":
        return "raises Trying to backward an extra time", "A region under selective checkpointing allows one backward, and a split backward needs two."
    if zero == 3:
        return "wrong", "A split backward looks its weights up while they are resharded, and finds no gradient for them."
    if loss == "chunked":
        return "wrong", "The chunked loss shards the weights of head and final norm again, and the split backward finds no gradient for the norm's."
    return "right", SAME


def pipeline_cases():
    for schedule in SCHEDULES:
        for loss in ({}, {"loss": "whole"}) if schedule in SPLIT else ({},):
            for more in ({}, {"dp": 2, "zero": 2}, {"dp": 2, "zero": 3}, {"tp": 2}, {"recompute": "selective"}, {"recompute": "full"}):
                outcome, sentence = split_outcome(**more, **loss) if schedule in SPLIT else ("right", SAME)
                sample = (schedule, loss, more) == ("zb-v", {}, {})
                yield case(outcome=outcome, sentence=sentence, sample=sample, pp=2, schedule=schedule, **more, **loss)
    yield case(pp=2, cp=2, balancer="no", schedule="1f1b")
    yield case(pp=2, schedule="1f1b", tokens="unequal")
    yield case(pp=2, schedule="1f1b", tokens="packed")
    yield case(pp=2, schedule="1f1b", model="qwen3, tied", outcome="raises Weight tying is not supported with Pipeline Parallel",
               sentence="torchtitan has no pipeline for a head that shares the embedding's weight.")


CASES = [*data_cases(), *tensor_cases(), *context_cases(), *expert_cases(), *pipeline_cases()]


def prepare():
    import stubs
    stubs.use("flash_attn")
    stubs.cpu_ranks()
    stubs.unequal_exchanges()
    import torch
    from torch.distributed.tensor.experimental._context_parallel import _attention as context
    from torch.nn.attention import flex_attention
    from torchtitan.components import metrics
    from torchtitan.models.common import attention
    from torchtitan.distributed import fsdp, utils
    from torchtitan import trainer  # noqa: F401  so that forks have it
    from . import small_models, torchtitan_models as titan  # noqa: F401
    for family in ("llama3", "qwen3", "deepseek_v3", "gpt_oss"):
        importlib.import_module(f"torchtitan.models.{family}")
    torch.set_num_threads(1)
    attention._compiled_create_block_mask = context._compiled_create_block_mask = flex_attention.create_block_mask
    attention.FlexAttention._compiled_flex_attn = staticmethod(titan.attention)
    torch.Tensor.bfloat16 = lambda tensor: tensor
    metrics.build_device_memory_monitor = Memory
    begin = utils.init_distributed
    utils.init_distributed = lambda comm, **options: begin(comm, **{**options, "enable_cpu_backend": False})  # gloo is the only one here
    fsdp.CPUOffloadPolicy = functools.partial(fsdp.CPUOffloadPolicy, pin_memory=False)  # which asks a GPU


class Memory:
    """torchtitan's monitor asks a GPU."""

    device_name = "cpu"

    def get_peak_stats(self):
        from torchtitan.components.metrics import DeviceMemStats
        return DeviceMemStats(0.0, 0.0, 0.0, 0.0, 0, 0)

    def reset_peak_stats(self):
        pass


def package_version():
    import importlib.metadata
    return "torchtitan " + importlib.metadata.version("torchtitan")


def value_of(name, weight):
    """What a weight is at each call; norms are away from one."""
    import zlib
    import torch
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    return 1 + drawn * 0.1 if weight.ndim == 1 else drawn * (1.0 if "embed" in name else weight.shape[-1]**-0.5)


def length_of(case):
    return LENGTH * case.axes.get("cp", 1)


def batch(case):
    """Tokens and their successors, and places in documents."""
    import torch
    from . import small_models, torchtitan_models as titan
    length = length_of(case)
    tokens, targets = small_models.rows(ROWS, length, titan.VOCABULARY)
    places = torch.arange(length).repeat(ROWS, 1)
    if case.axes.get("tokens") == "packed":  # documents of other lengths in each row
        places = torch.stack([row % (3 + 2 * number) for number, row in enumerate(places)])
    if case.axes.get("tokens") == "unequal":
        targets = torch.where(torch.arange(length) < torch.tensor([[(5 * number) % length + 1] for number in range(ROWS)]), targets, -100)
    return tokens.contiguous(), targets.contiguous(), places


def alone(case):
    from . import torchtitan_models as titan
    return alone_of(titan.spec_of(case.model).model, *batch(case))


def alone_of(config, tokens, targets, positions):
    """torchtitan's model without its Trainer, and PyTorch's loss."""
    import torch
    from torch.nn.functional import cross_entropy
    from torchtitan.distributed import utils
    utils.set_spmd_backend("partial_dtensor")
    model = config.build()
    model.init_weights()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(value_of(name, weight))
    logits = model(tokens, positions=positions, attention_masks=model.get_attention_masks(positions=positions))
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), {**gradients, **moved(model)}, norm_of(gradients))


def moved(model):
    """Biases in the choice of experts after a step: towards those that had fewer tokens than the mean."""
    import torch
    signs = {f"{name}.expert_bias_E": torch.sign(part.tokens_per_expert_E.mean() - part.tokens_per_expert_E)
             for name, part in model.named_modules() if getattr(part, "load_balance_coeff", None)}
    return {name: 1e-3 * (sign - sign.mean()) for name, sign in signs.items()}


def parallelism(case):
    from torchtitan.config import ParallelismConfig
    axes = case.axes
    return ParallelismConfig(data_parallel_replicate_degree=axes.get("replicas", 1), data_parallel_shard_degree=axes.get("dp", 1),
                             fsdp_reshard_after_forward="always" if axes.get("zero") == 3 else "never", tensor_parallel_degree=axes.get("tp", 1),
                             enable_sequence_parallel=axes.get("sp", True), context_parallel_degree=axes.get("cp", 1),
                             context_parallel_load_balancer=None if axes.get("balancer") == "no" else axes.get("balancer", "headtail"),
                             expert_parallel_degree=axes.get("ep", 1), **stages(axes))


def stages(axes):
    """As exports say it: the modules of each stage."""
    from . import torchtitan_models as titan
    if "pp" not in axes:
        return {}
    name, _, of_ranks = SCHEDULES[axes["schedule"]]
    count = sum(map(len, of_ranks))
    layers = [f"layers.{number}" for number in range(titan.LAYERS)]
    parts = [layers[stage * titan.LAYERS // count:(stage + 1) * titan.LAYERS // count] for stage in range(count)]
    parts[0], parts[-1] = ["tok_embeddings", *parts[0]], [*parts[-1], "norm", "lm_head"]
    return {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": name, "pipeline_parallel_microbatch_size": 1, "module_fqns_per_model_part": parts}


def loader(values):
    """Tokens, targets and places of a step, of which each data rank has its rows."""
    from torchtitan.components.dataloader import BaseDataLoader

    class Rows(BaseDataLoader):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseDataLoader.Config):
            pass

        def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **_):
            self.parts = [value.chunk(dp_world_size)[dp_rank].split(local_batch_size) for value in values]

        def __iter__(self):
            for tokens, targets, places in itertools.cycle(zip(*self.parts)):
                yield {"input": tokens.clone(), "positions": places.clone()}, targets.clone()

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    return Rows.Config()


def tokenizer():
    from torchtitan.components.tokenizer import BaseTokenizer

    class None_(BaseTokenizer):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            pass

        def __init__(self, config, **_):
            super().__init__()

        def encode(self, *_, **__):
            raise NotImplementedError

        decode = get_vocab_size = encode

    return None_.Config()


def config_of(case):
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config import TrainingConfig
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.models.common.config_utils import decoder_vocab_size
    from torchtitan.trainer import Trainer
    from . import torchtitan_models as titan
    spec, data = titan.spec_of(case.model), case.axes.get("dp", 1) * case.axes.get("replicas", 1)
    rounds = case.axes.get("micro_batches", 2)
    local = ROWS // data if "pp" in case.axes else ROWS // data // rounds
    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    return Trainer.Config(
        model_spec=spec, loss=loss if case.axes.get("loss") == "whole" else ChunkedLossWrapper.Config(loss_fn=loss),
        training=TrainingConfig(local_batch_size=local, global_batch_size=ROWS, seq_len=length_of(case), mixed_precision_param="float32", disable_cuda_graphs=True,
                                steps=STEPS, max_norm=1e9, enable_cpu_offload=case.axes.get("offload", False)),
        parallelism=parallelism(case), optimizer=default_adamw(lr=0.0), dataloader=loader(batch(case)), tokenizer=tokenizer(),
        activation_checkpoint={"none": None, "selective": SelectiveAC.Config(), "full": FullAC.Config()}[case.axes.get("recompute", "none")])


def run(case, rank):
    trainer = trainer_of(config_of(case))
    return two_steps(trainer, lambda watch: active(case, trainer, watch))


def trainer_of(config):
    from torch.distributed.fsdp import FSDPModule
    from torchtitan.trainer import Trainer
    trainer = Trainer(config)
    for module in (module for part in trainer.model_parts for module in part.modules() if isinstance(module, FSDPModule)):
        module.set_force_sum_reduction_for_comms(True)  # torchtitan's factor is 1, which NCCL multiplies by and gloo cannot
    fill(trainer)
    return trainer


def two_steps(trainer, check):
    """What the first step has; the second one has another bias of experts, where there are some."""
    seen, watch = {}, watched(trainer)
    trainer.metrics_processor.log = lambda step, loss, most, norm, **_: seen.update(loss=loss, norm=norm)
    trainer.metrics_processor.should_log = lambda step: True
    batches = trainer.batch_generator(trainer.dataloader)
    trainer.train_step(batches)
    check(watch)
    first = Seen(seen["loss"] if getattr(trainer, "pp_has_last_stage", True) else None, gradients_of(trainer), seen["norm"])
    trainer.train_step(batches)
    return first


def watched(trainer):
    """How often each layer runs in a step, and how many tokens it has."""
    seen = {}
    for part in trainer.model_parts:
        for name, layer in part.layers.items():
            def note(_, inputs, name=name):
                seen.setdefault(name, []).append(inputs[0].shape[1])
            getattr(layer, "_checkpoint_wrapped_module", layer).ffn_norm.register_forward_pre_hook(note)
    return seen


def active(case, trainer, watch):
    axes, dims = case.axes, trainer.parallel_dims
    sizes = {"dp_shard": "dp", "dp_replicate": "replicas", "tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep"}
    require(all(getattr(dims, name) == axes.get(axis, 1) for name, axis in sizes.items()), str(dims))
    shards = [shard for part in trainer.model_parts for module in part.modules() if hasattr(module, "_get_fsdp_state")
              for group in module._get_fsdp_state()._fsdp_param_groups for shard in group.fsdp_params]
    require(not axes.get("offload") or (shards and all(shard.offload_to_cpu for shard in shards)), "shares are not offloaded")
    degree = axes.get("dp", 1) * axes.get("tp", 1) * axes.get("cp", 1)
    for part in trainer.model_parts:
        for name, weight in part.named_parameters():
            if "attention.wo.weight" in name or "inner_experts.w1" in name or "inner_experts.mlp1_weight" in name:
                require(weight.to_local().numel() * degree == weight.numel(), f"{name}: {weight.to_local().numel()} of {weight.numel()}")
            if "expert_bias" not in name and "routed_experts" in name and "ep" in axes:
                require("ep" in weight.device_mesh.mesh_dim_names, f"{name} is on {weight.device_mesh.mesh_dim_names}")
    tokens = length_of(case) // axes.get("cp", 1) // (axes.get("tp", 1) if axes.get("sp", True) else 1)
    require(all(length == tokens for lengths in watch.values() for length in lengths), f"tokens of a layer: {watch}")
    rounds = trainer.gradient_accumulation_steps * trainer.num_pipeline_parallel_microbatches
    runs = {len(lengths) - ("pp" in axes) for lengths in watch.values()}  # a stage asks its layers once for the sizes of what they send
    require(min(runs) >= 2 * rounds if axes.get("recompute", "none") != "none" else runs == {rounds}, f"runs of a layer: {watch}")
    if "pp" in axes:
        _, kind, stages_of = SCHEDULES[axes["schedule"]]
        held = [stage.stage_index for stage in getattr(trainer.pp_schedule, "_stages", None) or [trainer.pp_schedule._stage]]
        require(type(trainer.pp_schedule).__name__ == kind, type(trainer.pp_schedule).__name__)
        require(tuple(held) == stages_of[dims.get_mesh("pp").get_local_rank()], f"stages {held}")


def fill(trainer):
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor
    with torch.no_grad():
        for part in trainer.model_parts:
            for name, weight in part.named_parameters():
                value = value_of(plain(name), weight)
                if isinstance(weight, DTensor):
                    value = distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None)
                weight.copy_(value)


def plain(name):
    return name.replace("_checkpoint_wrapped_module.", "")


def gradients_of(trainer):
    from . import small_models as small
    found = {}
    for part in trainer.model_parts:
        found.update({plain(name): None if weight.grad is None else small.whole(weight.grad) for name, weight in part.named_parameters()})
        found.update({plain(name): small.whole(bias) for name, bias in part.named_buffers() if name.endswith("expert_bias_E")})
    return found
