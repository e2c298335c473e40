"""Each page works as printed: its reader goes from its top to its end, in an empty database and folder.

Shell blocks go through one shell, Python blocks through one Python, SQL through the database. A block in
another language shows what the one before prints. Marks that a reader does not see say what is different
(docs/testing.md).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.pages import EXAMPLES, MARKS, TO_TYPE, TYPED, Block, Page
from tests.support.reading import Desk, PageFailed, Reader, shows

#: The pages with something to type. Others only show what was seen.
PAGES = {
    each.path: each for each in (*TO_TYPE, EXAMPLES) if any(block.language in TYPED for block in each.steps())
}
#: Pages that are typed at night only: each takes up to a minute, and begins as another one does.
AT_NIGHT = (
    "docs/archive.md",
    "docs/command-line.md",
    "docs/delta.md",
    "docs/messages.md",
    "docs/operations.md",
    "docs/running.md",
    "docs/transaction-modes.md",
    "examples/README.md",
)
#: How many blocks of a page are not run. The mark of each says why.
SKIPPED = {
    "README.md": 0,
    "docs/messages.md": 0,
    "docs/handlers.md": 0,
    "docs/failures.md": 1,
    "docs/archive.md": 0,
    "docs/command-line.md": 1,
    "docs/delta.md": 0,
    "docs/operations.md": 2,
    "docs/outbox.md": 0,
    "docs/running.md": 5,
    "docs/store-and-forward.md": 0,
    "docs/testing.md": 2,
    "docs/transaction-modes.md": 0,
}


@pytest.fixture(scope="module")
def desk():
    made = Desk()
    yield made
    made.close()


@pytest.fixture
def home(desk):
    """Where the embedded server of a page keeps its data."""
    made = Path(tempfile.mkdtemp(prefix="sqlqueue-home-"))
    yield made
    if (made / "sqlqueue" / "server").exists():
        command = [str(Path(sys.executable).with_name("sqlqueue")), "server", "remove", "--yes"]
        subprocess.run(command, env=os.environ | {"XDG_DATA_HOME": str(made)}, check=True)
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "path",
    [pytest.param(each, marks=[pytest.mark.tier("nightly")] if each in AT_NIGHT else []) for each in PAGES],
)
def test_a_page_works_as_printed(desk, home, database_url, path):
    """Where it starts a server itself, there is no other."""
    page = PAGES[path]
    if page.is_not_run:
        pytest.skip("not yet")
    starts = "sqlqueue server start" in page.text
    url = {"XDG_DATA_HOME": str(home)} if starts else {"SQLQUEUE_URL": database_url}
    desk.clear()
    start = desk.size()
    reader = Reader(desk, url)
    try:
        reader.read(page)
    finally:
        reader.close()
        sys.stdout.write(desk.shown(start))  # pytest -rP shows the terminal


@pytest.fixture
def read(desk, database_url, tmp_path):
    """Reads a page of this text; what the terminal shows in the end."""

    def read(text, **variables):
        (tmp_path / "page.md").write_text(text)
        desk.clear()
        start = desk.size()
        reader = Reader(desk, {"SQLQUEUE_URL": database_url, **variables})
        try:
            reader.read(Page(str(tmp_path / "page.md")))
        finally:
            reader.close()
        return desk.shown(start)

    return read


@pytest.mark.tier("nightly")
def test_the_shell_keeps_its_variables_and_its_folder(read):
    assert (
        read("""
```shell
mkdir data && cd data
name=orders
```

Then:

```shell
echo $name in $(basename $PWD)
```

