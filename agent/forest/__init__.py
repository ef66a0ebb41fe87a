"""Predicts from counters how much longer a step takes on a device that somebody else uses as well."""
