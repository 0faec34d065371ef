"""The transformer to be trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from traincast.errors import WHOLE, InputError, is_whole


@dataclass(frozen=True, kw_only=True)
class Model:
    """Shape of a transformer, as counted by arXiv 2410.00273: `layers` equal layers of attention and MLP.

    Parameters
    ----------
    name : str
        Name it is known by.
    layers : int
        Number of transformer layers, L.
    hidden : int
        Embedding width, e.
    heads : int
        Attention heads, h; divides `hidden`.
    ffn : int
        Width of the MLP's inner layer, f.
    seq : int
        Sequence length, l [tokens].
    global_batch : int, optional
        Batch of one optimizer step used where none is given [sequences].
    training_sequences : float, optional
        Length of the whole training run [sequences].
    sources : mapping of str to str
        Where each figure comes from.

    Raises
    ------
    InputError
        If a number is no whole number of at least 1, or heads do not divide the width; all mistakes at once.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    seq: int
    global_batch: int | None = None
    training_sequences: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("layers", "hidden", "heads", "ffn", "seq")}
        problems = [
            f"{name} = {value!r}: {WHOLE}"
            for name, value in numbers.items()
            if isinstance(value, int | float) and not is_whole(value)
        ]
        if not problems and isinstance(self.hidden, int) and self.hidden % self.heads:
            problems = [f"heads = {self.heads}: must divide hidden = {self.hidden}"]
        if problems:
            raise InputError(f"model {self.name}", problems)

    @property
    def head_width(self) -> int:
        """Width of one attention head, q = e/h."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Weights of the layers, biases and norms included, embeddings left out (the paper's count)."""
        e, f = self.hidden, self.ffn
        attention = 3 * e * e + e * e + e + 2 * e  # qkv, output projection and its bias, norm
        mlp = e * f + f + f * e + e + 2 * e  # fc1, fc2 with biases, norm
        return self.layers * (attention + mlp)
