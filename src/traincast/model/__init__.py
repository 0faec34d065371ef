"""The description of a transformer: its layers, their sizes and checks, adapters and documents."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
