# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer with accelerate's DistributedDataParallel over gloo, and on one process without it."""

from .harness import Case, Seen, norm_of, require

FRAMEWORK = "transformers-ddp"
ROWS, LENGTH, STEPS = 8, 16, 2
BUCKET_MIB = 0.01  # so that a tiny model has several buckets
COUNTS = (16, 3, 9, 1, 12, 5, 16, 2)  # tokens of each row that the loss counts, where rows differ
PIECES = ((16,), (3, 13), (9, 7), (4, 4, 8), (16,), (5, 11), (2, 14), (8, 8))  # documents of each packed row

SAME = "Loss, gradients and norm are those of one process."
BALANCE = "The balance loss is each micro-batch's own, and is added once for each."
WRAPPED = "torchrun's only process has DistributedDataParallel and its buckets, too, and fills them in each micro-batch."
UNUSED = "Indexers get no gradients, which DistributedDataParallel waits for: with recomputation the Trainer does not have it look for them."
FAMILIES = ("llama tied", "qwen3-moe", "mixtral", "gpt-oss, sinks", "gemma3, windows", "gemma2, soft caps", "qwen3.5, linear attention",
            "bamba, mamba")


def axes(micro_batches=1, recompute="none", dp=2, **more):
    return {"api": "Trainer", "dp": dp, "recompute": recompute, "micro_batches": micro_batches, **more}


def cases():
    for recompute in ("none", "full"):
        for micro_batches in (1, 4):
            sample = (recompute, micro_batches) == ("full", 4)
            yield Case(f"trainer-ddp-{recompute}-{micro_batches}", 2, axes(micro_batches, recompute), "llama", "right", SAME, sample)
    yield Case("trainer-ddp-every-2", 2, axes(4, "every 2"), "llama", "right", SAME)
    yield Case("trainer-ddp-unequal-tokens-1", 2, axes(tokens="unequal"), "llama", "right", SAME)
    yield Case("trainer-ddp-unequal-tokens-4", 2, axes(4, tokens="unequal"), "llama", "right", SAME)
    yield Case("trainer-ddp-packed", 2, axes(4, tokens="packed"), "llama", "right", SAME)
    yield Case("trainer-ddp-frozen-embedding", 2, axes(4, "full", frozen="embed_tokens"), "llama", "right", SAME)
    for recompute in ("none", "full"):
        yield Case(f"trainer-ddp-lora-{recompute}-4", 2, axes(4, recompute, adapters="linear layers"), "llama", "right", SAME)
    yield Case("trainer-ddp-lora-experts-full-4", 2, axes(4, "full", adapters="experts"), "qwen3-moe", "right", SAME)
    yield Case("trainer-one-process-lora-full-4", 1, axes(4, "full", dp=1, started="python", adapters="linear layers"), "llama", "right", SAME)
    for model in FAMILIES:
        tolerance = 1e-3 if "linear" in model or "mamba" in model else 1e-5  # states enlarge what is rounded
        yield Case("trainer-ddp-" + model.replace(", ", "-").replace(" ", "-"), 2, axes(4, "full"), model, "right", SAME, False, tolerance)
    sparse = "deepseek-v3.2, sparse attention"
    yield Case("trainer-ddp-sparse-attention-4", 2, axes(4), sparse, "right", SAME)
    yield Case("trainer-ddp-sparse-attention-full-4", 2, axes(4, "full"), sparse, "raises Expected to have finished reduction", UNUSED)
    yield Case("trainer-ddp-sparse-attention-full-find-unused-4", 2, axes(4, "full", find_unused=True), sparse, "right", SAME)
    yield Case("trainer-ddp-mixtral-aux-loss", 2, axes(), "mixtral, aux loss", "wrong", BALANCE)
    yield Case("trainer-ddp-mixtral-aux-loss-4", 2, axes(4), "mixtral, aux loss", "wrong", BALANCE)
    yield Case("trainer-ddp-one-process-4", 1, axes(4, dp=1, started="torchrun"), "llama", "right", WRAPPED)
    yield Case("trainer-one-process-4", 1, axes(4, dp=1, started="python"), "llama", "right", SAME)
    yield Case("trainer-one-process-full-4", 1, axes(4, "full", dp=1, started="python", tokens="unequal"), "llama", "right", SAME)


