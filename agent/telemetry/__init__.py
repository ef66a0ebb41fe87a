"""What the agent measures of its node, twice a second."""
