"""How the daemon talks to agents: ZeroMQ ROUTER with CURVE, sessions, Targets sent until they are applied."""
