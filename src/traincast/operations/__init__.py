"""Counting: the operations of one layer, per rank and micro-batch (arXiv 2410.00273, operations of a layer).

Pure arithmetic on numbers, columns or symbols.
"""
