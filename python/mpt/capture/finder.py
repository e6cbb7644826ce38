# SPDX-License-Identifier: Apache-2.0
"""Changes modules of libraries once they have been imported."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from typing import Any, Callable, Dict


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, hooks: Dict[str, Callable[[Any], None]]):
        self.hooks = hooks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        hook = self.hooks.get(name)
        if hook is None:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            hook(module)
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        for name in [name for name in self.hooks if name in sys.modules]:
            self.hooks[name](sys.modules[name])
