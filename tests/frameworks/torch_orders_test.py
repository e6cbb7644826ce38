# SPDX-License-Identifier: Apache-2.0
"""Asks the installed PyTorch for the order of work of each schedule class, in one process with a fake group, and compares it with torch_orders.json.
tests/core/torch_orders_test.cpp compares MPT's rows with that file.

Usage: torch_orders_test.py [--write], with an interpreter that has torch; it skips with a reason elsewhere.
"""

import json
import os
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_orders.json")
# Class, the schedule as MPT calls it (empty: MPT has none), and stages of a rank.
CLASSES = [("ScheduleGPipe", "gpipe", (1,)), ("Schedule1F1B", "1f1b", (1,)), ("ScheduleInterleaved1F1B", "interleaved", (2, 3, 4)),
           ("ScheduleLoopedBFS", "", (2, 3)), ("ScheduleInterleavedZeroBubble", "zb-interleaved", (2, 3, 4)),
           ("ScheduleZBVZeroBubble", "zb-v", (2,)), ("ScheduleDualPipeV", "dualpipe-v", (2,))]
RANKS, MICRO_BATCHES = (2, 3, 4, 6, 8), range(4, 33)
IN_V = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
FNV_START, FNV_PRIME, FNV_MASK = 0xcbf29ce484222325, 0x100000001b3, (1 << 64) - 1


class Recorder:
    """A stage that notes what a schedule of one stage has it do, and sends nothing."""

    def __init__(self, index):
        self.stage_index, self.submod, self.actions = index, None, []

    def forward_one_chunk(self, micro_batch, *_, **__):
        self.actions.append(f"{self.stage_index}F{micro_batch}")

    def backward_one_chunk(self, micro_batch, **_):
        self.actions.append(f"{self.stage_index}B{micro_batch}")

    def __getattr__(self, name):
        return lambda *_, **__: []


def row_that_runs(schedule, stage, micro_batches):
    """Of a class of one stage: its own loop. pipeline_order of Schedule1F1B, which draws it, counts the last rank's micro-batches from 1."""
    recorder = Recorder(stage)
    schedule._stage = recorder
    schedule._check_inputs = lambda *_: ([None] * micro_batches, [None] * micro_batches)
    for name in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
        setattr(schedule, name, lambda *_: None)
    schedule._step_microbatches()
    return recorder.actions


def row_of(actions):
    """Two actions that run beside each other count as one behind the other."""
    flat = [part for action in actions if action is not None for part in (action.sub_actions or (action,))]
    return [str(action) for action in flat]


def rows_of(name, ranks, chunks, micro_batches):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch.testing._internal.distributed.fake_pg import FakeStore
    kind = getattr(schedules, name)
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    rows = []
    for rank in range(ranks if single else 1):
        dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
        try:
            held = (0, 2 * ranks - 1) if name in IN_V else range(rank, ranks * chunks, ranks)
            stages = [PipelineStage(torch.nn.Identity(), stage, ranks * chunks, torch.device("cpu")) for stage in held]
            schedule = kind(stages[0] if single else stages, micro_batches, loss_fn=lambda output, target: output)
            if single:
                rows.append(row_that_runs(schedule, rank, micro_batches))
            else:
                rows = [row_of(schedule.pipeline_order[each]) for each in range(ranks)]
        finally:
            dist.destroy_process_group()
    return rows


def most_held(row):
    """Chunks whose forward is done and whose weight gradient is not."""
    held = most = 0
    for action in row:
        held += ("F" in action) - ("B" in action or "W" in action)
        most = max(most, held)
    return most


def digest(text):
    """As base/digest.h."""
    state = FNV_START
    for byte in text.encode():
        state = (state ^ byte) * FNV_PRIME & FNV_MASK
    return f"{state:016x}"


def order_of(name, ranks, chunks, micro_batches):
    """Digest and most chunks of each rank; None where the class refuses the numbers."""
    try:
        rows = rows_of(name, ranks, chunks, micro_batches)
    except ValueError:
        return None
    return [digest("\n".join(" ".join(row) for row in rows)), [most_held(row) for row in rows]]


def asked():
    lines = []
    for name, schedule, all_chunks in CLASSES:
        for ranks in RANKS:
            for chunks in all_chunks:
                orders = {str(m): order_of(name, ranks, chunks, m) for m in MICRO_BATCHES}
                taken = {m: order for m, order in orders.items() if order is not None}
                lines.append({"class": name, "schedule": schedule, "ranks": ranks, "chunks": chunks, "orders": taken})
    return lines


def text_of(version, lines):
    head = {"version": f"torch {version}", "source": "torch/distributed/pipelining/schedules.py: pipeline_order of each class, of those of one stage the loop that runs",
            "what": "by micro-batches: 64-bit FNV-1a of the rows, a line each, and the most chunks that each rank holds from forward to weight gradient"}
    return json.dumps(head, indent=1)[:-2] + ',\n "asked": [\n' + ",\n".join("  " + json.dumps(line) for line in lines) + "\n ]\n}\n"


def main():
    try:
        import torch
    except ImportError:
        print("torch_orders_test: skipped, because this interpreter has no torch")
        return 0
    if not hasattr(torch.distributed, "pipelining"):
        import torch.distributed.pipelining  # noqa: F401
    text = text_of(torch.__version__.split("+")[0], asked())
    if "--write" in sys.argv[1:]:
        with open(FILE, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    with open(FILE, encoding="utf-8") as file:
        known = json.load(file)
    new = json.loads(text)
    differing = [f"{now['class']} of {now['ranks']} ranks and {now['chunks']} chunks, {m} micro-batches"
                 for was, now in zip(known["asked"], new["asked"]) for m in {**was["orders"], **now["orders"]}
                 if was["orders"].get(m) != now["orders"].get(m)]
    if differing or known["version"] != new["version"] or len(known["asked"]) != len(new["asked"]):
        print(f"torch_orders_test: {new['version']} has other orders than {known['version']}, which {FILE} is of; --write renews it:")
        print("\n".join(differing[:20]))
        return 1
    print(f"torch_orders_test: {sum(len(line['orders']) for line in new['asked'])} orders of {new['version']} are as recorded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
