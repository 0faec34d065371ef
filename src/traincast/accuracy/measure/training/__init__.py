"""Training steps of a small GPT on the user's machine, and how predictions compare with them."""
