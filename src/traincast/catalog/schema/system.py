"""Schema of a system file."""

from functools import cache
from typing import Any, ClassVar, Final

from pydantic import StrictBool, create_model, field_validator

from traincast.catalog.documents import catalogue, catalogue_entry
from traincast.catalog.schema.fields import (
    Amount,
    ByteRate,
    Bytes,
    Carbon,
    Count,
    Factor,
    File,
    FlopRate,
    HourlyPrice,
    Hours,
    Misplaced,
    Number,
    Part,
    Seconds,
    Share,
    Text,
    Watts,
)
from traincast.core.assumptions import ASSUMPTIONS
from traincast.core.errors import MAX_VALUES, close_to

MAX_TIERS: Final = 8


class AcceleratorPart(Part):
    """Accelerator; `source` applies to its figures without their own."""

    name: Text
    source: Text | None = None
    matrix_flops: FlopRate
    vector_flops: FlopRate
    vector_fp32_flops: FlopRate | None = None
    fp32_flops: FlopRate | None = None
    fp8_flops: FlopRate | None = None
    int8_flops: FlopRate | None = None
    fp4_flops: FlopRate | None = None
    fp32_sustained: Share | None = None
    matrix_sustained: Share | None = None
    fp8_sustained: Share | None = None
    fp4_sustained: Share | None = None
    matrix_burst: Share | None = None
    hbm_sustained: Share | None = None
    cache_bytes: Bytes | None = None
    cache_bandwidth: ByteRate | None = None
    attention_fa1: Share | None = None
    attention_fa2: Share | None = None
    attention_fa3: Share | None = None
    attention_cudnn: Share | None = None
    attention_backward: Share | None = None
    attention_tile: Count | None = None
    hbm_bandwidth: ByteRate
    hbm_bytes: Bytes
    host_bandwidth: ByteRate | None = None
    host_bytes: Bytes | None = None
    power: Watts | None = None
    processors: Count | None = None
    also_called: tuple[Text, ...] = ()


class TierPart(Part):
    """Tier of the network."""

    name: Text
    bandwidth: ByteRate
    efficiency: Share
    latency: Seconds
    launch: Seconds | None = None
    simple_latency: Seconds | None = None
    ll_bandwidth: ByteRate | None = None


class DomainTier(TierPart):
    """Tier with domains of `size` accelerators."""

    size: Count

    @field_validator("size")
    @classmethod
    def _limited(cls, size: Count) -> Count:
        """Refuse a size with too many divisors to try."""
        if size.value > MAX_VALUES["gpus"]:
            raise ValueError(f"above {MAX_VALUES['gpus']:,}; write for instance 8")
        return size


class InnerTier(DomainTier):
    """Network inside a fast domain; its bandwidth is that of all links of an accelerator."""

    elsewhere: ClassVar = {
        "ports": "the innermost tier's bandwidth is that of all links of an accelerator",
        "lost_ports": "the innermost tier has no ports",
        "dp_alone": "the innermost tier has no ports to share",
        "dp_several": "the innermost tier has no ports to share",
    }

    mesh: StrictBool = False
    axes: Count | None = None
    side: Count | None = None
    switch_reduction: ByteRate | None = None


class OuterTier(TierPart):
    """Outermost network, which connects everything."""

    elsewhere: ClassVar = {
        "size": "the outermost tier joins everything and has none; leave it out, or add a tier outside",
        "mesh": "only the innermost tier can be a mesh",
        "axes": "only the innermost tier can be a torus",
        "side": "only the innermost tier can be a torus",
        "switch_reduction": "only switches of the innermost tier are modelled to reduce",
    }

    ports: Amount = Amount(
        value=1.0, source="one port per accelerator unless the file says otherwise", basis="assumed"
    )
    lost_ports: Amount | None = None
    dp_alone: Share | None = None
    dp_several: Share | None = None


class MiddleTier(OuterTier, DomainTier):
    """Network between fast domains, in domains of `size` accelerators."""

    elsewhere: ClassVar = {key: why for key, why in OuterTier.elsewhere.items() if key != "size"}


class SoftwarePart(Part):
    """Fields of `Assumptions` fitted on this system for a software stack, in place of the catalogue's."""

    stack: Text

    @field_validator("stack")
    @classmethod
    def _known(cls, stack: str) -> str:
        """Refuse a stack that is not in the catalogue."""
        if stack not in catalogue("stacks"):
            raise ValueError(f"no stack of the catalogue; {close_to(stack, catalogue('stacks'))}")
        return stack


_NUMBERS: Final[dict[str, Any]] = {
    path: (Number | None, None) for path, item in ASSUMPTIONS.items() if item.type is float
}
SOFTWARE: Final = create_model("Software", __base__=SoftwarePart, **_NUMBERS)


class SystemFile(File):
    """System file."""

    accelerator: AcceleratorPart
    network: tuple[TierPart, ...]
    gpus: Count | None = None
    price: HourlyPrice | None = None
    node_power: Watts | None = None
    pue: Factor | None = None
    carbon: Carbon | None = None
    failure_hours: Hours | None = None
    storage_bandwidth: ByteRate | None = None
    software: tuple[SOFTWARE, ...] | None = None

    @field_validator("accelerator", mode="before")
    @classmethod
    def _by_name(cls, raw: object) -> object:
        """Replace the name of an accelerator by its entry in the catalogue."""
        if not isinstance(raw, str):
            return raw
        accelerator = catalogue_entry("accelerators", raw.lower())
        if accelerator is None:
            raise ValueError(f"no accelerator of the catalogue; {close_to(raw, catalogue('accelerators'))}")
        return accelerator

    @field_validator("network")
    @classmethod
    def _nested(cls, network: tuple[TierPart, ...]) -> tuple[TierPart, ...]:
        """Refuse a domain size that is not a multiple of the size of the tier inside."""
        sizes = [tier.size.value for tier in network if isinstance(tier, DomainTier)]
        for i, (size, inner) in enumerate(zip(sizes[1:], sizes, strict=False), start=1):
            if size % inner or size == inner:
                larger = inner * max(round(size / inner), 2)
                raise Misplaced(
                    (i, "size"),
                    f"must be a multiple of network.{i - 1}.size = {inner}; write for instance {larger}",
                )
        return network


@cache
def system_file(tiers: int) -> type[SystemFile]:
    """Return the schema of a system file with a number of tiers; the keys of a tier depend on its place."""
    places: tuple[type[TierPart], ...] = (InnerTier, *[MiddleTier] * (min(tiers, MAX_TIERS) - 2), OuterTier)
    return create_model("SystemFile", __base__=SystemFile, network=(tuple[places], ...))  # type: ignore[valid-type]
