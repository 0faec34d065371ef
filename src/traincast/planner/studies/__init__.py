"""Studies: searches at every point of a sweep, run by executors, in a table."""
