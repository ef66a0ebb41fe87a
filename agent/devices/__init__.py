"""Devices an agent offers: real GPUs through NVML, CPU slots, or fake ones that only consume time."""

from agent.devices.offer import BadDevices, KnownGpus, Offer, offer_devices

__all__ = ["BadDevices", "KnownGpus", "Offer", "offer_devices"]
