"""Readers of tables of measured runs: each row becomes a run that can be predicted."""
