"""Counts into seconds: roofline, collectives, overlap and the pipeline schedule."""
