"""User interfaces: command line, text, HTML, figures, the explorer, JSON schemas."""
