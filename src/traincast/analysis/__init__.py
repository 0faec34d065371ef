"""Analyses of an estimate: trace, advice, bytes per parameter, ZeRO scaling, limits of data movement, the paper's results."""
