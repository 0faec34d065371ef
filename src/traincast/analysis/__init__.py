"""What reads an estimate: trace, advice, memory of a parameter, scaling of ZeRO, limits of data movement, the paper's results."""
