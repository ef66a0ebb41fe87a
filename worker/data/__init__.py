"""Data that comes with jctd, or that is on every machine."""
