"""Catalogue of models, systems, accelerators and software stacks, and loading of them by name or from files."""
