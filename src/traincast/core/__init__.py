"""Core types: model, system, plan, precision, assumptions, units and errors. Nothing here reads a file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
