# SPDX-License-Identifier: Apache-2.0
"""What ranks of an exported training are compared with: the same model, tokens and optimizer in one process, without a framework."""

import json
import sys

STEPS, RATE = 2, 1e-3


def sequence_of(number, length, words):
    """Tokens of one sequence of the data."""
    import torch
    return torch.randint(words, (length,), generator=torch.Generator().manual_seed(number))


def new_model(config, **options):
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(config, **options)


def plain_steps(config, length, batch):
    """Loss and norm of the gradients of each step."""
    import torch
    model = new_model(config, attn_implementation="eager")  # in the place of sdpa stands that of all ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        tokens = torch.stack([sequence_of(step * batch + one, length, config.get_text_config().vocab_size) for one in range(batch)])
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return {"losses": losses, "norms": norms}


def report(file, losses, norms, config, length, batch):
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"framework": {"losses": losses, "norms": norms}, "plain": plain_steps(config, length, batch)}, out)


def use_cpus(folder_of_tests):
    """Lets DeepSpeed train on this machine's CPUs."""
    sys.path.insert(0, folder_of_tests)
    import stubs
    stubs.use()
    stubs.plain_gloo()
    import torch
    torch.set_num_threads(1)
