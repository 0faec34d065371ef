"""Bash scripts, interpreted without running them."""
