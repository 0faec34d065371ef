"""The best plan on the user's own machine: predict, run a trial, learn, choose the next, stop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
