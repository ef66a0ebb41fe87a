"""The worker: the user's SDK, and the processes that run a pipeline with torch.

The SDK's names are imported on first use, so that `python -m worker.shim` can set its environment before torch loads.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.sdk import Data, PipelineJob, TensorData, Validation

__all__ = ["Data", "PipelineJob", "TensorData", "Validation"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from worker import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module 'worker' has no attribute {name!r}")
