# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/transports.cpp does, by PyTorch's gloo. Usage: gloo_ranks.py auto BYTES CALLS [BYTES CALLS]..."""

import sys
import time

import torch
import torch.distributed as gloo

torch.set_num_threads(1)
gloo.init_process_group("gloo")
for size, calls in zip(map(int, sys.argv[2::2]), map(int, sys.argv[3::2])):
    data = torch.zeros(size // 4)
    for i in range(-3, calls):
        if i == 0:
            gloo.barrier()
            begin, begin_cpu = time.perf_counter(), time.process_time()
        gloo.all_reduce(data)
    if gloo.get_rank() == 0:
        print(1e6 * (time.perf_counter() - begin) / calls, 1e6 * (time.process_time() - begin_cpu) / calls)
