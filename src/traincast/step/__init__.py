"""One training step of given plans: stages, costs, memory and validity make the estimate."""
