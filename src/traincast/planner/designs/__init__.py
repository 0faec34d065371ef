"""Which machine to build or buy: machines as columns, each with its own plans, at prices of parts."""
