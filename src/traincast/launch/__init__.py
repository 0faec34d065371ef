"""Plans in the words of training frameworks: written as launch scripts or configurations, and read from them.

A framework is a table of rows (`traincast.launch.settings.table`) between facts, the plan and model in
traincast's words (`traincast.launch.settings.canonical`), and the framework's settings. The same table
writes, reads, and is printed in docs/export.md.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
