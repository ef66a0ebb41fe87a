"""Models that come with jctd."""
