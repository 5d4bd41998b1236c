from dmlcpu.common.wording import listed, printable, shown


def test_long_values_are_shown_by_their_kind_or_cut() -> None:
    assert shown({"a": 1}) == "an object"
    assert shown([1, 2]) == "a list of 2"
    assert [shown(value) for value in (None, True, 1.5, "x")] == ["null", "true", "1.5", "'x'"]
    assert shown("x" * 1000) == "'" + "x" * 76 + "..."


def test_an_empty_list_of_names_is_said_in_words() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == "nothing (there are none)"


def test_control_characters_are_escaped() -> None:
    assert printable("new\nline \x1b[31m \udcff é") == "new\\nline \\x1b[31m \\udcff é"
