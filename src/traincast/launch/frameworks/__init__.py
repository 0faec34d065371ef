"""Frameworks: what their settings mean, read and written."""
