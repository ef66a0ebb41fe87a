"""How many random examples the tests of the core's promises try."""

import os

NIGHTLY = 2_000


def examples(usual: int) -> int:
    """At least NIGHTLY in the nightly profile (JCT_TEST_EXAMPLES=nightly, which `make test-long` sets)."""
    return max(usual, NIGHTLY) if os.environ.get("JCT_TEST_EXAMPLES") == "nightly" else usual
