"""Counting: the operations of one layer, per rank and micro-batch. Pure arithmetic on numbers, columns or symbols."""
