"""Several computations at once, one on each core: JAX computes and compiles outside Python's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp

from npro_aif.sizes import num_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


class CompiledOnce(Generic[Result]):
    """A function that compiles at its first call with arguments of one kind; other threads wait for it meanwhile.

    :param function: made by ``jax.jit``; called directly, it would compile in each of the threads.
    """

    def __init__(self, function: Callable[..., Result]):
        self.function = function
        self._locks: dict[Hashable, threading.Lock] = {}
        self._warm: set[Hashable] = set()

    def __call__(self, kind: Hashable, *arguments: Any) -> Result:
        if kind in self._warm:
            return self.function(*arguments)
        with self._locks.setdefault(kind, threading.Lock()):
            result = self.function(*arguments)
        self._warm.add(kind)
        return result


def on_all_cores(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results of the function for each item, in order; after an exception no further items are begun.

    The precision is that of the calling thread; other settings that JAX keeps per thread are not passed on.

    >>> on_all_cores(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    workers = min(len(items), num_cores())
    if workers <= 1:
        return [function(item) for item in items]
    double = jnp.result_type(float) == jnp.float64

    def call(item: Item) -> Result:
        with jax.enable_x64(double):
            return function(item)

    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(cancel_futures=True)
