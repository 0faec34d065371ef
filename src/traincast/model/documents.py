"""Documents of fine-tuning: how long they are, and whether sequences are packed or padded."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import fsum, isclose, isfinite
from pathlib import Path
from typing import Final

from traincast.core import MUST_BE_WHOLE, InputError, raise_problems, whole_number_problems

PADDED: Final = "padded:"  # before the lengths
HOW: Final = (
    "write lengths in tokens with their shares, such as 512:0.7,2048:0.3, or a file, one length a line"
)
MAX_LENGTHS: Final = 1_000_000
MOST_DIGITS: Final = 9  # of a length [tokens]
SUM_OF_SHARES_WITHIN: Final = 0.01  # shares are often given with two digits


@dataclass(frozen=True)
class Documents:
    """Lengths of documents, and how they fill sequences.

    Raises `InputError` if a length or share is not allowed; all mistakes at once.
    """

    # Lengths [tokens] and the share of the documents that have each, in any unit. What is longer than a
    # sequence is cut to it.
    lengths: tuple[tuple[int, float], ...]
    # Whether sequences are filled with documents, cut where a sequence ends, and tokens attend to their own
    # document alone (variable-length attention); else each is one document, padded, and padding is computed.
    packed: bool = True
    assumed: bool = False  # whether nobody stated the lengths

    def __post_init__(self) -> None:
        problems = [] if self.lengths else ["lengths: at least one is needed"]
        for tokens, share in self.lengths:
            problems += whole_number_problems("length", tokens)
            is_share = isinstance(share, int | float) and isfinite(share) and share > 0
            problems += [] if is_share else [f"share of {tokens} = {share!r}: must be above 0"]
        raise_problems("lengths", problems)

    @cached_property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """Lengths and shares, which sum to 1."""
        whole = fsum(share for _, share in self.lengths)
        return tuple((tokens, share / whole) for tokens, share in self.lengths)

    def mean(self, seq: int) -> float:
        """Return the mean length of a document that is cut to a sequence [tokens]."""
        return fsum(share * min(tokens, seq) for tokens, share in self.shares)

    def truncated_share(self, seq: int) -> float:
        """Return the share of documents that are longer than a sequence, which they are cut to."""
        return fsum(share for tokens, share in self.shares if tokens > seq)

    def padding_share(self, seq: int) -> float:
        """Return the share of all tokens that is padding."""
        return 0.0 if self.packed else 1 - self.mean(seq) / seq

    def in_sequence(self, seq: int) -> tuple[tuple[int, float], ...]:
        """Return the lengths of documents in a sequence and how many it has of each; one where padded."""
        if not self.packed:
            return ((seq, 1.0),)
        mean = self.mean(seq)
        return tuple((min(tokens, seq), share * seq / mean) for tokens, share in self.shares)

    def title(self, seq: int) -> str:
        """Return lengths and what becomes of them, in a few words."""
        mean = f"documents of {self.mean(seq):,.0f} tokens on average"
        if cut := self.truncated_share(seq):
            mean += f" ({cut:.1%} of them cut to {seq:,})"
        return (
            f"{mean}, packed"
            if self.packed
            else f"{mean}, padded ({self.padding_share(seq):.0%} of all tokens)"
        )


def parse_lengths(text: str, files: bool = True) -> Documents:
    """Return the documents of a text such as ``"512:0.7,2048:0.3"``, or of a file with one length a line.

    ``padded:`` before it says that sequences are padded instead of packed. Raises `InputError` if a length or
    share is wrong, or the file cannot be read.

    >>> parse_lengths("padded:512,1024").padding_share(1024)
    0.25
    """
    packed = not text.startswith(PADDED)
    rest = text.removeprefix(PADDED).strip()
    if not rest:
        raise InputError("--lengths", [f"{text!r}: names no length; {HOW}"])
    path = Path(rest)
    if not rest[:1].isdecimal() or (files and _is_file(path)):
        if not files:
            raise InputError("lengths", [f"{rest[:40]!r}: {HOW.partition(', or a file')[0]}"])
        words = _lines(path)
        return Documents(tuple(sorted(Counter(_length(word) for word in words).items())), packed)
    pairs = [word.partition(":") for word in rest.split(",")]
    lengths = tuple((_length(tokens), _share(share)) for tokens, _, share in pairs)
    shares = [share for _, share in lengths]
    total = fsum(shares)
    if any(not share.is_integer() for share in shares if isfinite(share)) and not isclose(
        total, 1, rel_tol=SUM_OF_SHARES_WITHIN
    ):
        wrong = f"{rest[:80]!r}: the shares sum to {total:g}; must be 1, or whole numbers of documents"
        raise InputError("--lengths", [wrong])
    return Documents(lengths, packed)


def _is_file(path: Path) -> bool:
    """Return whether a path is that of a file; a text too long for a path is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise InputError("--lengths", [f"{str(path)!r}: {reason}; {HOW}"]) from None
    if not 0 < len(lines) <= MAX_LENGTHS:
        raise InputError("--lengths", [f"{str(path)!r}: holds {len(lines):,} lengths; 1 to {MAX_LENGTHS:,}"])
    return lines


def _length(word: str) -> int:
    """Return a length [tokens]."""
    digits = word.strip()
    if not digits.isdecimal() or len(digits) > MOST_DIGITS or int(digits) < 1:
        raise InputError("--lengths", [f"{digits[:40]!r}: {MUST_BE_WHOLE}, below 10^{MOST_DIGITS}; {HOW}"])
    return int(digits)


def _share(word: str) -> float:
    """Return the share of a length, 1 where it is left out."""
    try:
        return float(word) if word.strip() else 1.0
    except ValueError:
        raise InputError("--lengths", [f"share {word!r}: must be a number; {HOW}"]) from None
