# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's engine, its Ulysses and its pipeline engine over gloo, with small models of transformers."""

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "deepspeed"
ROWS, LENGTH = 8, 16
SAME = "Loss, gradients and norm are those of one process."
# Targets that each of the 8 rows keeps, where masks are unequal.
COUNTS = (16, 3, 9, 1, 12, 2, 16, 5)


def zero_cases():
    for zero in range(4):
        axes = {"zero": zero, "dp": 2, "micro_batches": 4, "masks": "unequal", "objective": "mean of micro-batches"}
        yield Case(f"deepspeed-zero{zero}", 2, axes, "llama", "right", SAME, zero == 3)
    axes = {"zero": 2, "dp": 2, "micro_batches": 4, "masks": "unequal", "objective": "mean of tokens"}
    yield Case("deepspeed-zero2-token-mean", 2, axes, "llama", "wrong",
               "The engine averages the means of micro-batches, which is not the mean of all tokens where masks are unequal.")
    for zero in range(4):
        axes = {"zero": zero, "dp": 2, "micro_batches": 4, "recompute": "full"}
        yield Case(f"deepspeed-zero{zero}-full", 2, axes, "llama", "right", SAME)


def ulysses_cases():
    lost = "The state starts anew on each context rank: nothing is handed from one part of the sequence to the next."
    window = "Ulysses replaces the mask by None, and in sdpa the window is part of the mask."
    kinds = {"llama": ("right", SAME), "qwen3": ("right", SAME), "mistral, window beyond the sequence": ("right", SAME),
             "mistral, window": ("wrong", window), "gemma3, windows": ("wrong", window),
             "qwen3-next, linear attention": ("wrong", lost), "qwen3.5, linear attention": ("wrong", lost),
             "bamba, mamba": ("wrong", lost), "nemotron-h, mamba": ("wrong", lost),
             "gemma2, soft caps": ("raises isn't currently supported by Ulysses", "Soft caps need eager attention, which Ulysses refuses."),
             "gpt-oss, sinks": ("raises isn't currently supported by Ulysses", "Sinks need eager or flash attention; Ulysses refuses eager.")}
    for kind, (outcome, sentence) in kinds.items():
        axes = {"zero": 1, "cp": 2, "cp_method": "all_to_all", "attention": "sdpa", "loss": "gathered, divided by cp"}
        yield Case("deepspeed-ulysses-" + kind.replace(", ", "-").replace(" ", "-"), 2, axes, kind, outcome, sentence, kind in ("llama", "mistral, window"))
    for zero in (0, 2):
        axes = {"zero": zero, "cp": 2, "cp_method": "all_to_all", "attention": "sdpa", "loss": "gathered, divided by cp"}
        yield Case(f"deepspeed-ulysses-zero{zero}", 2, axes, "llama", "right", SAME)
    many = "All gradients and the norm are as many times too large as there are context ranks: ZeRO 0 to 2 divide their sum by the data ranks alone."
    axes = {"cp": 2, "cp_method": "all_to_all", "attention": "sdpa"}
    for loss in ("gathered", "of each rank"):
        for zero in range(4):
            expected, sentence = ("scaled 2", many) if zero < 3 else ("right", "ZeRO 3 divides by all ranks, context ranks too, unlike ZeRO 0 to 2.")
            yield Case(f"deepspeed-ulysses-zero{zero}-loss-{loss.replace(' ', '-')}", 2, {"zero": zero, **axes, "loss": loss}, "llama", expected, sentence)
    axes = {"zero": 1, **axes, "loss": "of each rank, divided by cp"}
    yield Case("deepspeed-ulysses-cp4-loss-gathered", 4, {**axes, "cp": 4, "loss": "gathered"}, "llama", "scaled 4", many)
    yield Case("deepspeed-ulysses-dp-loss-of-each-rank", 4, {**axes, "dp": 2, "loss": "of each rank"}, "llama", "scaled 2", many)
    # torch's own gradient of a gather fails over gloo where the group is not the world, so loss stays on its rank here.
    yield Case("deepspeed-ulysses-dp", 4, {**axes, "dp": 2}, "llama", "right", SAME)
    yield Case("deepspeed-ulysses-dp-zero3", 4, {**axes, "dp": 2, "zero": 3, "loss": "of each rank"}, "llama", "right", SAME)
    yield Case("deepspeed-ulysses-own-loss", 2, axes, "llama", "right", SAME)
    yield Case("deepspeed-ulysses-own-loss-masks", 2, {**axes, "masks": "unequal"}, "llama", "wrong",
               "Each context rank divides by its own count of tokens.")
    axes = {"zero": 1, "cp": 2, "cp_method": "all_to_all", "attention": "sdpa", "loss": "gathered, divided by cp"}
    yield Case("deepspeed-ulysses-masks", 2, {**axes, "masks": "unequal"}, "llama", "right", SAME)
    yield Case("deepspeed-ulysses-full", 2, {**axes, "recompute": "full"}, "llama", "right", SAME)
    yield Case("deepspeed-ulysses-few-key-heads", 4, {**axes, "cp": 4}, "llama", "right", "Two key-value heads on four ranks: each is repeated.")


