# SPDX-License-Identifier: Apache-2.0
"""A plan applied to your own PyTorch model: device mesh, FSDP2, tensor placements, context ranks, stages and schedule, recompute.

    parallel = mpt.torch.parallelize(model, plan)               # in each process of torchrun
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4)
    for tokens, targets in batches:                             # sequences of parallel.replica in a step
        loss = parallel.step(tokens, targets, loss_of)          # loss_of(logits, targets): the mean over targets that are not -100
        parallel.clip_grad_norm_(1.0)
        optimizer.step(); optimizer.zero_grad()

The model maps tokens to logits, and keeps its decoder layers in one nn.ModuleList. A run of a few tokens shows which products are split by
columns and which by rows: products of one input are columns, and the product that follows them is rows. Context ranks and selective
recompute replace the layers' scaled_dot_product_attention. Before the first step the loss and the gradients of a few tokens are compared
with those of the model in one process.
"""

from ._parallel import Parallel, parallelize
from ._plan import SCHEDULES, TYPES

__all__ = ["Parallel", "parallelize", "SCHEDULES", "TYPES"]
