"""Analyses of an estimate: trace, advice, ZeRO scaling, limits of data movement, the paper's results."""
