"""The tidy table of published runs in the package."""

import normalise


def test_the_table_is_what_the_published_rows_say_now():
    """Else: python calibration/normalise.py."""
    assert normalise.TABLE.read_text(encoding="utf-8") == normalise.table()


def test_text_that_looks_like_a_number_stays_text():
    assert [normalise.text_of(value) for value in ("8*4", "5", 5, None, True, ("qkv",))] == [
        "8*4",
        '"5"',
        "5",
        "",
        "true",
        '["qkv"]',
    ]
