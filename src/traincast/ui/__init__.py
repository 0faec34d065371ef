"""What people and scripts see: command line, text, HTML, figures, the explorer, JSON schemas."""
