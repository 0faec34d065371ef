"""Results as HTML: reports in one file (`--html`), and cards in notebooks."""
