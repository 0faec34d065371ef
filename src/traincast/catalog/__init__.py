"""Catalogue of models, systems, accelerators and software stacks, and their loading by name or from files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
