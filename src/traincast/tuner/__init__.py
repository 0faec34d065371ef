"""The best plan on the user's own machine: predict, run a trial, learn, choose the next, stop."""
