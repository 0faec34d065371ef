"""Schema of the file of prediction errors, which `traincast.step.uncertainty` reads."""

from traincast.catalog.schema.fields import Amount, Count, File, Number, Part, Text


class SpanPart(Part):
    """Range that measured runs cover, and growth of the error beyond it per factor of e."""

    least: Amount
    most: Amount
    drift: Number


class SpansPart(Part):
    """Ranges that measured runs of one kind of model cover."""

    gpus: SpanPart
    hidden: SpanPart
    layers: SpanPart
    seq: SpanPart


class TimePart(Part):
    """Standard deviations of the logarithm of predicted over measured time, by component."""

    common: Number
    own: Number
    experts: Number
    communication: Number
    bubble: Number
    host: Number
    new_stack: Number
    new_accelerator: Number
    other_stacks: Amount
    quantile: Amount
    apart: Amount
    reach: Amount


class MemoryPart(Part):
    """Bounds of 90 % of the errors of predicted memory, for software with measured memory and without."""

    ninety: Amount
    new_stack: Number
    stacks: dict[Text, Amount]


class ErrorsFile(File):
    """Prediction errors of runs that were held out from the fits."""

    time: TimePart
    memory: MemoryPart
    stacks: dict[Text, Amount]
    accelerators: dict[Text, Count]
    dense: SpansPart
    moe: SpansPart