CASES = list(cases())


def prepare():
    import stubs
    stubs.use()
    import accelerate  # noqa: F401  so that forks have it
    import torch
    import transformers
    from . import hf_models, small_models  # noqa: F401
    torch.set_num_threads(1)
    transformers.Trainer  # noqa: B018  a lazy import
    hf_models.make("llama")


def package_version():
    import accelerate
    import transformers
    return f"transformers {transformers.__version__}, accelerate {accelerate.__version__}"


def make(case):
    """The model, whose frozen part has no gradients. Adapters are away from zero, where half of them would have none."""
    import torch
    from . import hf_models
    model = hf_models.make(case.model)
    if "adapters" in case.axes:
        import peft
        torch.manual_seed(7)
        experts = {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
        where = experts if case.axes["adapters"] == "experts" else {"target_modules": "all-linear"}
        return peft.get_peft_model(model, peft.LoraConfig(r=4, init_lora_weights=False, **where))
    for name, weight in model.named_parameters():
        weight.requires_grad_(case.axes.get("frozen", "none") not in name)
    return model


def documents(case):
    """Tokens of each row and what the loss counts of them, as lists of pieces that do not see each other."""
    import torch
    from . import small_models
    tokens, targets = small_models.rows(ROWS, LENGTH)
    whole = torch.cat([tokens, targets[:, -1:]], 1)  # the Trainer's models shift the labels themselves
    if case.axes.get("tokens") == "packed":
        return [[(part, part) for part in row[:LENGTH].split(sizes)] for row, sizes in zip(whole, PIECES)]
    counts = COUNTS if case.axes.get("tokens") == "unequal" else (LENGTH,) * ROWS
    return [[(row, torch.where(torch.arange(LENGTH + 1) <= count, row, -100))] for row, count in zip(whole, counts)]


def alone(case):
    """The mean over all tokens of the step by PyTorch alone: one document at a time, but for a balance loss, which is of a batch."""
    import torch
    from torch.nn.functional import cross_entropy
    model, rows = make(case), documents(case)
    batches = [[document] for row in rows for document in row]
    if "aux loss" in case.model:
        batches = [[document for row in rows for document in row]]
    count = sum(int((labels[1:] != -100).sum()) for row in rows for _, labels in row)
    total = 0.0
    for batch in batches:
        tokens, labels = (torch.stack(parts) for parts in zip(*batch))
        answer = model(input_ids=tokens)
        logits, targets = answer.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        loss = cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / count
        if getattr(answer, "aux_loss", None) is not None:
            loss = loss + 0.1 * answer.aux_loss
        loss.backward()
        total += loss.item()
    gradients = trained_gradients(model)
    return Seen(total, gradients, norm_of(gradients))


def trained_gradients(model):
    """Of weights that the loss depends on: an indexer of sparse attention has none."""
    return {name: weight.grad.detach().clone() for name, weight in model.named_parameters() if weight.grad is not None}


def watcher(model):
    """A callback that keeps the gradients of the last step, and what DistributedDataParallel sent for them."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        def __init__(self):
            self.wrapped = self.gradients = None
            self.ready = 0  # gradients that this step's backward has so far, counted again for each micro-batch
            self.sent = []  # numbers of a bucket, and how many gradients were ready when it was sent

        def on_train_begin(self, args, state, control, **_):
            self.wrapped = self.trainer.model_wrapped
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.register_hook(self.count)
            if isinstance(self.wrapped, DistributedDataParallel):
                self.wrapped.register_comm_hook(None, self.send)

        def count(self, _):
            self.ready += 1

        def send(self, _, bucket):
            self.sent.append((bucket.buffer().numel(), self.ready))
            return default_hooks.allreduce_hook(None, bucket)

        def on_step_begin(self, args, state, control, **_):
            self.ready, self.sent = 0, []

        def on_pre_optimizer_step(self, args, state, control, **_):
            self.gradients = trained_gradients(model)

    return Watcher()


def arguments(case):
    """One epoch is a step, and all steps have the same rows. Weights stay as they are."""
    from transformers import TrainingArguments
    recompute = case.axes["recompute"]
    more = {"activation_checkpointing_kwargs": {"every_n_layers": 2}} if recompute == "every 2" else {}
    if "find_unused" in case.axes:
        more["ddp_find_unused_parameters"] = case.axes["find_unused"]
    rows = ROWS // case.ranks // case.axes["micro_batches"]
    return TrainingArguments(
        "out", use_cpu=True, max_steps=STEPS, learning_rate=0.0, max_grad_norm=0.0, per_device_train_batch_size=rows,
        gradient_accumulation_steps=case.axes["micro_batches"], activation_checkpointing=recompute != "none", train_sampling_strategy="sequential",
        ddp_bucket_cap_mb=BUCKET_MIB, logging_steps=1, logging_nan_inf_filter=False, report_to=[], save_strategy="no", disable_tqdm=True,
        log_level="error", **more)


def collator(case):
    from transformers import DataCollatorWithFlattening, default_data_collator
    if case.axes.get("tokens") != "packed":
        return default_data_collator
    flatten = DataCollatorWithFlattening()
    return lambda rows: flatten([{"input_ids": part.tolist()} for row in rows for part in row["documents"]])


def run(case, rank):
    import os
    from transformers import Trainer
    if case.axes.get("started") == "python":
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name)
    model = make(case)
    rows = [{"documents": [tokens for tokens, _ in row]} if case.axes.get("tokens") == "packed" else
            {"input_ids": row[0][0], "labels": row[0][1]} for row in documents(case)]
    watch = watcher(model)
    options = arguments(case)
    options.remove_unused_columns = case.axes.get("tokens") != "packed"
    trainer = Trainer(model, options, train_dataset=rows, data_collator=collator(case), callbacks=[watch])
    watch.trainer = trainer
    trainer.train()
    facts = active(case, watch, model)
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    require(len(losses) == STEPS, f"{len(losses)} steps were logged")
    return Seen(losses[-1], watch.gradients, norm_of(watch.gradients), facts)


def active(case, watch, model):
    """Each gradient is sent once a step, the first ones before the last are there; one process sends none."""
    from torch.nn.parallel import DistributedDataParallel
    decoder = getattr(model, "get_base_model", lambda: model)().model
    layers = decoder.layers if case.axes["recompute"] != "none" else []
    again = sum(layer.gradient_checkpointing for layer in layers)
    every = 2 if case.axes["recompute"] == "every 2" else 1
    require(again == (len(layers) + every - 1) // every, f"{again} of {len(layers)} layers recompute")
    if case.axes.get("started") == "python":
        require(watch.wrapped is model and not watch.sent, f"the model is in a {type(watch.wrapped).__name__}")
        return {}
    require(isinstance(watch.wrapped, DistributedDataParallel), f"the model is a {type(watch.wrapped).__name__}")
    require(watch.wrapped.process_group.size() == case.ranks, "the processes know nothing of each other")
    wanted = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    sent = sum(size for size, _ in watch.sent)
    rounds = case.axes["micro_batches"] if case.ranks == 1 else 1  # accelerate's no_sync() is for two processes and more
    require(sent == wanted * rounds, f"{sent} of {wanted} gradients are sent a step")
    early = sum(ready < len(watch.gradients) * case.axes["micro_batches"] for _, ready in watch.sent)
    require(early, "no bucket is sent before the end of backward")
    return {"buckets": len(watch.sent), "sent within backward": early}
