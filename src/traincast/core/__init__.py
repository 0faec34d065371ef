"""Core types: model, system, plan, precision, assumptions, units and errors. Nothing here reads a file."""
