"""Settings of launch files: rows between them and facts, defaults, what is given, and what is not read."""
