"""What a test does where a service that it needs is not installed."""

import os

import pytest


def missing_service(reason: str) -> None:
    if os.environ.get("JCT_TEST_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
