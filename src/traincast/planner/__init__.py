"""Every plan of a search space: framework spaces, evaluation, search, and why the best is best."""
