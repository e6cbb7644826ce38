# SPDX-License-Identifier: Apache-2.0
from nemo.collections import llm

import nemo_run as run

recipe = llm.llama3_8b.pretrain_recipe(name="pretrain", num_nodes=2, num_gpus_per_node=8)
recipe.trainer.strategy.tensor_model_parallel_size = 2
recipe.trainer.strategy.context_parallel_size = 1
recipe.data.global_batch_size = 128
run.run(recipe, executor=run.LocalExecutor(ntasks_per_node=8, launcher="torchrun"))
