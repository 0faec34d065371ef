"""Microbenchmarks of the user's own machine with the user's own PyTorch, and the machine file that they give (docs/measure.md)."""
