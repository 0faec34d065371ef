"""Analyses of an estimate: trace, methods of saving, ZeRO scaling, limits of data movement."""
