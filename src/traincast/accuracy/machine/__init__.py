"""Microbenchmarks of this machine with the installed PyTorch, and the system file fitted to them."""
