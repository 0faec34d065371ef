"""Schema of a system file."""

from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Literal

from pydantic import StrictBool, create_model, field_validator

from traincast.catalog.documents import catalogue, catalogue_entry
from traincast.catalog.schema.fields import (
    MAX_TIERS,
    Amount,
    Count,
    File,
    Misplaced,
    Number,
    Part,
    Text,
    figure_fields,
)
from traincast.core import (
    ASSUMPTIONS,
    Accelerator,
    System,
    Tier,
    close_to,
    figure_specs,
    used_accelerator_problems,
    whole_number_problems,
)


class AcceleratorKeys(Part):
    """Keys of an accelerator besides its figures; `source` applies to figures without their own."""

    name: Text
    source: Text | None = None


class TierPart(Part):
    """Tier of the network."""

    name: Text


class DomainTier(TierPart):
    """Tier with domains of `size` accelerators."""

    size: Count

    @field_validator("size")
    @classmethod
    def _check_size(cls, size: Count) -> Count:
        """Refuse a size with too many divisors to try."""
        for problem in whole_number_problems("gpus", size.value):
            raise ValueError(problem.partition(": ")[2])
        return size


INNER_ONLY: Final = {name: spec.inner_only for name, spec in figure_specs(Tier).items() if spec.inner_only}
OUTER_ONLY: Final = {name: spec.outer_only for name, spec in figure_specs(Tier).items() if spec.outer_only}
INNER_FIGURES: Final = figure_fields(Tier, "size", *OUTER_ONLY)
OUTER_FIGURES: Final = figure_fields(Tier, "size", *INNER_ONLY)
ONE_PORT: Final = "one port per accelerator unless the file says otherwise"
OUTER_FIGURES["ports"] = (Amount, Amount(value=1.0, source=ONE_PORT, basis="assumed"))


class InnerKeys(DomainTier):
    """Network inside a fast domain; its bandwidth is that of all links of an accelerator."""

    elsewhere: ClassVar = OUTER_ONLY

    mesh: StrictBool = False


class OuterKeys(TierPart):
    """Outermost network, which connects everything."""

    elsewhere: ClassVar = INNER_ONLY | {
        "size": "the outermost tier joins everything and has none; leave it out, or add a tier outside",
        "used": "the outermost tier has no domains",
        "mesh": "only the innermost tier can be a mesh",
    }


class MiddleKeys(DomainTier):
    """Network between fast domains, in domains of `size` accelerators."""

    elsewhere: ClassVar = INNER_ONLY | {"mesh": "only the innermost tier can be a mesh"}


AcceleratorPart: Final = create_model(
    "AcceleratorPart",
    __base__=AcceleratorKeys,
    **figure_fields(Accelerator),
    also_called=(tuple[Text, ...], ()),
)
InnerTier: Final = create_model("InnerTier", __base__=InnerKeys, **INNER_FIGURES)
MiddleTier: Final = create_model("MiddleTier", __base__=MiddleKeys, **OUTER_FIGURES)
OuterTier: Final = create_model(
    "OuterTier", __base__=OuterKeys, **{key: item for key, item in OUTER_FIGURES.items() if key != "used"}
)


class SoftwarePart(Part):
    """Fields of `Assumptions` fitted on this system for a software stack, in place of the catalogue's."""

    stack: Text

    @field_validator("stack")
    @classmethod
    def _check_known(cls, stack: str) -> str:
        if stack not in catalogue("stacks"):
            raise ValueError(f"no stack of the catalogue; {close_to(stack, catalogue('stacks'))}")
        return stack


_NUMBERS: Final[dict[str, Any]] = {
    path: (Number | None, None) for path, item in ASSUMPTIONS.items() if item.type is float
}
SOFTWARE: Final = create_model("Software", __base__=SoftwarePart, **_NUMBERS)


class SystemKeys(File):
    """Keys of a system file besides the figures of the cluster."""

    also_called: tuple[Text, ...] = ()  # other names of the machine, such as those of a cloud's instances
    usual_for: tuple[Text, ...] = ()  # accelerators that it is the usual node of, and names that mean it
    accelerator: AcceleratorPart
    network: tuple[TierPart, ...]
    software: tuple[SOFTWARE, ...] | None = None
    calibrated_to: Text | None = None
    calibrated_with: dict[Literal["dense", "experts"], Text] | None = None

    @field_validator("calibrated_with")
    @classmethod
    def _of_known_software(cls, stacks: dict[str, str] | None) -> dict[str, str] | None:
        for stack in (stacks or {}).values():
            if stack not in catalogue("stacks"):
                raise ValueError(f"no stack of the catalogue; {close_to(stack, catalogue('stacks'))}")
        return stacks

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
        counts = [{key: getattr(tier, key, None) for key in ("size", "used")} for tier in network]
        parts = [{key: item and item.value for key, item in of_tier.items()} for of_tier in counts]
        for i, problem in used_accelerator_problems([SimpleNamespace(**part) for part in parts]).items():
            raise Misplaced((i, "used"), problem.partition(": ")[2])
        return network


SystemFile: Final = create_model("SystemFile", __base__=SystemKeys, **figure_fields(System))


@cache
def system_file(tiers: int) -> type[SystemKeys]:
    """Return the schema of a system file with a number of tiers; the keys of a tier depend on its place."""
    places: tuple[type[TierPart], ...] = (InnerTier, *[MiddleTier] * (min(tiers, MAX_TIERS) - 2), OuterTier)
    return create_model("SystemFile", __base__=SystemFile, network=(tuple[places], ...))  # type: ignore[valid-type]
