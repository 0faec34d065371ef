"""Parts of a model that devices of a pipeline have: embedding, head and kinds of layers."""

from collections.abc import Mapping
from typing import Final

from traincast.core import Column

VOCABULARY: Final = ("embedding", "decoder embedding", "head", "tied")  # parts with its matrices
ENDS: Final = (*VOCABULARY, "mtp")
Counts = Mapping[str, Column]  # of each part on a device, by its name
