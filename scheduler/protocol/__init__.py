"""The wire: messages, codec, framing and `reconcile`. The only part of `scheduler` that agent and worker import."""
