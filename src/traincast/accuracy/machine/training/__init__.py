"""Training steps of a small GPT on the user's machine, compared with predictions."""
