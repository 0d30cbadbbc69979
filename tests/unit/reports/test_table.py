from mercer.reports.table import format_table


def test_text_is_left_and_numbers_are_right():
    table = format_table(["name", "rows"], [["a", 1], ["long name", 1_000_000]])
    assert table.splitlines() == [
        "name            rows",
        "---------  ---------",
        "a                  1",
        "long name  1,000,000",
    ]


def test_a_column_with_text_among_numbers_is_text():
    assert format_table(["x"], [[1.5], ["-"]]).splitlines()[2:] == ["1.5", "-"]


def test_no_rows_gives_the_header():
    assert format_table(["a", "b"], []).splitlines() == ["a  b", "-  -"]
