# SPDX-License-Identifier: Apache-2.0
"""One rank of an exported trial of DeepSpeed's engine: engine_rank.py FOLDER REPORT, with the variables of torchrun. It is the trial's main()
with known data. MODEL may be an id of the hub: the model of HUB_CONFIG answers for it, and nothing else does."""

import os
import runpy
import sys

FOLDER, REPORT = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, HERE]

import one_process  # noqa: E402

one_process.use_cpus(os.path.dirname(HERE))
import deepspeed  # noqa: E402
import torch  # noqa: E402
from transformers import AutoConfig  # noqa: E402

import mpt_deepspeed  # noqa: E402

real = AutoConfig.from_pretrained


def from_pretrained(name, *arguments, **options):
    """As on a machine that reaches the hub, which has no other model."""
    if os.path.exists(name):
        return real(name, *arguments, **options)
    if name == mpt_deepspeed.MODEL:
        return real(os.environ["HUB_CONFIG"], *arguments, **options)
    raise OSError(f"neither a folder nor a model of the hub: {name}")


AutoConfig.from_pretrained = from_pretrained
trial = runpy.run_path(os.path.join(FOLDER, "mpt_deepspeed_trial.py"))
names = trial["main"].__globals__
losses, norms, engines = [], [], []
micro_batches = 0


def known_batch(sequences, places, words):
    """The parts of the next sequences that this rank has, and the tokens behind them; behind the last one stands nothing."""
    global micro_batches
    whole = torch.stack([one_process.sequence_of(micro_batches * sequences + one, mpt_deepspeed.SEQUENCE, words) for one in range(sequences)])
    micro_batches += 1
    behind = torch.nn.functional.pad(whole, (0, 1), value=-100)[:, 1:]
    return [whole[:, places], behind[:, places]]


def loss_of(engine, words):
    loss = trial["loss_of"](engine, words)
    losses.append(loss.detach() * (1 if engine.zero_optimization_stage() == 3 else mpt_deepspeed.CONTEXT))
    return loss


def known_engine(model, **options):
    engine, *rest = real_engine(model, **options)
    step = engine.step

    def noted_step(*arguments, **more):
        ends = engine.is_gradient_accumulation_boundary()
        step(*arguments, **more)
        if ends:
            norms.append(float(engine.get_global_grad_norm()))
    engine.step = noted_step
    engines.append(engine)
    return engine, *rest


def mean_of_steps(values):
    """Over micro-batches and ranks: the last rank's part has one target less, which its share of the mean says."""
    targets = mpt_deepspeed.SEQUENCE - 1
    tokens = mpt_deepspeed.SEQUENCE // mpt_deepspeed.CONTEXT
    rank = torch.distributed.get_rank() % mpt_deepspeed.CONTEXT
    mine = tokens - (rank == mpt_deepspeed.CONTEXT - 1)
    total = torch.stack(values).view(one_process.STEPS, -1).mean(1) * mine / targets
    torch.distributed.all_reduce(total)
    return total.tolist()


class Models:
    from_config = staticmethod(one_process.new_model)


real_engine = mpt_deepspeed.engine
mpt_deepspeed.engine = known_engine
# Weights that are shared out as they are made are drawn otherwise.
names.update(HfDeepSpeedConfig=lambda _: None, batch_of=known_batch, loss_of=loss_of, AutoModelForCausalLM=Models,
             optimizer_of=lambda model, _: torch.optim.AdamW(model.parameters(), lr=one_process.RATE, weight_decay=0.0))
sys.argv = ["mpt_deepspeed_trial.py", str(one_process.STEPS)]
trial["main"]()
means = mean_of_steps(losses)
if torch.distributed.get_rank() == 0:
    file = os.path.join(FOLDER, mpt_deepspeed.MODEL)
    batch = engines[0].train_micro_batch_size_per_gpu() * engines[0].gradient_accumulation_steps()
    one_process.report(REPORT, means, norms, from_pretrained(file if os.path.exists(file) else mpt_deepspeed.MODEL), mpt_deepspeed.SEQUENCE, batch)
torch.distributed.barrier()
