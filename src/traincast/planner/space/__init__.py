"""The search: every plan that fits in memory and its time, with bounds that leave most out."""
