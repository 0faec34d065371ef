"""What a model or a system file may hold, as pydantic classes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    StrictBool,
    StringConstraints,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from traincast.documents import catalogue, known
from traincast.errors import MOST, close_to
from traincast.model import Biased, Experts, Latent, Local, Mlp, Norm, Positions, QkNorm
from traincast.units import EXAMPLES, parse

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Basis = Literal["spec", "measured", "assumed"]
MOST_TIERS: Final = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a file.

    Parameters
    ----------
    path : str
        Dotted path in the file, for instance ``"network.0.bandwidth"``.
    value : float
        The number in SI [`unit`].
    unit : str
        SI unit; empty for a plain number.
    source : str
        Where it comes from.
    basis : {"spec", "measured", "assumed"}
        What kind of source that is.
    """

    path: str
    value: float
    unit: str
    source: str
    basis: Basis


class Misplaced(ValueError):
    """What is wrong at a place inside the value that was checked."""

    def __init__(self, place: tuple[str | int, ...], wrong: str):
        self.place = place
        super().__init__(wrong)


class Part(BaseModel):
    """A mapping that takes only the keys it declares."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    elsewhere: ClassVar[Mapping[str, str]] = {}  # keys that parts like this one may have: why this one may not


class Entry(Part):
    """A figure as written: a bare value, or a mapping of value, source and basis."""

    unit: ClassVar[str] = ""
    example: ClassVar[object]
    may_be_zero: ClassVar[bool] = False

    value: float
    source: Text | None = None
    basis: Basis = "spec"

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, raw: object) -> object:
        """A bare value stands for a mapping that holds only it."""
        return raw if isinstance(raw, dict) else {"value": raw}

    @field_validator("value", mode="before")
    @classmethod
    def _positive(cls, raw: object) -> float:
        """The value, finite and above zero (or zero, where that means something)."""
        value = cls._read(raw)
        if not (0 < value < inf or (cls.may_be_zero and value == 0)):
            allowed = "of at least 0" if cls.may_be_zero else "above 0"
            raise ValueError(f"not a finite number {allowed}; write for instance {cls.example!r}")
        return value

    @classmethod
    def _read(cls, raw: object) -> float:
        """The value as written, of the right kind."""
        try:
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                return float(raw)
        except OverflowError:
            return inf
        raise ValueError(f"not a number; write for instance {cls.example!r}")


class Amount(Entry):
    """A positive number."""

    example = 0.5


class Load(Entry):
    """Tokens an expert gets, in any unit."""

    example = 0.5
    may_be_zero = True


class Factor(Entry):
    """A number of at least 1."""

    example = 1.2

    @field_validator("value")
    @classmethod
    def _at_least_one(cls, value: float) -> float:
        """The value, refused below 1."""
        if value < 1:
            raise ValueError(f"below 1, the least it can be; write for instance {cls.example!r}")
        return value


class Share(Entry):
    """A number above 0 and at most 1."""

    example = 0.7

    @field_validator("value")
    @classmethod
    def _at_most_one(cls, value: float) -> float:
        """The value, refused above 1."""
        if value > 1:
            raise ValueError(f"above 1, the most a share can be; write for instance {cls.example!r}")
        return value


class Overhead(Entry):
    """A factor of at least 1."""

    example = 1.2

    @field_validator("value")
    @classmethod
    def _at_least_one(cls, value: float) -> float:
        """The value, refused below 1."""
        if value < 1:
            raise ValueError(f"below 1, the least it can be; write for instance {cls.example!r}")
        return value


class Count(Entry):
    """A positive whole number."""

    example = 64

    value: int

    @classmethod
    def _read(cls, raw: object) -> float:
        """The value as written, refused with a fraction."""
        value = super()._read(raw)
        if isfinite(value) and value != round(value):
            raise ValueError(f"not a whole number; write for instance {cls.example!r}")
        return int(value) if isfinite(value) else value


class Whole(Count):
    """A whole number, zero allowed."""

    example = 1
    may_be_zero = True


class Tokens(Count):
    """A number of tokens."""

    unit = "token"


class Sequences(Count):
    """A number of sequences."""

    unit = "sequence"


class Quantity(Entry):
    """A number with a unit, which has to be written."""

    @classmethod
    def _read(cls, raw: object) -> float:
        """The quantity in SI."""
        if _is_number(raw):
            raise ValueError(f"has no unit; write for instance {EXAMPLES[cls.unit]!r}")
        return parse(raw, cls.unit)  # type: ignore[arg-type]  # anything but text it refuses itself


class Bytes(Quantity):
    """A capacity."""

    unit = "byte"
    example = EXAMPLES[unit]


class ByteRate(Quantity):
    """A bandwidth."""

    unit = "byte/s"
    example = EXAMPLES[unit]


class FlopRate(Quantity):
    """A rate of arithmetic."""

    unit = "FLOP/s"
    example = EXAMPLES[unit]


class Seconds(Quantity):
    """A duration; zero is that of an ideal network."""

    unit = "s"
    example = EXAMPLES[unit]
    may_be_zero = True


class Watts(Quantity):
    """A power."""

    unit = "W"
    example = EXAMPLES[unit]


class Hours(Quantity):
    """A long duration."""

    unit = "h"
    example = EXAMPLES[unit]


class HourlyPrice(Quantity):
    """A price for an hour."""

    unit = "$/h"
    example = EXAMPLES[unit]


class Carbon(Quantity):
    """Carbon dioxide of a kilowatt-hour."""

    unit = "g/kWh"
    example = EXAMPLES[unit]


class File(Part):
    """What every file holds; `source` stands for all figures without one of their own."""

    name: Text
    title: Text | None = None
    source: Text = "the file itself"


class ModelPart(Part):
    """A mapping inside a model file; `becomes` is what the model holds of it."""

    becomes: ClassVar[type]


class LatentPart(ModelPart):
    """Multi-head latent attention."""

    becomes = Latent

    kv_rank: Count
    q_rank: Count | None = None
    nope_dim: Count
    rope_dim: Count
    value_dim: Count


class LocalPart(ModelPart):
    """Sliding-window or chunked attention."""

    becomes = Local

    window: Tokens
    chunked: StrictBool | None = None
    global_every: Whole | None = None
    layers: tuple[Count, ...] | None = None

    @field_validator("layers")
    @classmethod
    def _one_pattern(cls, layers: tuple[Count, ...] | None, info: ValidationInfo) -> tuple[Count, ...] | None:
        """The layers are told once."""
        if layers and info.data.get("global_every"):
            raise ValueError("global_every is given as well; keep one of the two")
        return layers


class ExpertsPart(ModelPart):
    """Mixture of experts."""

    becomes = Experts

    experts: Count
    topk: Count
    ffn: Count
    shared_ffn: Whole | None = None
    shared_gate: StrictBool | None = None
    first_dense: Whole | None = None
    every: Count | None = None
    router_bias: StrictBool | None = None
    capacity: Amount | None = None
    imbalance: Factor | None = None
    load: tuple[Load, ...] | None = None


class ModelFile(File):
    """A model file. What is left out or null is as in `Model`, whose fields these are."""

    aliases: tuple[Text, ...] = ()
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    latent: LatentPart | None = None
    local: LocalPart | None = None
    ffn: Count
    experts: ExpertsPart | None = None
    vocab: Count | None = None
    mtp: Whole | None = None
    patch: Count | None = None
    classes: Count | None = None
    seq: Tokens
    max_positions: Tokens | None = None
    causal: StrictBool | None = None
    mlp: Mlp | None = None
    norm: Norm | None = None
    norms: Literal[2, 4] | None = None
    qk_norm: QkNorm | None = None
    biases: tuple[Biased, ...] | None = None
    sinks: StrictBool | None = None
    dropout: StrictBool | None = None
    positions: Positions | None = None
    tied: StrictBool | None = None
    global_batch: Sequences | None = None
    training_sequences: Sequences | None = None
    training_tokens: Tokens | None = None

    @field_validator("training_tokens")
    @classmethod
    def _one_length(cls, tokens: Tokens | None, info: ValidationInfo) -> Tokens | None:
        """The length of the run is given once."""
        if tokens and info.data.get("training_sequences"):
            raise ValueError("training_sequences is given as well; keep one of the two")
        return tokens


class AcceleratorPart(Part):
    """An accelerator; `source` stands for its figures without one of their own."""

    name: Text
    source: Text | None = None
    matrix_flops: FlopRate
    vector_flops: FlopRate
    vector_fp32_flops: FlopRate | None = None
    fp32_flops: FlopRate | None = None
    fp8_flops: FlopRate | None = None
    fp4_flops: FlopRate | None = None
    hbm_bandwidth: ByteRate
    hbm_bytes: Bytes
    host_bandwidth: ByteRate | None = None
    host_bytes: Bytes | None = None
    power: Watts | None = None
    processors: Count | None = None


class TierPart(Part):
    """A tier of the network."""

    name: Text
    bandwidth: ByteRate
    efficiency: Share
    latency: Seconds


class InnerTier(TierPart):
    """The network inside a fast domain of `size` accelerators; its bandwidth is that of all links of an accelerator."""

    elsewhere = {"ports": "the innermost tier's bandwidth is that of all links of an accelerator"}

    size: Count

    @field_validator("size")
    @classmethod
    def _imaginable(cls, size: Count) -> Count:
        """A size whose divisors can be tried."""
        if size.value > MOST["gpus"]:
            raise ValueError(f"above {MOST['gpus']:,}; write for instance 8")
        return size


class OuterTier(TierPart):
    """The network that joins everything."""

    elsewhere = {"size": "the outermost tier joins everything and has none; leave it out, or add a tier outside"}

    ports: Amount = Amount(value=1.0, source="one port per accelerator unless the file says otherwise", basis="assumed")


class MiddleTier(OuterTier, InnerTier):
    """A network between fast domains that joins `size` accelerators."""

    elsewhere = {}


class SystemFile(File):
    """A system file."""

    accelerator: AcceleratorPart
    network: tuple[TierPart, ...]
    gpus: Count | None = None
    price: HourlyPrice | None = None
    node_power: Watts | None = None
    pue: Overhead | None = None
    carbon: Carbon | None = None
    failure_hours: Hours | None = None
    storage_bandwidth: ByteRate | None = None

    @field_validator("accelerator", mode="before")
    @classmethod
    def _by_name(cls, raw: object) -> object:
        """The catalogue's accelerator of that name, where a name is written."""
        if not isinstance(raw, str):
            return raw
        found = known("accelerators", raw.lower())
        if found is None:
            raise ValueError(f"no accelerator of the catalogue; {close_to(raw, catalogue('accelerators'))}")
        return found

    @field_validator("network")
    @classmethod
    def _nested(cls, network: tuple[TierPart, ...]) -> tuple[TierPart, ...]:
        """Domains of a tier hold whole domains of the tier before."""
        sizes = [tier.size.value for tier in network if isinstance(tier, InnerTier)]
        for i, (size, inner) in enumerate(zip(sizes[1:], sizes, strict=False), start=1):
            if size % inner or size == inner:
                larger = inner * max(round(size / inner), 2)
                raise Misplaced((i, "size"), f"must be a multiple of network.{i - 1}.size = {inner}; write for instance {larger}")
        return network