def sum_cases():
    for zero in range(4):
        for sums in ("default", "fp32"):
            axes = {"zero": zero, "dp": 2, "precision": "bf16", "sums": sums, "micro_batches": 512}
            outcome, sentence = ("wrong", "Micro-batches are summed in bf16.") if sums == "default" else ("right", "Micro-batches are summed in fp32.")
            if (zero, sums) == (0, "fp32"):
                outcome, sentence = "raises unsupported mix of model_dtype", "ZeRO 0 keeps no fp32 sums beside bf16 weights."
            yield Case(f"deepspeed-bf16-sums-{sums}-zero{zero}", 2, axes, "llama, one layer", outcome, sentence, False, 3e-2)


def pipeline_cases():
    for dp, zero in ((1, 0), (1, 1), (2, 0), (2, 1)):
        axes = {"schedule": "1f1b", "pp": 2, "dp": dp, "zero": zero}
        yield Case(f"deepspeed-pipeline-dp{dp}-zero{zero}", 2 * dp, axes, "decoder", "right", SAME, dp * zero == 2)
    for dp in (1, 2):
        axes = {"schedule": "1f1b", "pp": 2, "dp": dp, "zero": 1}
        yield Case(f"deepspeed-pipeline-dp{dp}-tied", 2 * dp, axes, "decoder with a tied head", "right", SAME)
        yield Case(f"deepspeed-pipeline-dp{dp}-full", 2 * dp, {**axes, "recompute": "full"}, "decoder", "raises element 0 of tensors does not require grad",
                   "activation_checkpoint_interval 1 wraps the embedding, too, whose input has no gradient: name checkpointable_layers.")
        yield Case(f"deepspeed-pipeline-dp{dp}-full-layers", 2 * dp, {**axes, "recompute": "full", "checkpointable_layers": ["Layer"]}, "decoder", "right", SAME)
    yield Case("deepspeed-pipeline-zero2", 4, {"schedule": "1f1b", "pp": 2, "dp": 2, "zero": 2}, "decoder", "raises ZeRO-2 and ZeRO-3 are incompatible",
               "The pipeline engine takes ZeRO 0 and 1 alone.")


CASES = [*zero_cases(), *ulysses_cases(), *sum_cases(), *pipeline_cases()]


def prepare():
    import stubs
    stubs.use()
    import deepspeed
    import deepspeed.pipe  # noqa: F401  so that forks have it
    import torch
    from deepspeed.runtime.sequence_parallel import ulysses_sp  # noqa: F401
    from deepspeed.utils import safe_get_full_grad  # noqa: F401
    from . import hf_models, small_models  # noqa: F401
    stubs.plain_gloo()
    torch.set_num_threads(1)
    hf_models.make("llama")  # imports much


def package_version():
    import deepspeed
    return "deepspeed " + deepspeed.__version__


def batches(case):
    """Rows and their targets, in micro-batches of one process."""
    from . import hf_models, small_models
    tokens, targets = small_models.rows(ROWS, LENGTH)
    if case.axes.get("masks") == "unequal":
        targets = hf_models.masked(targets, COUNTS)
    return tokens, targets


def alone(case):
    if "schedule" in case.axes:
        return alone_pipeline(case)
    if "sums" in case.axes:
        return alone_bf16(case)
    from torch.nn.functional import cross_entropy
    from . import hf_models
    model = hf_models.make(case.model)
    tokens, targets = batches(case)
    parts = ROWS if case.axes.get("objective") == "mean of micro-batches" else 1
    total = 0.0
    for rows, wanted in zip(tokens.chunk(parts), targets.chunk(parts)):
        loss = cross_entropy(model(input_ids=rows).logits.flatten(0, 1), wanted.flatten()) / parts
        loss.backward()
        total += loss.item()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(total, gradients, norm_of(gradients))


