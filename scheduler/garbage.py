"""Full collections of cyclic garbage, which stop every answer while they last, come by the clock.

Python starts one whenever the heap has grown by a quarter. A daemon's heap is the cluster's state: thousands of records
that last and hold no cycles. While a queue fills up, walking all of them again and again took 50 to 300 ms each time,
and one submission in twenty waited for it. The young generations, which find what a request leaves, stay as they are.
"""

import asyncio
import gc

EVERY_S = 600.0
NEVER = 1_000_000_000


async def collect_by_the_clock(every_s: float = EVERY_S) -> None:
    """Runs until cancelled; then Python's own rule holds again. Modules loaded so far are never walked again."""
    young, middle, old = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, middle, NEVER)
    try:
        while True:
            await asyncio.sleep(every_s)
            gc.collect()
    finally:
        gc.set_threshold(young, middle, old)
        gc.unfreeze()
