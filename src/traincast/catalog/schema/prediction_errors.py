"""What the file of the errors of predictions holds; written by calibration/errors_yaml.py, read by `traincast.step.uncertainty`."""

from traincast.catalog.schema.fields import Amount, Count, File, Number, Part, Text


class SpanPart(Part):
    """From where to where runs were measured, and by how much an error drifts beyond, for each factor of e."""

    least: Amount
    most: Amount
    drift: Number


class SpansPart(Part):
    """What runs of one kind of model cover."""

    gpus: SpanPart
    hidden: SpanPart
    layers: SpanPart
    seq: SpanPart


class TimePart(Part):
    """Standard deviations of the logarithm of predicted over measured time, and of the components they come from."""

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
    """What 90 % of the errors of predicted memory are within: of software whose memory was measured, and of others."""

    ninety: Amount
    new_stack: Number
    stacks: dict[Text, Amount]


class ErrorsFile(File):
    """Errors of predictions, as runs that were left out of the fits show them."""

    time: TimePart
    memory: MemoryPart
    stacks: dict[Text, Amount]
    accelerators: dict[Text, Count]
    dense: SpansPart
    moe: SpansPart
