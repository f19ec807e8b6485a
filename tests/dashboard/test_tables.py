"""What tables take along as CSV: a spreadsheet computes nothing of it."""

from csv import reader
from io import StringIO
from urllib.parse import quote

import pytest
from runcast.dashboard.tables import csv, table

FORMULAS = ["=1+1", "+1+1", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "-A1", "-5 s+1"]
PLAIN = ["-5 s", "-1.2e3", "+12.5%", "-1,234.5 GB/s", "-", "a=1", "5", ""]


@pytest.mark.parametrize(("texts", "mark"), [(FORMULAS, "'"), (PLAIN, "")])
def test_a_formula_is_text_and_a_quantity_stays_one(texts, mark):
    rows = reader(StringIO(csv(texts, [texts]), newline=""))

    assert list(rows) == [[mark + text for text in texts]] * 2


def test_a_formula_of_an_uploaded_report_is_text_in_the_csv_of_its_grid(page, tmp_path):
    texts = ["=1+1", "+1+1", "-2+3+cmd|' /C calc'!A0", "-5 s"]
    points = "".join(f"{number},{text},ok,,h,-0.25\n" for number, text in enumerate(texts))
    report = tmp_path / "report.csv"
    report.write_text(f"point,@tp,status,reason,scenario_hash,mfu\n{points}")
    page.goto("/sweeps")
    page.set_input_files("#sweeps-upload input", report)
    page.wait_for_selector(f'.ag-cell:has-text("{texts[1]}")')
    with page.expect_download() as saved:
        page.get_by_role("button", name="All points as CSV").click()
    head, *rows = reader(StringIO(saved.value.path().read_text()))
    found = [dict(zip(head, row, strict=True)) for row in rows]

    assert [(row["'@tp"], row["mfu"]) for row in found] == [
        ("'=1+1", "-0.25"), ("'+1+1", "-0.25"), ("'-2+3+cmd|' /C calc'!A0", "-0.25"), ("-5 s", "-0.25"),
    ]  # fmt: skip


def test_many_rows_of_text_are_one_component_of_the_page():
    rows = [(str(i), "ring", "8") for i in range(1000)]

    _, drawn, link = table("Sizes", ("size", "algorithm", "us"), rows).children

    assert [tuple(row.values()) for row in drawn.rowData] == rows
    assert link.href == f"data:text/csv;charset=utf-8,{quote(csv(('size', 'algorithm', 'us'), rows))}"
