"""Launches that are Python programs, configurations or recipes, read without running them."""
