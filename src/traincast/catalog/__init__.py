"""Catalogue of models, systems, accelerators and software stacks, and their loading by name or from files."""
