"""jct-agent: one on every node. It offers devices, starts and guards workers, and tells the daemon what is."""
