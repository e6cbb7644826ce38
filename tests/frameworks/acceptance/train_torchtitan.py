# SPDX-License-Identifier: Apache-2.0
"""One rank of a training with torchtitan's Trainer on CPUs: train_torchtitan.py FOLDER, with the variables of torchrun."""

import dataclasses
import json
import os
import sys
import types

FOLDER = sys.argv[1]
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]

import stubs  # noqa: E402

stubs.use()
stubs.cpu_ranks()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torchtitan.components import metrics  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.optimizer import default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.models.common.attention import FlexAttention  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402
from training import RATE, STEPS, tokens_of  # noqa: E402

# The compiled kernel has no backward on CPUs; PyTorch's own formula of it has.
FlexAttention._compiled_flex_attn = staticmethod(flex_attention)
# The monitor of memory knows GPUs only.
metrics.build_device_memory_monitor = lambda: types.SimpleNamespace(
    device_name="cpu", get_peak_stats=lambda: types.SimpleNamespace(max_reserved_gib=0.0, max_reserved_pct=0.0), reset_peak_stats=lambda: None)


class Rows(BaseDataLoader):
    """This rank's part of each step's batch."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        batch: int = 0
        vocab: int = 0

    def __init__(self, config, *, dp_world_size, dp_rank, seq_len, local_batch_size, **_):
        self.config, self.part, self.length, self.rows = config, (dp_rank, dp_world_size), seq_len, local_batch_size

    def __iter__(self):
        for step in range(STEPS):
            for part in tokens_of(step, self.config.batch, self.length + 1, self.config.vocab).chunk(self.part[1])[self.part[0]].split(self.rows):
                positions = torch.arange(self.length).expand(len(part), -1).contiguous()
                yield {"input": part[:, :-1].contiguous(), "positions": positions}, part[:, 1:].contiguous()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **_):
        super().__init__()

    def encode(self, *_, **__):
        return []

    def decode(self, *_, **__):
        return ""

    def get_vocab_size(self):
        return 0


def exported():
    config = ConfigManager().parse_args(["--module", "mpt_torchtitan", "--config", "mpt_plan"])
    vocab, batch = config.model_spec.model.vocab_size, config.training.global_batch_size
    config.dataloader, config.tokenizer = Rows.Config(batch=batch, vocab=vocab), NoTokenizer.Config()
    config.lr_scheduler.warmup_steps, config.training.max_norm = 0, 1e9
    config.optimizer = default_adamw(lr=RATE, weight_decay=0.0)
    config.optimizer.implementation = "for-loop"
    config.dump_folder = os.path.join(FOLDER, "out")
    return config


def plain(model, config):
    """torchtitan's model in one process, trained by PyTorch alone."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        rows = tokens_of(step, config.training.global_batch_size, config.training.seq_len + 1, config.model_spec.model.vocab_size)
        positions = torch.arange(config.training.seq_len).expand(len(rows), -1).contiguous()
        logits = model(rows[:, :-1], positions, model.get_attention_masks(positions=positions))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def first_weights(config):
    """The whole model with the same weights on every rank."""
    torch.manual_seed(7)
    config.model_spec.model.update_from_config(config=config)
    model = config.model_spec.model.build()
    with torch.no_grad():
        model.init_weights(buffer_device=torch.device("cpu"))
    return model


def copy_weights(part, start):
    """This rank's shards of the whole weights; wrappers of layers add to the names of their parameters."""
    with torch.no_grad():
        for name, weight in part.named_parameters():
            value = start[name.replace("_checkpoint_wrapped_module.", "")]
            if isinstance(weight, DTensor):
                value = distribute_tensor(value, weight.device_mesh, weight.placements)
            weight.copy_(value)


def main():
    whole = first_weights(exported())
    start = {name: value.detach().clone() for name, value in whole.named_parameters()}
    trainer, losses = Trainer(exported()), []
    for part in trainer.model_parts:
        copy_weights(part, start)
    trainer.metrics_processor.should_log = lambda step: True
    trainer.metrics_processor.log = lambda step, average, *_, **__: losses.append(float(average))
    data = trainer.batch_generator(trainer.dataloader)
    for step in range(STEPS):
        trainer.step = step + 1
        trainer.train_step(data)
    print(json.dumps({"losses": losses, "plain": plain(whole, exported()) if dist.get_rank() == 0 else []}))
    dist.barrier()


main()
