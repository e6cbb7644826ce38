# SPDX-License-Identifier: Apache-2.0
"""A run beside its plan: every n steps the step time and what the plan predicts of it, at the end what diagnose says.

    monitor = mpt.monitor.Monitor(plan, every=50)
    for batch in monitor.steps(batches):      # a loop of your own: one pass is one optimizer step
        ...
    Trainer(..., callbacks=[monitor.for_trainer()])           # transformers
    lightning.Trainer(..., callbacks=[monitor.for_lightning()])

A step costs it some microseconds: it reads the clock, and asks no GPU. So a step of a GPU counts when the loop takes the
next batch; whoever measures single steps synchronizes. Only rank 0 opens the plan and prints. What fails here is said once and
ends the monitor, never the training, which waits for a verdict `limit_s` at most.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import select
import statistics
import sys
import threading
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, TypeVar, Union

import mpt

T = TypeVar("T")
WAITING = 0.05  # share of a step from which waiting for data is said


def _print(text: str) -> None:
    """On stderr. Nothing where it is closed, or is a full pipe that would hold the training up."""
    if sys.stderr is not None and (sys.stderr is not sys.__stderr__ or select.select([], [sys.stderr], [], 0)[1]):  # type: ignore[type-var]
        print(text, file=sys.stderr, flush=True)


def _within(limit_s: float, ask: Callable[[], T]) -> T:
    """What a thread of its own answers in time; TimeoutError where it does not."""
    answer: "concurrent.futures.Future[T]" = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # it belongs to whoever waits
            answer.set_exception(error)
    threading.Thread(target=run, name="mpt.monitor", daemon=True).start()
    return answer.result(limit_s)


def _harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """An entry whose failure ends the monitor alone."""
    @functools.wraps(method)
    def guarded(self: "Monitor", *arguments: Any, **named: Any) -> Any:
        try:
            return None if self.is_off else method(self, *arguments, **named)
        except Exception as error:
            return self._give_up(error)
    return guarded


class Monitor:
    """`skip`: steps at the start that do not count: compilation, warm-up of caches."""

    def __init__(self, plan: Union["mpt.Plan", str, "os.PathLike[str]"], every: int = 50, skip: int = 5, search: bool = False,
                 say: Optional[Callable[[str], Any]] = None, limit_s: float = 10.0):
        self.plan = plan if isinstance(plan, mpt.Plan) else None
        self.every, self.skip, self.search, self.limit_s = max(1, every), skip, search, limit_s
        launched = ("RANK",) if "RANK" in os.environ else ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NODE_RANK", "LOCAL_RANK")
        self.is_first, self.is_off = all(os.environ.get(name, "0") == "0" for name in launched), False
        self.say = say or _print
        self.seconds: List[float] = []  # of each step that counts
        self.waits: List[float] = []  # of them, for data
        self._told = self._seen = 0
        self._begin: Optional[float] = None
        self._waited = 0.0
        try:
            if self.is_first and not isinstance(plan, mpt.Plan):
                self.plan = _within(limit_s, functools.partial(mpt.load, plan))
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.is_off = True
        with contextlib.suppress(Exception):  # where nobody hears it
            if self.is_first:
                _print(f"mpt: the monitor ends, the training goes on: {type(error).__name__}: {str(error) or 'it says no more'}")

    # What a loop tells it.

    @_harmless
    def begin(self, waited_s: float = 0.0) -> None:
        """A step begins, after so long a wait for its data."""
        self._begin, self._waited = time.perf_counter() - waited_s, waited_s

    @_harmless
    def end(self) -> None:
        """The step has ended."""
        if self._begin is not None:
            seconds, self._begin = time.perf_counter() - self._begin, None
            self._count(seconds, self._waited)

    @_harmless
    def _count(self, seconds: float, waited: float) -> None:
        self._seen += 1
        if self._seen > self.skip:
            self.seconds.append(seconds)
            self.waits.append(waited)
            if self.is_first and len(self.seconds) % self.every == 0:
                self.say(self._line())

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, each of which is a step; at the end, or where the loop breaks, the verdict."""
        try:
            begin = time.perf_counter()
            for batch in batches:
                self.begin(time.perf_counter() - begin)
                yield batch
                self.end()
                begin = time.perf_counter()
        finally:
            self.finish()

    # What it says.

    def _line(self) -> str:
        recent, waits = self.seconds[self._told :], self.waits[self._told :]
        self._told = len(self.seconds)
        seconds, predicted = statistics.median(recent), self.plan.step_time_s  # type: ignore[union-attr]
        waiting = sum(waits) / sum(recent)
        text = f"mpt: step {self._seen}: {seconds:.3g} s, predicted {predicted:.3g} s: {predicted / seconds:.0%} of the predicted speed"
        return text + (f"; waiting for data {waiting:.0%}" if waiting >= WAITING else "")

    def verdict(self) -> "mpt.Diagnosis":
        """What mpt.diagnose says of the median step; where it says nothing within limit_s, a text with the reason."""
        until = time.perf_counter() + 0.5 * self.limit_s  # a search that ends here still answers in time
        try:
            if self.plan is None or not self.seconds:
                raise ValueError("no plan was read" if self.plan is None else f"{self._seen} steps; expected more than the {self.skip} that do not count")
            plan, measured = self.plan, f"{statistics.median(self.seconds):.6f}s"
            return _within(self.limit_s, lambda: mpt.diagnose(plan, measured=measured, search=self.search,
                                                              on_progress=lambda _: time.perf_counter() < until))
        except Exception as error:  # such as a step that no GPU can be as fast as: the training itself has ended well
            is_late = isinstance(error, concurrent.futures.TimeoutError)
            return mpt.Diagnosis({}, f"mpt: no verdict: {str(error) or (f'none within {self.limit_s} s' if is_late else type(error).__name__)}")

    @_harmless
    def finish(self) -> None:
        if self.is_first and self.seconds:
            waiting = sum(self.waits) / sum(self.seconds)
            waited = f"\nWaiting for data took {waiting:.0%} of the time." if waiting >= WAITING else ""
            self.say(f"{self.verdict()}{waited}")

    # Callbacks of frameworks.

    def for_trainer(self) -> Any:
        """A callback of the Trainer of transformers."""
        from transformers import TrainerCallback
        monitor = self

        class Callback(TrainerCallback):  # type: ignore[misc]
            ended = waits_from = waited = 0.0

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                self.ended = self.waits_from = time.perf_counter()

            on_evaluate = on_save = on_train_begin  # their time is no step's

            def on_log(self, *_: Any, **__: Any) -> None:  # the loss that it reads waits for the step's GPU
                self.waits_from = time.perf_counter()

            def on_step_begin(self, *_: Any, **__: Any) -> None:
                self.waited = time.perf_counter() - self.waits_from

            def on_step_end(self, *_: Any, **__: Any) -> None:
                monitor._count(time.perf_counter() - self.ended, self.waited)
                self.ended = self.waits_from = time.perf_counter()

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
            ended: Optional[float] = None  # None: what follows the last batch is no wait for data
            begun = seconds = waited = 0.0
            step = 0

            def on_train_start(self, trainer: Any, *_: Any) -> None:
                self.ended, self.step = time.perf_counter(), trainer.global_step

            def on_validation_start(self, *_: Any, **__: Any) -> None:
                self.ended = None

            on_save_checkpoint = on_validation_start

            def on_train_batch_start(self, *_: Any, **__: Any) -> None:
                self.begun = time.perf_counter()
                self.waited += 0.0 if self.ended is None else self.begun - self.ended

            def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
                self.seconds += time.perf_counter() - self.begun
                if trainer.global_step != self.step:
                    monitor._count(self.seconds + self.waited, self.waited)
                    self.step, self.seconds, self.waited = trainer.global_step, 0.0, 0.0
                self.ended = time.perf_counter()

            def on_train_end(self, *_: Any, **__: Any) -> None:
                monitor.finish()
        return Callback()
