# SPDX-License-Identifier: Apache-2.0
"""One rank of a training with DeepSpeed's engine on CPUs: train_deepspeed.py FOLDER, with the variables of torchrun."""

import json
import os
import sys

FOLDER = sys.argv[1]
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]

import stubs  # noqa: E402

stubs.use()
import deepspeed  # noqa: E402
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

import mpt_deepspeed  # noqa: E402
from training import RATE, STEPS, plain_losses, tokens_of  # noqa: E402


def new_model(config):
    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def main():
    config = AutoConfig.from_pretrained(os.path.join(FOLDER, mpt_deepspeed.MODEL))
    with open(os.path.join(FOLDER, "deepspeed.json"), encoding="utf-8") as file:
        settings = json.load(file)
    stubs.plain_gloo()
    deepspeed.init_distributed(dist_backend="gloo")
    model = new_model(config)
    engine, *_ = mpt_deepspeed.engine(model, optimizer=torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0))
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    batch, micro, rounds = settings["train_batch_size"], engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    losses = []
    for step in range(STEPS):
        whole = tokens_of(step, batch, mpt_deepspeed.SEQUENCE, config.vocab_size)
        mine, total = whole.chunk(ranks)[rank], torch.zeros(())
        for part in mine.split(micro):
            loss = engine(input_ids=part, labels=part).loss
            engine.backward(loss)
            engine.step()
            total += loss.detach().float() / rounds
        torch.distributed.all_reduce(total)
        losses.append(float(total) / ranks)
    sizes = (batch, mpt_deepspeed.SEQUENCE, config.vocab_size)
    plain = plain_losses(new_model(config), *sizes, engine.gradient_clipping()) if rank == 0 else []
    print(json.dumps({"losses": losses, "plain": plain}))
    torch.distributed.barrier()


main()