```text
orders in d…a
```
""")
        == "orders in data\n"
    )


@pytest.mark.parametrize(
    "text, said",
    [
        ("```shell\nfalse\necho on\n```\n", "It failed."),
        ("```shell\nsqlqueue length orders\n```\n", "There is no queue table orders"),
        ("```shell\nfalse | true\n```\n", "It failed."),
        ("<!-- page fails: why -->\n```shell\ntrue\n```\n", "It did not fail."),
        ("```shell\necho 1\n```\n```text\n2\n```\n", "It is not what was printed."),
        ("```text\n2\n```\n", "It is not what was printed."),
        ("```python\nspark\n```\n", "name 'spark' is not defined"),
        (
            "```python\ndef f():\n    return 1\nf()\n```\n",
            "SyntaxError",
        ),  # Python wants an empty line after a function
        ('```python\nspark = 1\nformat = "delta"\n```\n', "knows no Delta"),
        ("```shell\npyspark --conf spark.x=1\n```\n", "has not spark.x=1"),
        ("```sql\nSELECT 1 AS one, 2 AS two\n```\n```text\n1 | 3\n```\n", "It is not what was printed."),
    ],
)
@pytest.mark.tier("nightly")
def test_what_does_not_work_as_printed_is_found(read, text, said):
    with pytest.raises(PageFailed) as failed:
        read(text)
    assert said in str(failed.value)


@pytest.mark.tier("nightly")
def test_a_page_is_done_as_by_its_reader(read):
    """Both terminals, a file, Ctrl-C, and what is printed are those of one reader."""
    assert read("""
```shell
export QUEUE=orders
sqlqueue create $QUEUE
sqlqueue send $QUEUE --count 3
```

<!-- page numbers: rates differ -->
```text
created orders@[public]@[…]
sent 3 messages to orders…
```

Save this as `shop.py`:

<!-- page file: shop.py -->
```python
name = "Billing"
```

<!-- page Ctrl-C: batch=0 -->
```shell
sqlqueue drain orders --into data/orders
```

```shell
pyspark --packages io.delta:delta-spark_4.2_2.13:4.4.0
```

```python
import os
from shop import name
spark.read.format("delta").load("data/orders").count()
os.environ["QUEUE"] + name
```

```text
3
'ordersBilling'
```

<!-- page fails: there is no such queue -->
```python
spark.read.format("sqlqueue").options(url=os.environ["SQLQUEUE_URL"], queue="ordres").load().count()
```

```sql
SELECT count(*), 'x' FROM orders
```

```text
0 | x
```
""").endswith("0 | x\n")


@pytest.mark.tier("nightly")
def test_each_question_is_answered_and_a_diagram_is_a_picture(read):
    shown = read("""
```mermaid
flowchart LR
```

```shell
sqlqueue create orders Billing
sqlqueue send orders Billing --count 3
```

<!-- page answers: orders -->
```shell
sqlqueue purge orders
sqlqueue length orders --max-rows 1
```
""")
    assert "to go on, type the queue's name" in shown
    assert " ok: " in shown.splitlines()[-1]


def test_a_block_shows_what_is_printed():
    def seen(code: str, printed: str, mark: str = "") -> bool:
        return shows(Block("text", code, mark, "why", 1, ""), printed)

    assert seen("a 1\n…\nb …c\n", "a 1\nx\ny\nb 23c  \n\n")
    assert seen("…\nb\n", "b\n")
    assert not seen("a 1\nb\n", "a 1\n")
    assert not seen("a 1\n", "a 2\n")
    assert seen("| 12 | 1,000/s\n", "|   7 | 91,634/s\n", "numbers")
    assert not seen("a 1\n", "a x\n", "numbers")


def test_each_mark_is_a_known_one_with_a_reason():
    """And a page tells its reader the name of a file that is to be saved."""
    unknown = [
        f"{path}:{block.line}: {block.mark}"
        for path, page in PAGES.items()
        for block in page.steps()
        if block.mark
        and (block.mark not in MARKS or (block.mark == "file" and f"`{block.text}`" not in block.before))
    ]
    assert unknown == []
    said = sum(page.text.count("\n<!-- page ") for page in PAGES.values())
    assert said == sum(bool(block.mark) for page in PAGES.values() for block in page.steps())


def test_what_is_not_run_is_counted():
    skipped = {path: sum(block.mark == "skip" for block in page.steps()) for path, page in PAGES.items()}
    assert skipped == {**dict.fromkeys(PAGES, 0), **SKIPPED}
