"""The page of all benchmarks: the tables that they print, with a plot of their rates."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAID = """Linux, 2 cores

1,000 messages, median of 3 rounds

| | messages/s | as it comes ÷ it |
|---|---|---|
| our job into Delta | 54,060 | 1.00 |
| (a) Spark's JDBC source | 192,242 | 0.28 |

| 100 messages/s, 20 s | p50, ms |
|---|---|
| noop | 314 |

| ratio | goal | | what |
|---|---|---|---|
| 0.79 | ≥ 0.90 | falls short | noop ÷ JDBC |
| 1.25 |  |  | the job ÷ JDBC |
"""


@pytest.fixture
def benchmark_page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import page

    return page


def test_the_tables_of_a_benchmark_are_found_with_their_rates(benchmark_page):
    first, second, _ = benchmark_page.tables(SAID)
    assert first.rates == {"our job into Delta": 54_060.0, "(a) Spark's JDBC source": 192_242.0}
    assert second == (("| 100 messages/s, 20 s | p50, ms |", "|---|---|", "| noop | 314 |"), {})


def test_a_page_has_a_section_a_part_and_names_those_that_failed(benchmark_page, monkeypatch):
    monkeypatch.setattr(benchmark_page, "run_by", lambda: "a machine")
    said = benchmark_page.page({"Draining into Delta": SAID, "Latency": None}, "latest.svg", 3)
    assert said.splitlines() == [
        "# The latest run of all benchmarks",
        "",
        "`make bench`, medians of 3: a machine.",
        "",
        "| ratio | goal | | what |",
        "|---|---|---|---|",
        "| 0.79 | ≥ 0.90 | falls short | noop ÷ JDBC |",
        "| 1.25 |  |  | the job ÷ JDBC |",
        "",
        "![messages a second](latest.svg)",
        "",
        "## Draining into Delta",
        "",
        "`python benchmarks/drain.py --only delta`",
        "",
        "| | messages/s | as it comes ÷ it |",
        "|---|---|---|",
        "| our job into Delta | 54,060 | 1.00 |",
        "| (a) Spark's JDBC source | 192,242 | 0.28 |",
        "",
        "| 100 messages/s, 20 s | p50, ms |",
        "|---|---|",
        "| noop | 314 |",
        "",
        "## Latency",
        "",
        "`python benchmarks/latency.py --only latency --seconds 10`",
        "",
        "This part failed.",
    ]


def test_a_page_without_rates_has_no_plot(benchmark_page, monkeypatch, tmp_path):
    """One of latencies alone, for example."""
    latencies = SAID[SAID.index("| 100 messages/s") :]
    monkeypatch.setattr(benchmark_page, "run", lambda *_: latencies)
    monkeypatch.setattr("sys.argv", ["page.py", "--part", "Latency", "--page", str(tmp_path / "latest.md")])
    benchmark_page.main()
    assert [each.name for each in tmp_path.iterdir()] == ["latest.md"]
    assert "![" not in (tmp_path / "latest.md").read_text()


def test_the_plot_shows_the_tables_of_rates(benchmark_page, tmp_path):
    found = {"Draining into Delta": [each for each in benchmark_page.tables(SAID) if each.rates]}
    benchmark_page.draw(found, tmp_path / "latest.svg")
    drawn = (tmp_path / "latest.svg").read_text()
    assert ("<svg" in drawn, "Spark's JDBC source" in drawn) == (True, True)
