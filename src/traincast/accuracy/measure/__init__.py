"""Microbenchmarks of the user's machine with the user's PyTorch, and the system file fitted to them (docs/measure.md)."""
