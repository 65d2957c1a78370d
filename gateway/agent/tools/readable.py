"""A page of HTML as text that a model can read.

The standard library's html.parser is not used: on Python 3.11 it needs 155 s for 90 KB of
`<a <a <a` and fails on `<![` (measured 2026-11). Here every character is looked at a bounded
number of times, whatever the page holds.
"""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin, urlsplit

_NAME = re.compile(r"/?[a-zA-Z][^\s/>]*")
_STOP = re.compile(r">|=\s*[\"']")
_HREF = re.compile(r"(?:^|[\s\"'/])href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)
_BLANKS = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" *\n *")
_EMPTY = re.compile(r"\n{3,}")
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{9,}")  # int() of millions of digits takes minutes
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])
_END = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "noembed", "noframes", "xmp", "textarea", "title")}

_HIDDEN = frozenset(("head", "svg", "template", "noscript", "nav", "object", "canvas", "math"))
_BLOCK = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "legend", "li", "main", "ol", "option", "p", "pre", "section"),
        *("summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    )
)
_LINE = frozenset(("li", "tr", "dt", "dd", "option"))
_MAX_LINK = 500
_KEPT = "\ue000"  # of private use: a blank that stays, in preformatted text


def readable(page: str, base: str = "") -> tuple[str, str]:
    """The title and the text: headings, lists, table rows and links as in Markdown; no scripts, styles and menus.

    Links are made absolute with `base`; other schemes than http and https stay plain text.
    """
    reader = _Reader(base)
    reader.read(page)
    return _tidy(reader.title), _tidy("".join(reader.out))


def _tidy(text: str) -> str:
    return _EMPTY.sub("\n\n", _LINES.sub("\n", _BLANKS.sub(" ", text.translate(_CONTROL)))).strip().replace(_KEPT, " ")


def _unescape(text: str) -> str:
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


class _Reader:
    """One pass over a page: `out` is its text."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.title = ""
        self.out: list[str] = []
        self._hidden: list[str] = []  # the elements that hide what is in them, outermost first
        self._pre = 0
        self._link: tuple[str, int] | None = None  # its address, and where in `out` its text begins

    def read(self, page: str) -> None:
        at, size = 0, len(page)
        while at < size:
            begin = page.find("<", at)
            if begin < 0:
                self._text(page[at:])
                return
            self._text(page[at:begin])
            at = self._markup(page, begin)

    def _markup(self, page: str, at: int) -> int:
        """Where the text goes on behind the `<` at `at`. What is not closed reaches to the end, as in a browser."""
        size = len(page)
        if page.startswith("<!--", at):
            return _behind(page, "-->", at + 4) or size
        if page.startswith(("<!", "<?"), at):
            return _behind(page, ">", at) or size
        name = _NAME.match(page, at + 1, at + 64)
        if name is None:
            self._text("<")
            return at + 1
        end = _end_of_tag(page, name.end())
        if end is None:
            return size
        tag = name[0].lower()
        if tag in _END:
            return self._raw(tag, page, end)
        self._tag(tag, page[name.end() : end - 1])
        return end

    def _raw(self, tag: str, page: str, at: int) -> int:
        """The content of an element in which nothing is markup, up to its end tag."""
        match = _END[tag].search(page, at)
        end = match.start() if match else len(page)
        if tag == "title" and not self.title:
            self.title = _unescape(page[at:end])
        elif tag == "textarea":
            self._text(page[at:end])
        return end

    def _tag(self, tag: str, attributes: str) -> None:
        closing, name = tag.startswith("/"), tag.lstrip("/")
        if name in ("body", "main"):
            self._hidden.clear()  # a head or a menu without its end
        if name in _HIDDEN:
            self._hide(name, closing, attributes.endswith("/"))
        elif not self._hidden:
            if name == "a":
                self._anchor(None if closing else attributes)
            elif name == "img" or closing or name not in _BLOCK:
                self._inline(name, closing)
            else:
                self._open(name)

    def _hide(self, name: str, closing: bool, empty: bool) -> None:
        if not closing and not empty:
            self._hidden.append(name)
        elif closing and name in self._hidden:
            del self._hidden[self._hidden.index(name) :]

    def _open(self, name: str) -> None:
        if name not in _LINE or not self._fresh:
            self.out.append("\n" if name in _LINE or name in ("br", "hr") else "\n\n")
        if name == "li":
            self.out.append("- ")
        elif name[0] == "h" and name[1:].isdigit():
            self.out.append("#" * int(name[1:]) + " ")
        elif name == "pre":
            self._pre += 1

    def _inline(self, name: str, closing: bool) -> None:
        if closing and name == "pre":
            self._pre = max(0, self._pre - 1)
        if closing and name in ("td", "th"):
            self.out.append(" | ")
        elif closing and name in _BLOCK:
            self.out.append("\n" if name in _LINE else "\n\n")

    def _anchor(self, attributes: str | None) -> None:
        """The beginning of a link, or its end (None)."""
        if self._link is not None:
            address, start = self._link
            self._link = None
            text = " ".join("".join(self.out[start:]).split())
            if text:
                self.out[start:] = [f"[{text}]({address})"]
        if attributes is not None and (address := self._address(attributes)):
            self._link = (address, len(self.out))

    def _address(self, attributes: str) -> str:
        match = _HREF.search(attributes)
        written = _unescape(next((part for part in match.groups() if part is not None), "")).strip() if match else ""
        if not written or written.startswith("#"):
            return ""
        try:
            address = urljoin(self.base, written)
            known = urlsplit(address).scheme in ("http", "https")
        except ValueError:
            return ""
        return address if known and len(address) <= _MAX_LINK and not re.search(r"[\s()<>]", address) else ""

    @property
    def _fresh(self) -> bool:
        """Whether what comes next stands at the beginning of a line."""
        return not self.out or self.out[-1].endswith("\n")

    def _text(self, text: str) -> None:
        if text and not self._hidden and (self._pre or not self._fresh or not text.isspace()):
            text = _unescape(text)
            self.out.append(text.replace("\t", _KEPT * 4).replace(" ", _KEPT) if self._pre else text.replace("\n", " "))


def _behind(page: str, mark: str, at: int) -> int | None:
    found = page.find(mark, at)
    return found + len(mark) if found >= 0 else None


def _end_of_tag(page: str, at: int) -> int | None:
    """Behind the `>` that ends a tag; one in a quoted value does not. None: the page ends before."""
    while (stop := _STOP.search(page, at)) is not None:
        if stop[0] == ">":
            return stop.end()
        closed = page.find(stop[0][-1], stop.end())
        if closed < 0:
            return None
        at = closed + 1
    return None
