"""The catalogue as a table: what is in it, what a search picks, and what it answers when there is nothing."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import pytest

from ddp_helpers import faults
from ddp_helpers.faults import Fault, catalogue
from ddp_helpers.faults.catalogue import TOPICS
from ddp_helpers.faults.table import WIDTH

MAX_BYTES = 130_000
TAKEN = (
    "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
    "address. port: 41234, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)


class Rows(HTMLParser):
    """The cells of each row, as a browser would show them; and how many topics are unfolded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.topics = self.opened = 0
        self.open_tags: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open_tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self.rows[-1][-1] += "\n"
            return
        self.open_tags.append(tag)
        if tag == "details":
            self.topics += 1
            self.opened += ("open", None) in attrs
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open_tags):
            self.rows[-1][-1] += data


def ids(table: faults.Table) -> list[str]:
    return [fault.id for fault in table.faults]


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_the_whole_catalogue_by_topic() -> None:
    table = faults.table()
    assert table.faults == catalogue() and list(table.topics) == list(TOPICS)
    assert len(table._repr_html_().encode()) <= MAX_BYTES
    page = Rows(table._repr_html_())
    assert (page.topics, page.opened) == (len(TOPICS), 0)
    rows = {row[0].partition("\n")[0]: row for row in page.rows if row[0] != "what you see"}
    assert len(rows) == len(catalogue()) and {len(row) for row in page.rows} == {4}
    for fault in catalogue():
        run = f"lesson {fault.lesson} · needs {fault.needs} · reproduction {'yes' if fault.script else 'no'}"
        expected = [f"{fault.id} {run} {fault.see}", fault.means, fault.sure, fault.cure]
        assert [plain(cell) for cell in rows[fault.id]] == [plain(text) for text in expected]


def test_no_colour_that_one_of_the_themes_cannot_show() -> None:
    assert not re.search(r"(?<!-)(?:color|background)\s*:", faults.table()._repr_html_())


def test_text_holds_every_word_of_a_row() -> None:
    text = str(faults.table())
    words = plain(text)
    for fault in catalogue():
        for part in (fault.id, fault.see, fault.means, fault.sure, fault.cure):
            assert plain(part) in words or max(map(len, part.split())) > WIDTH - 12
    long = [line for line in text.splitlines() if len(line) > WIDTH]
    assert not [line for line in long if " " in line.strip()]


def test_a_notebook_keeps_little_text_beside_a_long_table() -> None:
    short = repr(faults.table())
    assert len(short) < 1000 and "print(…)" in short and all(topic in short for topic in TOPICS)
    few = faults.table(search="EADDRINUSE")
    assert repr(few) == str(few) and "be sure" in repr(few)


def test_one_topic_is_shown_unfolded() -> None:
    table = faults.table("rendezvous")
    assert table.faults == catalogue("rendezvous")
    page = Rows(table._repr_html_())
    assert (page.topics, page.opened) == (1, 1)
    assert f"RENDEZVOUS ({len(table.faults)})" in str(table).splitlines()


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("EADDRINUSE", ["port-taken"]),
        ("eaddrinuse", ["port-taken"]),
        ("exit-code-7", ["exit-code-7"]),
        ("NCCL shm", ["nccl-shm-too-small"]),
        (TAKEN, ["port-taken"]),
        ("  exitcode  : -9 (pid: 12) (SIGKILL)", ["exit-code-9"]),
    ],
)
def test_a_search_by_words_or_by_the_message(search: str, found: list[str]) -> None:
    table = faults.table(search=search)
    assert set(found) <= set(ids(table)) and len(table.faults) < 10


def test_a_search_within_a_topic() -> None:
    everywhere, here = ids(faults.table(search="sampler")), ids(faults.table("data", search="sampler"))
    assert set(here) < set(everywhere)
    assert set(here) == set(everywhere) & {fault.id for fault in catalogue("data")}


def test_nothing_found_is_a_sentence() -> None:
    table = faults.table("data", search="<weather>")
    assert not table.faults and not table.topics
    assert plain(repr(table)).startswith('No known fault matches "<weather>" in the topic data. Try ')
    assert html.escape('"<weather>"') in table._repr_html_() and "<table" not in table._repr_html_()


def test_an_unknown_topic_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no topic 'port'; there are: rendezvous, .*table\(search='port'\)"):
        faults.table("port")


def test_one_row_is_spoken_of_as_one() -> None:
    assert faults.table(search="EADDRINUSE").title().startswith('1 known fault matches "EADDRINUSE".')
    assert "reproduce" not in faults.table(search="nccl-p2p-hang").title()


def test_markup_in_a_record_is_text() -> None:
    fault = Fault("x", "<b>see</b>\n\tmore", "means & more.", "run `ls <x>`.", "cure.", "01")
    page = Rows(faults.Table({"data": (fault,)})._repr_html_())
    seen = "x\nlesson 01 · needs cpu · reproduction no\n<b>see</b>\nmore"
    assert page.rows[1] == [seen, "means & more.", "run ls <x>.", "cure."]
