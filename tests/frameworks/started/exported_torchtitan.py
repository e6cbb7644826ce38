# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan exports for torchtitan, started by torchtitan's Trainer on CPU processes without torch.compile; see exported.py."""

import os
import runpy

from . import torchtitan_trainer
from .exported import CASES as EXPORTED
from .exported import folder_of, plan_of, sequences
from .harness import require
from .torchtitan_trainer import package_version, prepare  # noqa: F401  what the harness asks of a file

FRAMEWORK = "exported"
CASES = [case for case in EXPORTED if case.axes["framework"] == "torchtitan"]


def config_of(case):
    from torchtitan.components.optimizer import default_adamw
    from torchtitan.config import CompileConfig
    config = runpy.run_path(os.path.join(folder_of(case), "mpt_torchtitan.py"))["mpt_plan"]()
    for layer in config.model_spec.model.layers:
        layer.attention.inner_attention.block_size = 4  # context ranks divide sequences in whole blocks
    config.compile = CompileConfig()
    config.dataloader, config.tokenizer = torchtitan_trainer.loader(batch(case)), torchtitan_trainer.tokenizer()
    config.optimizer, config.training.max_norm = default_adamw(lr=0.0), 1e9
    return config


def batch(case):
    import torch
    rows = sequences(case)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), torch.arange(rows.shape[1] - 1).repeat(len(rows), 1)


def alone(case):
    return torchtitan_trainer.alone_of(config_of(case).model_spec.model, *batch(case))


def run(case, rank):
    layout, trainer = plan_of(case)["layout"], torchtitan_trainer.trainer_of(config_of(case))

    def active(watch):
        dims, data = trainer.parallel_dims, layout["data"]
        require((dims.dp_shard * dims.dp_replicate, dims.tp, dims.cp, dims.pp, dims.ep) ==
                (data, layout["tensor"], layout["context"], layout["pipeline"], layout["expert"]), str(dims))
        runs = {len(lengths) - (dims.pp > 1) for lengths in watch.values()}
        rounds = trainer.gradient_accumulation_steps * trainer.num_pipeline_parallel_microbatches
        require(min(runs) >= 2 * rounds if layout["recompute"] != "none" else runs == {rounds}, f"runs of a layer: {watch}")

    return torchtitan_trainer.two_steps(trainer, active)
