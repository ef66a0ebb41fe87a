"""One vocabulary for planner, simulator, worker and pictures."""
