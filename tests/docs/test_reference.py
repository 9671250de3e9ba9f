"""The reference pages say what the code says, no less and no more."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column

from scrapy_resume import (
    ItemTable,
    Page,
    ResumeSpiderMixin,
    Shard,
    addon,
    exceptions,
    faults,
    signals,
)
from scrapy_resume.commands.run import EXIT_CODES
from scrapy_resume.page import ErrorKind
from scrapy_resume.store import schema
from scrapy_resume.store.columns import Exact, LongText, Moment, Serial
from scrapy_resume.verdict import Verdict
from tests.docs.pages import ROOT, block, rows, section

SPIDER, STATS, TABLES = (f"docs/reference/{name}.md" for name in ("spider", "stats", "tables"))
LIFE = "docs/explanation/page-life.md"


def bare(cell: str) -> str:
    return cell.replace("`", "")


# Stats

_STAT = re.compile(r"""\b_?inc(?:_stat)?\(\s*["']([a-z_/]+)["']|["']resume/([a-z_/]+)["']""")


def test_every_stat_is_documented() -> None:
    source = [path.read_text() for path in (ROOT / "scrapy_resume").rglob("*.py")]
    found = {"resume/" + (m[1] or m[2]) for text in source for m in _STAT.finditer(text)}
    documented = [bare(row[0]) for row in rows((ROOT / STATS).read_text())]
    assert sorted(documented) == sorted(found)
    assert all(unit and meaning for _, unit, meaning in rows((ROOT / STATS).read_text()))


# Tables

TABLE_NAMES = [field.name for field in dataclasses.fields(schema.Tables)][1:]


def kind(column: Column[Any]) -> str:
    names = {LongText: "long text", Moment: "time", Serial: "id"}
    text = names.get(type(column.type), "integer")
    if isinstance(column.type, Exact):
        text = f"text({column.type.length})"
    return text + (", NULL" if column.nullable else "")


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_every_column_is_documented(name: str) -> None:
    table = getattr(schema.build("resume_"), name)
    documented = rows(section(TABLES, name))
    assert [[bare(row[0]), row[1]] for row in documented] == [
        [column.name, kind(column)] for column in table.columns
    ]
    assert all(meaning for _, _, meaning in documented)


def test_no_table_is_documented_that_is_none() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / TABLES).read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(TABLE_NAMES)


# The spider

_SUITES_OWN = {
    "start", "parse_list_page", "from_crawler", "resume_args", "is_numbered", "plans_pages",
    "has_own_start", "has_probe", "states_totals", "logs_in",
}  # fmt: skip


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


def test_every_attribute_of_the_mixin_is_documented() -> None:
    attributes = {
        name: repr(value)
        for name, value in public(ResumeSpiderMixin).items()
        if not callable(value) and not isinstance(value, classmethod) and name not in _SUITES_OWN
    }
    documented = rows(section(SPIDER, "Attributes"))
    assert {bare(row[0]): bare(row[1]) for row in documented} == attributes


def test_every_method_of_the_mixin_is_documented() -> None:
    methods = {
        f"{name}{_signature(value)}"
        for name, value in public(ResumeSpiderMixin).items()
        if inspect.isfunction(value) and name not in _SUITES_OWN
    }
    text = section(SPIDER, "Hooks") + section(SPIDER, "To call")
    assert set(re.findall(r"^### `(.+)`$", text, re.MULTILINE)) == methods


def _signature(method: Any) -> str:
    signature = inspect.signature(method)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return str(plain).replace("'", '"')


def test_the_suites_own_names_are_documented() -> None:
    named = re.findall(r"`(\w+)`", section(SPIDER, "The suite's own names").split("belong")[0])
    assert set(named) == _SUITES_OWN
    assert set(public(ResumeSpiderMixin)) >= _SUITES_OWN


@pytest.mark.parametrize("cls", [Shard, Page, ItemTable])
def test_every_field_is_documented(cls: Any) -> None:
    fields = {
        field.name: "" if field.default is dataclasses.MISSING else repr(field.default)
        for field in dataclasses.fields(cls)
    }
    documented = rows(section(SPIDER, f"`{cls.__name__}"))
    assert {bare(row[0]): bare(row[1]).replace('"', "'") for row in documented} == fields


def test_every_exception_is_documented() -> None:
    classes = [c for c in vars(exceptions).values() if inspect.isclass(c)]
    names = {c.__name__ for c in classes if issubclass(c, exceptions.ResumeError)}
    assert {bare(row[0]) for row in rows(section(SPIDER, "Exceptions"))} == names


# Signals


def test_every_signal_is_documented_with_what_it_is_sent_with() -> None:
    """Its own docstring in the source says the same."""
    source = Path(signals.__file__).read_text()
    said = re.findall(r'^(\w+) = object\(\)\n"""(.*?)"""$', source, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in said} == {n for n, v in vars(signals).items() if type(v) is object}
    documented = rows(section("docs/reference/signals.md", "Signals"))
    shown = {bare(row[0]): re.findall(r"`(\w+)`", row[2]) for row in documented}
    assert shown == {name: re.findall(r"\*(\w+)\*", text) for name, text in said}


# Verdicts, kinds of errors, components, fault points


def test_every_verdict_has_its_finish_reason_and_exit_code() -> None:
    documented = rows(section(LIFE, "When a run ends"))
    verdicts = {bare(row[0]): (bare(row[2]), row[3]) for row in documented if len(row) == 4}
    assert verdicts == {v.value: (v.finish_reason, str(v.exit_code)) for v in Verdict}
    others = {bare(row[0]): row[1] for row in documented if len(row) == 3}
    assert others["resume_nothing_to_do"] == str(EXIT_CODES["nothing_to_do"])


def test_every_kind_of_error_is_explained() -> None:
    documented = {row[0] for row in rows(section(LIFE, "When something fails"))}
    assert documented == {error_kind.value for error_kind in ErrorKind}


def test_the_components_are_those_of_the_add_on() -> None:
    shown: dict[str, Any] = {}
    exec(block("docs/how-to/components.md", "python", "SCHEDULER").text, shown)
    assert shown["SCHEDULER"] == addon.SCHEDULER
    assert shown["CONCURRENT_ITEMS"] == addon.CONCURRENT_ITEMS
    assert shown["LOG_FORMATTER"] == addon.LOG_FORMATTER
    for name, (path, order) in addon.COMPONENTS.items():
        assert shown[name] == {path: order}


def test_every_fault_point_is_named() -> None:
    text = (ROOT / "docs/how-to/testing.md").read_text()
    points = text.partition("The points are")[2].partition("the actions")[0]
    assert set(re.findall(r"`([a-z.]+)`", points)) == faults.POINTS
