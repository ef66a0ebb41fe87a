"""Every decision of jctd as a pure function: no I/O, no clock, no randomness of its own."""
