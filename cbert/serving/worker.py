"""One thread for Python work that would hold up the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# One thread, not a pool: each thread that computes would take its turn before the event loop.
_THREAD = ThreadPoolExecutor(1, "worker")


async def run(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Calls a function in the worker thread."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, function, *arguments)
