"""What each framework can run: the knobs of its releases, and the plans that it refuses."""
