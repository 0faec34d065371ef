"""Results as HTML: reports in one file (`--html`, `write_html`), and cards in notebooks."""
