"""Analyses of an estimate: trace, methods of saving, ZeRO scaling, limits of data movement."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
