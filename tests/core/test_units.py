"""Parsing and formatting of quantities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincast.core.errors import InputError
from traincast.core.units import (
    BASE,
    BINARY,
    DECIMAL,
    UNIT_EXAMPLES,
    format_signed,
    gib,
    long_duration,
    number_text,
    parse_count,
    parse_quantity,
    rate_text,
    seconds,
    to_si,
    total_text,
)
from traincast.ui.cli.quantities import parse_duration


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [  # by hand
        ("80 GB", "byte", 80e9),
        ("80 GiB", "byte", 80 * 2**30),
        ("80GiB", "byte", 80 * 2**30),
        ("1 TiB", "byte", 2**40),
        ("400 Gb/s", "byte/s", 50e9),
        ("400 Gbps", "byte/s", 50e9),
        ("400 GBit/s", "byte/s", 50e9),
        ("400 GB/s", "byte/s", 400e9),
        ("8 Kib", "byte", 1024),
        ("1,200.5 GB", "byte", 1200.5e9),
        ("1_000 bytes", "byte", 1000),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("989.4 TFLOPS", "FLOP/s", 989.4e12),
        ("1e3 GFLOPs/s", "FLOP/s", 1e12),
        ("2.5 us", "s", 2.5e-6),
        ("2.5 \u00b5s", "s", 2.5e-6),  # micro sign
        ("2.5 \u03bcs", "s", 2.5e-6),  # Greek mu
        (" 3 ms ", "s", 3e-3),
        ("10.2 kW", "W", 10_200.0),
        ("50 kh", "h", 50_000.0),
        ("2.5 $/h", "$/h", 2.5),
        ("2.5 USD/h", "$/h", 2.5),
        ("0.48 kgCO2/kWh", "g/kWh", 480.0),
    ],
)
def test_parse(text: str | float, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value  # exactly: the nearest float to the decimal number


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("80 GBit/s", "byte", "measures byte/s, not byte"),
        ("80 GB", "byte/s", "measures byte, not byte/s"),
        ("989 TFLOPs", "FLOP/s", "measures FLOP, not FLOP/s"),
        ("3 GB/min", "byte/s", "measures byte/min, not byte/s"),
        ("3 parsec", "s", "unit 'parsec' is unknown"),
        ("3 h", "s", "measures h, not s"),
        ("700 W", "h", "measures W, not h"),
        ("2.5 $", "$/h", "measures \\$, not \\$/h"),
        ("fast", "s", "not a quantity"),
        ("1,2 GB", "byte", "unit ',2 GB' is unknown"),
        ("", "s", "not a quantity"),
        ("nan s", "s", "not a quantity"),
        ("7", "s", "has no unit"),
        ("900e9", "byte/s", "has no unit"),
        (" -3 ", "byte", "has no unit"),
        (7, "s", "has no unit"),
        (True, "s", "not a quantity"),
        (None, "s", "not a quantity"),
    ],
)
def test_refused(text: str, unit: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_quantity(text, unit)
    assert UNIT_EXAMPLES[unit] in str(caught.value)


@pytest.mark.parametrize(
    ("value", "unit", "si"),
    [(900e9, "byte/s", 9e11), (7, "s", 7.0), ("900 GB/s", "byte/s", 9e11), (np.float32(2), "W", 2.0)],
)
def test_calls_take_numbers_in_si_and_text_with_a_unit(value: float | str, unit: str, si: float) -> None:
    assert to_si(value, unit) == si


@pytest.mark.parametrize(
    ("value", "unit", "says"),
    [
        ("900", "byte/s", "has no unit"),
        ("80 GB", "byte/s", "measures byte"),
        (None, "s", "not a quantity"),
        ("4", "", "be a number"),
    ],
)
def test_calls_refuse_numbers_in_text(value: str, unit: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        to_si(value, unit)


@pytest.mark.parametrize(("unit", "example"), UNIT_EXAMPLES.items())
def test_examples_parse(unit: str, example: str) -> None:
    assert parse_quantity(example, unit) > 0


LARGE = sorted(prefix for prefix, power in DECIMAL.items() if power >= 0)
SMALL = sorted(prefix for prefix, power in DECIMAL.items() if power <= 0)


@given(st.floats(1e-9, 1e9), st.sampled_from(LARGE))
def test_decimal_prefixes(value: float, prefix: str) -> None:
    assert parse_quantity(f"{value!r} {prefix}B", "byte") == pytest.approx(
        value * 10.0 ** DECIMAL[prefix], rel=1e-15
    )


@given(st.floats(1e-9, 1e9), st.sampled_from(SMALL))
def test_prefixes_of_seconds(value: float, prefix: str) -> None:
    assert parse_quantity(f"{value!r} {prefix}s", "s") == pytest.approx(
        value * 10.0 ** DECIMAL[prefix], rel=1e-15
    )


@pytest.mark.parametrize(
    ("text", "unit"),
    [("400 mb/s", "byte/s"), ("80 uB", "byte"), ("989 mFLOP/s", "FLOP/s"), ("2.5 Ms", "s"), ("1 Kis", "s")],
)
def test_prefixes_that_can_only_be_typing_errors(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match="is unknown"):
        parse_quantity(text, unit)


@given(st.floats(1e-9, 1e9), st.sampled_from(sorted({*LARGE, *BINARY})))
def test_eight_bits_are_a_byte(value: float, prefix: str) -> None:
    assert parse_quantity(f"{value!r} {prefix}b/s", "byte/s") * 8 == parse_quantity(
        f"{value!r} {prefix}B/s", "byte/s"
    )


@given(st.integers(1, 1000))
def test_binary_exceeds_decimal(value: int) -> None:
    ratio = parse_quantity(f"{value} GiB", "byte") / parse_quantity(f"{value} GB", "byte")
    assert ratio == pytest.approx(1.073741824)  # 2**30 / 1e9


@pytest.mark.parametrize("text", ["1e-320 GB/s", "1e200 GB/s"])
def test_figures_whose_products_leave_the_floats_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be 1e-30 to 1e\+30 byte/s"):
        parse_quantity(text, "byte/s")


@given(st.floats(1e-30, 1e30), st.sampled_from(sorted(UNIT_EXAMPLES)))
def test_si_text_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(f"{value!r} {unit}", unit) == value


@given(st.floats(1e-6, 1e5))
def test_printed_seconds_read_back(value: float) -> None:
    assert parse_quantity(seconds(value), "s") == pytest.approx(value, rel=1e-3)


@given(st.floats(1.0, 1e18))
def test_printed_rates_read_back(value: float) -> None:
    assert parse_quantity(rate_text(value, "B/s"), "byte/s") == pytest.approx(value, rel=1e-3)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert not math.isnan(parse_quantity(text, "byte"))
    except ValueError as error:
        assert UNIT_EXAMPLES["byte"] in str(error)  # noqa: PT017


def test_no_unit_hides_another() -> None:
    """No prefix with a unit has the spelling of another unit."""
    spelled = [prefix + base for prefix in (*DECIMAL, *BINARY) for base in BASE]
    assert len(spelled) == len(set(spelled))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (seconds(39.98), "39.98 s"),
        (seconds(1.25e-3), "1.25 ms"),
        (seconds(20e-6), "20 us"),
        (seconds(3e-9), "3 ns"),
        (seconds(0), "0 s"),
        (gib(80 * 2**30), "80.0 GiB"),
        (rate_text(4.8e12, "B/s"), "4.8 TB/s"),
        (rate_text(989.4e12, "FLOP/s"), "989.4 TFLOP/s"),
        (rate_text(12.0, "B/s"), "12 B/s"),
    ],
)
def test_shown(text: str, shown: str) -> None:
    assert text == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # by hand: significant digits, all before the point, commas from 1,000, no powers of ten
        (number_text(0.125), "0.125"),
        (number_text(999.96), "1,000"),
        (number_text(1234.5678), "1,235"),
        (number_text(-12_345.6), "-12,346"),
        (number_text(1234.5, 3), "1,234"),
        (number_text(1.5e300), "1.5e+300"),
        (seconds(12_345.6), "12,346 s"),
        (long_duration(86_400.0 * 1234.4), "1,234 days"),
        (gib(4255.9 * 2**30), "4,255.9 GiB"),
        (rate_text(2_469_000.0, "B"), "2.469 MB"),
        (rate_text(1.2345e19, "B"), "12,345 PB"),
        (total_text(98_304), "98,304"),
        (total_text(2_469_137), "2.469 M"),
        (format_signed(52.47), "+5,247%"),
    ],
)
def test_digits_are_grouped_alike(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("text", "wanted"), [("2h", 7200.0), ("90m", 5400.0), ("600", 600.0), ("1.5 min", 90.0), ("1d", 86_400.0)]
)
def test_durations(text, wanted):
    assert parse_duration(text, "--budget") == wanted


@pytest.mark.parametrize("text", ["", "2 hours", "-1h", "0s", "soon", "nan", "9" * 400])
def test_what_is_no_duration(text):
    with pytest.raises(InputError, match="must be a duration above 0"):
        parse_duration(text, "--budget")


def test_a_duration_of_zero_is_allowed_on_request():
    assert parse_duration("0", "--restart", zero=True) == 0
    with pytest.raises(InputError, match="must be a duration of at least 0"):
        parse_duration("-1s", "--restart", zero=True)


def test_counts_are_bounded():
    """Nobody trains on more than 1e16 tokens, 250 times those of Llama 4 and Qwen3."""
    assert parse_count("15T", "--tokens", 1000) == parse_count("15,000.0G", "--tokens", 1000) == 15 * 10**12
    for text in ("0", "1.5", "1.2.3", "1e99", "9" * 400, "99999T", "x"):
        with pytest.raises(InputError, match=r"must be a whole number from 1 to 1e16"):
            parse_count(text, "--tokens", 1000)
