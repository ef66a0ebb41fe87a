"""What will be: the queue run ahead on copies of the core's state, by the core itself, virtual agents and the policy in
force, once for each of several futures. Everything here is a pure function of its input; `process` and `forecaster` do
the I/O."""
