# SPDX-License-Identifier: Apache-2.0
"""A run beside its plan: every n steps the step time and what the plan predicts of it, at the end what diagnose says.

    monitor = mpt.monitor.Monitor(plan, every=50)
    for batch in monitor.steps(batches):      # a loop of your own: one pass is one optimizer step
        ...
    Trainer(..., callbacks=[monitor.for_trainer()])           # transformers
    lightning.Trainer(..., callbacks=[monitor.for_lightning()])

A step costs it some microseconds: it reads the clock, and asks no GPU. So a step of a GPU counts when the loop takes the
next batch; whoever measures single steps synchronizes. Only rank 0 prints.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, TypeVar, Union

import mpt

T = TypeVar("T")
WAITING = 0.05  # share of a step from which waiting for data is said


class Monitor:
    """`skip`: steps at the start that do not count: compilation, warm-up of caches."""

    def __init__(self, plan: Union["mpt.Plan", str, "os.PathLike[str]"], every: int = 50, skip: int = 5, search: bool = False,
                 say: Optional[Callable[[str], Any]] = None):
        self.plan = plan if isinstance(plan, mpt.Plan) else mpt.load(plan)
        self.every, self.skip, self.search = max(1, every), skip, search
        self.is_first = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"
        self.say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self.seconds: List[float] = []  # of each step that counts
        self.waits: List[float] = []  # of them, for data
        self._told = 0
        self._seen = 0
        self._begin: Optional[float] = None
        self._waited = 0.0

    # What a loop tells it.

    def begin(self, waited_s: float = 0.0) -> None:
        """A step begins, after so long a wait for its data."""
        self._begin, self._waited = time.perf_counter() - waited_s, waited_s

    def end(self) -> None:
        """The step has ended."""
        if self._begin is None:
            return
        seconds, self._begin = time.perf_counter() - self._begin, None
        self._seen += 1
        if self._seen <= self.skip:
            return
        self.seconds.append(seconds)
        self.waits.append(self._waited)
        if self.is_first and len(self.seconds) % self.every == 0:
            self.say(self.line())

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, each of which is a step; at the end the verdict."""
        source = iter(batches)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                break
            self.begin(time.perf_counter() - begin)
            yield batch
            self.end()
        self.finish()

    # What it says.

    def line(self) -> str:
        recent, waits = self.seconds[self._told :], self.waits[self._told :]
        self._told = len(self.seconds)
        seconds, predicted = statistics.median(recent), self.plan.step_time_s
        waiting = sum(waits) / sum(recent)
        text = f"mpt: step {self._seen}: {seconds:.3g} s, predicted {predicted:.3g} s: {predicted / seconds:.0%} of what this layout can reach"
        return text + (f"; waiting for data {waiting:.0%}" if waiting >= WAITING else "")

    def verdict(self) -> "mpt.Diagnosis":
        """What mpt.diagnose says of the median step."""
        if not self.seconds:
            raise mpt.InputError(f"monitor: found {self._seen} steps; expected more than the {self.skip} that do not count",
                                 [mpt.Problem("monitor", f"{self._seen} steps", f"more than {self.skip}", "lower skip")])
        return mpt.diagnose(self.plan, measured=f"{statistics.median(self.seconds):.6f}s", search=self.search)

    def finish(self) -> None:
        if self.is_first and self.seconds:
            waiting = sum(self.waits) / sum(self.seconds)
            waited = f"\nWaiting for data took {waiting:.0%} of the time." if waiting >= WAITING else ""
            try:
                self.say(f"{self.verdict()}{waited}")
            except mpt.Error as error:  # such as a step that no GPU can be as fast as: the training itself has ended well
                self.say(f"mpt: no verdict: {error}{waited}")

    # Callbacks of frameworks.

    def for_trainer(self) -> Any:
        """A callback of the Trainer of transformers."""
        from transformers import TrainerCallback
        monitor = self

        class Callback(TrainerCallback):  # type: ignore[misc]
            def __init__(self) -> None:
                self.ended = time.perf_counter()

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                self.ended = time.perf_counter()

            def on_step_begin(self, *_: Any, **__: Any) -> None:
                monitor.begin(time.perf_counter() - self.ended)

            def on_step_end(self, *_: Any, **__: Any) -> None:
                monitor.end()
                self.ended = time.perf_counter()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                monitor.finish()
        return Callback()

    def for_lightning(self) -> Any:
        """A callback of Lightning. With gradient accumulation a step is the batches up to the next optimizer step."""
        try:
            from lightning.pytorch.callbacks import Callback as Base
        except ImportError:
            from pytorch_lightning.callbacks import Callback as Base
        monitor = self

        class Callback(Base):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                self.ended = time.perf_counter()
                self.step = 0
                self.waited = 0.0
                self.is_open = False

            def on_train_start(self, trainer: Any, *_: Any) -> None:
                self.ended, self.step = time.perf_counter(), trainer.global_step

            def on_train_batch_start(self, *_: Any, **__: Any) -> None:
                self.waited += time.perf_counter() - self.ended
                if not self.is_open:
                    monitor.begin(self.waited)
                    self.is_open = True

            def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
                if trainer.global_step != self.step:
                    monitor._waited = self.waited
                    monitor.end()
                    self.step, self.waited, self.is_open = trainer.global_step, 0.0, False
                self.ended = time.perf_counter()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                monitor.finish()
        return Callback()
