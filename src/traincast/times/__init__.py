"""Times of counted operations: roofline, collectives, overlap and the pipeline schedule (arXiv 2410.00273, times)."""
