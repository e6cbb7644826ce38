# SPDX-License-Identifier: Apache-2.0
"""accelerate: its DeepSpeed plugin takes deepspeed.json as the configuration of a training script."""

import os

from judging import judge

import stubs  # noqa: E402

stubs.use()
from accelerate.utils import DeepSpeedPlugin  # noqa: E402


def check(folder, c):
    for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
        del os.environ[name]
    plugin = DeepSpeedPlugin(hf_ds_config=os.path.join(folder, "deepspeed.json"))
    c.same("zero", c.layout["zero"], int(plugin.zero_stage))
    c.same("micro_batches", c.micro_batches, plugin.get_value("gradient_accumulation_steps"))
    c.same("micro_batch", c.layout["micro_batch"], plugin.get_value("train_micro_batch_size_per_gpu"))
    c.same("offload_optimizer", "cpu" if c.layout["offload_optimizer"] else None, plugin.get_value("zero_optimization.offload_optimizer.device"))
    # What Accelerator.prepare() fills in and then checks: no "auto" may be left, and the batch must be the plan's.
    plugin.deepspeed_config_process(must_match=True, **{
        "train_micro_batch_size_per_gpu": c.layout["micro_batch"], "gradient_accumulation_steps": c.micro_batches,
        "train_batch_size": c.workload["global_batch"], "gradient_clipping": 1.0})
    mixed = "fp16" if plugin.is_zero3_init_enabled() is None else c.layout["precision"]
    plugin.set_mixed_precision(mixed)
    for name in ("fp16", "bf16"):
        c.same(name, c.layout["precision"] == name, bool(plugin.get_value(f"{name}.enabled", False)))


judge(check)
