# SPDX-License-Identifier: Apache-2.0
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
from megatron.bridge.training.pretrain import pretrain

config = llama3_8b_pretrain_config()
for name, size in {"tensor": 2, "context": 1}.items():
    setattr(config.model, f"{name}_{'model_' if name == 'tensor' else ''}parallel_size", size)
config.train.global_batch_size = 128
pretrain(config, forward_step_func=None)
raise RuntimeError("training has begun")
