"""A message lists the first of many mistakes and their number, however many there are."""

from traincast.core.errors import MAX_PROBLEMS, InputError, close_to, first_problems


def test_a_message_lists_the_first_mistakes_and_how_many_more():
    error = InputError("file", [f"key{number}: unknown" for number in range(15_000)])
    lines = str(error).splitlines()
    assert lines[0] == "file: these problems"
    assert lines[1] == "  key0: unknown"
    assert lines[-1] == "  and 14,981 more"
    assert len(lines) == 1 + MAX_PROBLEMS


def test_a_listed_message_survives_the_way_to_another_process():
    error = InputError("file", [f"key{number}: unknown" for number in range(100)])
    rebuilt = InputError(*error.__reduce__()[1])
    assert str(rebuilt) == str(error)


def test_lines_are_made_only_for_what_is_shown():
    made = []
    assert len(first_problems(range(1000), lambda number: made.append(number) or str(number))) == MAX_PROBLEMS
    assert len(made) == MAX_PROBLEMS - 1


def test_twenty_mistakes_are_all_listed():
    error = InputError("file", [f"key{number}: unknown" for number in range(MAX_PROBLEMS)])
    assert str(error).startswith("file: 20 problems\n")
    assert "more" not in str(error)


def test_a_long_line_loses_its_middle():
    (line,) = InputError("file", ["a" * 5000 + ": unknown key"]).problems
    assert len(line) < 1010
    assert line.endswith("a: unknown key")


def test_a_long_name_is_compared_with_none():
    assert close_to("llama" * 100, ["llama-3-8b"]) == "known: llama-3-8b"
