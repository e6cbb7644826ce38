# SPDX-License-Identifier: Apache-2.0
"""JSON as the classes of mpt.types."""

from __future__ import annotations

import dataclasses
import functools
import keyword
import typing
from typing import Any, Callable, Dict, Type, TypeVar

T = TypeVar("T")


def read(cls: Type[T], value: Dict[str, Any]) -> T:
    """An object as a class of mpt.types. Fields unknown to the class are dropped; absent ones are None."""
    readers = _readers(cls)
    return cls(**{spelt: reader(value[name]) if name in value else _absent(cls, spelt) for spelt, (name, reader) in readers.items()})


def _absent(cls: type, name: str) -> Any:
    field = cls.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


@functools.lru_cache(maxsize=None)
def _readers(cls: type) -> Dict[str, Any]:
    owner = next(base for base in cls.__mro__ if "__dataclass_fields__" in vars(base))
    hints = typing.get_type_hints(owner)
    return {field.name: (field.name[:-1] if keyword.iskeyword(field.name[:-1]) else field.name, _reader(hints[field.name]))
            for field in dataclasses.fields(owner)}


def _as_it_is(value: Any) -> Any:
    return value


def _reader(hint: Any) -> Callable[[Any], Any]:
    if dataclasses.is_dataclass(hint):
        return lambda value: read(hint, value) if isinstance(value, dict) else value
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    inner = [_reader(argument) for argument in arguments if argument is not type(None)]
    if all(one is _as_it_is for one in inner):
        return _as_it_is
    if origin is list:
        return lambda value: [inner[0](one) for one in value]
    if origin is dict:
        return lambda value: {key: inner[-1](one) for key, one in value.items()}
    of_object = next(one for one in inner if one is not _as_it_is)  # a name or an object; an object or nothing
    return lambda value: of_object(value) if isinstance(value, (dict, list)) else value
