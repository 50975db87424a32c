"""A web page from elements; every text in it is escaped, in one place.

The page needs nothing else: no script, no font, no other file. Its policy forbids them, so that a
browser would refuse even what an error in this file let through.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

SIGNATURE = "bcq report"  # in the files of pages
VOID = ("meta",)  # elements without an end
# Characters that are not text, and those that turn the direction of the text around them.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
CSS = Path(__file__).with_name("card.css").read_text(encoding="utf-8")
NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")


@dataclass(frozen=True)
class Element:
    """A part of a page; texts in it are only text until the page is written."""

    name: str
    children: Sequence["Element | str"]
    attributes: Mapping[str, str | float]


def element(name: str, /, *children: Element | str, **attributes: str | float) -> Element:
    """An element; an attribute may be called `class_`, or `stroke_width` for stroke-width."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    for word in (name, *named):
        if not NAME.fullmatch(word):
            raise ValueError(f"{word!r} is not the name of an element or an attribute")
    return Element(name, children, named)


def written(part: Element | str) -> str:
    """An element as HTML; a text is escaped."""
    if isinstance(part, str):
        return escape(UNSEEN.sub("\ufffd", part))
    attributes = "".join(f' {key}="{written(str(v))}"' for key, v in part.attributes.items())
    if part.name in VOID:
        return f"<{part.name}{attributes}>"
    inside = "".join(map(written, part.children))
    return f"<{part.name}{attributes}>{inside}</{part.name}>"


def page(title: str, *body: Element) -> str:
    """A whole page."""
    digest = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="generator", content=SIGNATURE),
        element("meta", **{"http-equiv": "Content-Security-Policy"}, content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", CSS),
    )
    return f"<!doctype html>\n{written(element('html', head, element('body', *body), lang='en'))}\n"


def table(head: Sequence[str], rows: Sequence[Sequence[Element | str]], caption: str) -> Element:
    """A table whose first column names the rows; a narrow screen scrolls it, not the page."""
    titles = [element("th", text, scope="col") for text in head]
    lines = [
        element(
            "tr",
            element("th", first, scope="row"),
            *(element("td", cell) for cell in rest),
        )
        for first, *rest in rows
    ]
    top = [element("thead", element("tr", *titles))] if head else []
    content = element("table", element("caption", caption), *top, element("tbody", *lines))
    return element("div", content, class_="wide", role="region", tabindex=0, aria_label=caption)


def section(number: int, title: str, *content: Element) -> Element:
    """A numbered part of the page."""
    name = f"part-{number}"
    heading = element("h2", f"{number}. {title}", id=name)
    return element("section", heading, *content, aria_labelledby=name)


def paragraph(*content: Element | str, **attributes: str | float) -> Element:
    """A paragraph."""
    return element("p", *content, **attributes)


def bullets(texts: Sequence[str]) -> Element:
    """A list of sentences."""
    return element("ul", *(element("li", text) for text in texts))