def settings(case, micro, rounds, **more):
    return {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": rounds, "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": case.axes["zero"], "reduce_bucket_size": 100000, "allgather_bucket_size": 100000}, **more}


def engine_of(case, model, config, **options):
    """The engine, whose optimizer leaves the weights as they are."""
    import deepspeed
    import torch
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, **options)
    require(engine.zero_optimization_stage() == case.axes["zero"], f"ZeRO {engine.zero_optimization_stage()}")
    return engine


def gathered(engine):
    """Whole gradients after the last backward, before the step."""
    from deepspeed.utils import safe_get_full_grad
    found = {}
    for name, weight in engine.module.named_parameters():
        gradient = weight.grad if engine.zero_optimization_stage() == 0 and weight.grad is not None else safe_get_full_grad(weight)
        found[name] = None if gradient is None else gradient.detach().float().clone().view(getattr(weight, "ds_shape", weight.shape))
    return found


def stepped(engine, loss):
    gradients = gathered(engine)
    engine.step()
    norm = engine.get_global_grad_norm()
    return Seen(loss, gradients, None if norm is None else float(norm))


def run(case, rank):
    import deepspeed
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    if "schedule" in case.axes:
        return run_pipeline(case)
    if "sums" in case.axes:
        return run_bf16(case)
    return run_ulysses(case, rank) if "cp" in case.axes else run_data(case, rank)


def run_data(case, rank):
    import torch
    from torch.nn.functional import cross_entropy
    from . import hf_models
    model = hf_models.make(case.model)
    if case.axes.get("recompute") == "full":
        model.gradient_checkpointing_enable()
    engine = engine_of(case, model, settings(case, 1, 4))
    if case.axes["zero"] == 3:
        held = sum(weight.ds_tensor.numel() for weight in engine.module.parameters())
        require(held <= sum(weight.ds_numel for weight in engine.module.parameters()) / 2 + 64, f"{held} elements on each rank")
    total = 0.0
    tokens, targets = (value.chunk(2)[rank] for value in batches(case))
    for rows, wanted in zip(tokens.split(1), targets.split(1)):
        loss = cross_entropy(engine(input_ids=rows).logits.flatten(0, 1), wanted.flatten())
        engine.backward(loss)
        total += loss.item() / 4
        if not engine.is_gradient_accumulation_boundary():
            engine.step()
    total = torch.tensor(total)
    torch.distributed.all_reduce(total)
    return stepped(engine, total.item() / 2)


