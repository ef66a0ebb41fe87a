"""Checkpoints: content-addressed layer files and a manifest written last. One is whole, or it does not exist.

A store directory::

    layers/SHA256.safetensors    one layer: parameters, buffers, optimizer state; shared by all steps that have it
    step-N/manifest.json         after N steps: which files, and all that a resume on any shape needs
    claim-JOB.ATTEMPT            the fence: a member that sees a higher one than its own ends itself
"""
