"""The central daemon `jctd`, its command line `jct`, and the wire that agents and workers share with it."""