def run_ulysses(case, rank):
    """One micro-batch of a data rank's rows; each context rank has its part of each row, with its global positions."""
    import torch
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
    from . import hf_models
    ranks, data = case.axes["cp"], case.axes.get("dp", 1)
    model = hf_models.make(case.model)
    if case.axes.get("recompute") == "full":
        model.gradient_checkpointing_enable()
    groups = UlyssesSPAttentionHF.register_with_transformers(model, model.config._attn_implementation, ranks, ROWS // data, seq_length=LENGTH,
                                                             seq_length_is_variable=False)
    require(groups.get_sequence_parallel_world_size() == ranks, "group of the sequence")
    engine = engine_of(case, model, settings(case, ROWS // data, 1), mpu=groups)
    require(engine.sequence_parallel_size == ranks, f"sequence_parallel_size {engine.sequence_parallel_size}")
    mine = slice(rank % ranks * LENGTH // ranks, (rank % ranks + 1) * LENGTH // ranks)
    tokens, targets = (value.chunk(data)[rank // ranks][:, mine] for value in batches(case))
    places = torch.arange(LENGTH)[None, mine].expand(tokens.shape)
    logits = engine(input_ids=tokens, position_ids=places).logits
    loss = loss_of_part(logits.flatten(0, 1), targets.flatten(), groups.get_sequence_parallel_group(), case.axes["loss"].startswith("gathered"))
    engine.backward(loss / ranks if case.axes["loss"].endswith("divided by cp") else loss)
    total = loss.detach().clone()
    torch.distributed.all_reduce(total)
    return stepped(engine, total.item() / case.ranks)


def loss_of_part(logits, targets, group, gather):
    """The mean of this rank's tokens, or of all its group's, as DeepSpeed's own example of Ulysses has it."""
    import torch
    from torch.distributed.nn.functional import all_gather
    if not gather:
        return torch.nn.functional.cross_entropy(logits, targets)
    part = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    counts = all_gather((targets != -100).sum().float(), group=group)
    return sum(all_gather(part, group=group)) / sum(counts)


def alone_bf16(case):
    """The gradient of one micro-batch, computed in bf16: the mean of 512 equal ones has to be it."""
    import torch
    from . import hf_models
    model = hf_models.make("llama", torch.bfloat16, layers=1)
    tokens, targets = (value[:1] for value in batches(case))
    loss = torch.nn.functional.cross_entropy(model(input_ids=tokens).logits.float().flatten(0, 1), targets.flatten())
    loss.backward()
    gradients = {name: weight.grad.float() for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def run_bf16(case):
    import torch
    from . import hf_models
    rounds = case.axes["micro_batches"]
    more = {"data_types": {"grad_accum_dtype": "fp32"}} if case.axes["sums"] == "fp32" else {}
    engine = engine_of(case, hf_models.make("llama", torch.float32, layers=1), settings(case, 1, rounds, bf16={"enabled": True}, **more))
    tokens, targets = (value[:1] for value in batches(case))
    for left in range(rounds, 0, -1):
        loss = torch.nn.functional.cross_entropy(engine(input_ids=tokens).logits.float().flatten(0, 1), targets.flatten())
        engine.backward(loss)
        if left > 1:
            engine.step()
    seen = stepped(engine, loss.item())
    return seen._replace(facts={"norm of gradients": float(f"{norm_of(seen.gradients):.4g}"), "optimizer": type(engine.optimizer).__name__})


def alone_pipeline(case):
    from . import small_models as small
    model = small.Decoder(4, case.model.endswith("tied head"))
    tokens, targets = small.rows(ROWS, LENGTH)
    loss = small.loss_of(model(tokens), targets)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return Seen(loss.item(), gradients, norm_of(gradients))


def pipeline_of(case, model):
    """DeepSpeed's own division of the decoder's modules into two stages."""
    import torch
    from deepspeed.pipe import PipelineModule, TiedLayerSpec
    from . import small_models as small
    layers = [model.words, *model.layers.values(), model.norm, model.head]
    if case.model.endswith("tied head"):
        def head(module, x):
            return torch.nn.functional.linear(x, module.weight)
        shape = (small.VOCABULARY, small.WIDTH)
        layers[0] = TiedLayerSpec("words", torch.nn.Embedding, *shape)
        layers[-1] = TiedLayerSpec("words", torch.nn.Embedding, *shape, forward_fn=head)
    interval = 1 if case.axes.get("recompute") == "full" else 0
    return PipelineModule(layers, num_stages=2, loss_fn=small.loss_of, partition_method="uniform", activation_checkpoint_interval=interval,
                          checkpointable_layers=case.axes.get("checkpointable_layers"))


def run_pipeline(case):
    import torch
    from deepspeed.runtime.pipe.engine import PipelineEngine
    from . import small_models as small
    whole = small.Decoder(4, case.model.endswith("tied head"))
    names = {id(weight): name for name, weight in whole.named_parameters()}
    pipeline = pipeline_of(case, whole)
    for name, weight in pipeline.named_parameters():
        if name.startswith("tied_modules"):
            weight.data.copy_(whole.words.weight)
            names[id(weight)] = "words.weight"
    data = case.axes["dp"]
    engine = engine_of(case, pipeline, settings(case, 1, ROWS // data))
    require(isinstance(engine, PipelineEngine) and engine.num_stages == 2, type(engine).__name__)
    tokens, targets = (value.chunk(data)[engine.grid.get_data_parallel_rank()] for value in small.rows(ROWS, LENGTH))
    found, take = {}, engine._take_model_step

    def take_after_reading(*arguments, **options):
        for (_, weight), gradient in zip(engine.module.named_parameters(), gathered(engine).values()):
            found[names[id(weight)]] = gradient
        return take(*arguments, **options)
    engine._take_model_step = take_after_reading
    loss = engine.train_batch(iter(zip(tokens.split(1), targets.split(1))))
    norm = engine.get_global_grad_norm()
    return Seen(loss.item() if torch.is_tensor(loss) else loss, found, None if norm is None else float(norm))
