"""A training job that keeps its speed: it measures itself and changes its own cut while it trains."""
