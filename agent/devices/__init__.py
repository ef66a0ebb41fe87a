"""Devices an agent offers: real GPUs through NVML, CPU slots, or fake ones that only consume time."""

from agent.devices.offer import BadDevices, offer_devices

__all__ = ["BadDevices", "offer_devices"]
