"""The same core under a virtual clock, with simulated agents: for tests, for `jct simulate`, for what-if."""