@cache
def system_file(tiers: int) -> type[SystemFile]:
    """What a system file of that many tiers may hold: the place of a tier tells its keys."""
    places: tuple[type[TierPart], ...] = (InnerTier, *[MiddleTier] * (min(tiers, MOST_TIERS) - 2), OuterTier)
    return create_model("SystemFile", __base__=SystemFile, network=(tuple[places], ...))  # type: ignore[valid-type]


def figures(file: File) -> tuple[Figure, ...]:
    """Every figure of a checked file, in the order of the file's description."""
    return tuple(_figures(file, "", file.source))


def accelerator_figures(accelerator: AcceleratorPart) -> tuple[Figure, ...]:
    """Every figure of a checked accelerator of the catalogue."""
    return tuple(_figures(accelerator, "", accelerator.source or "the file itself"))


def _figures(items: Iterable[tuple[str | int, Any]], prefix: str, source: str) -> Iterator[Figure]:
    """Figures below a dotted path, which inherit a source."""
    for key, item in items:
        path = f"{prefix}{key}"
        if isinstance(item, Entry):
            yield Figure(path, item.value, item.unit, item.source or source, item.basis)
        elif isinstance(item, Part):
            yield from _figures(item, f"{path}.", getattr(item, "source", None) or source)
        elif isinstance(item, tuple):
            yield from _figures(enumerate(item), f"{path}.", source)


def _is_number(raw: object) -> bool:
    """Whether a value is a number, or text that holds nothing but one."""
    try:
        float(raw)  # type: ignore[arg-type]  # failing is the answer
    except (TypeError, ValueError):
        return False
    except OverflowError:
        return True
    return not isinstance(raw, bool)
