"""Times of counted operations: roofline, collectives, overlap and pipeline schedules."""
