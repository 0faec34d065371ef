"""User interfaces: command line, text, HTML, figures, the explorer, JSON schemas."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
