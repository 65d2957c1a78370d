"""HTML as text, and how long that may take."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.tools.readable import readable


def text(page: str) -> str:
    return readable(page, "https://example.com/a/b")[1]


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<h1>A</h1><h3>B</h3>c", "# A\n\n### B\n\nc"),
        ("<p>a</p><p>b<br>c</p>", "a\n\nb\nc"),
        ("<ul>\n <li>a</li>\n <li>b <i>c</i></li>\n</ul>d", "- a\n- b c\n\nd"),
        ("<ul><li>a</li><li>b</ul>", "- a\n- b"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><th>c</th></tr></table>", "a | b |\nc |"),
        ("a   b\n  c", "a b c"),
        ("<pre>if x:\n    y  = 1</pre>", "if x:\n    y  = 1"),
        ("a &amp; b &lt;c&gt; &#8364; &nbsp;d", "a & b <c> € d"),
        ("&#99999999999999999999;", "\ufffd;"),
        ("<b>a</b><i>b</i>", "ab"),
        ("a<!-- <p>hidden</p> -->b<!DOCTYPE x><?php echo ?>c", "abc"),
        ("<script>var a = '<p>no</p>'; if (a < b) {}</script>yes", "yes"),
        ("<SCRIPT>no</SCRIPT >yes<style>p > a {}</style>", "yes"),
        ("<head><meta name=a><title>T</title></head><body>yes</body>", "yes"),
        ("<head><title>T</title><body>yes", "yes"),
        ("<nav>Home <a href=/>x</a></nav>yes<svg><text>no</text></svg><template>no</template><noscript>no</noscript>", "yes"),
        ("<nav>open<main>yes</main>", "yes"),
        ("<textarea>a <b> c</textarea>", "a <b> c"),
        ("1 < 2 and a <- b", "1 < 2 and a <- b"),
        ('<p title="a > b">c</p>', "c"),
        ("<p title='a > b' x=\"y>z\">c</p>", "c"),
        ("<p title=it's>c</p>", "c"),
        ("a<p", "a"),
        ("a<p x='", "a"),
        ("a<p x='yz>b", "a"),
        ("a<!--", "a"),
        ("a<script>b", "a"),
        ("", ""),
    ],
)
def test_a_page_becomes_text(page: str, shown: str) -> None:
    assert text(page) == shown


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ('<a href="/c?d=1&amp;e=2">go <b>on</b></a>.', "[go on](https://example.com/c?d=1&e=2)."),
        ("<a class=x href=d>y</a>", "[y](https://example.com/a/d)"),
        ("<a href='https://other.example/'>y</a>", "[y](https://other.example/)"),
        ('<a href="#part">y</a>', "y"),
        ('<a href="javascript:alert(1)">y</a>', "y"),
        ('<a href="mailto:a@b.c">y</a>', "y"),
        ('<a href="http://[">y</a>', "y"),
        ('<a href="/a b)c">y</a>', "y"),
        ('<a data-href="/no">y</a>', "y"),
        ('<a href="/x"><img src=i></a>z', "z"),
        ("<a href=/x>y", "y"),
        ("<a href=/x>y</a> z <a href=/w>w</a>", "[y](https://example.com/x) z [w](https://example.com/w)"),
        ("<a href=/x>y<a href=/z>w</a>", "[y](https://example.com/x)[w](https://example.com/z)"),
        (f'<a href="/{"x" * 600}">y</a>', "y"),
    ],
)
def test_links_keep_their_address(page: str, shown: str) -> None:
    assert text(page) == shown


def test_the_first_title_is_the_pages() -> None:
    assert readable("<title>A &amp; B\n</title><svg><title>no</title></svg>")[0] == "A & B"


HOSTILE = {
    "<": "<",
    "<!--": "<!--",
    "<a ": "<a ",
    "</": "</",
    "<![": "<![",
    "<a x='": "<a x='",
    "<a x='>'": "<a x='>'",
    "&": "&",
    "&#": "&#",
    "&#1": "&#1111111111",
    "<script>": "<script>",
    "</script": "<script></scr",
    "<textarea>": "<textarea></",
    "<title>": "<title><",
    "<?": "<?",
    "a=": "<a" + " a=" * 5,
    "href": "<a href href>x",
    "a": "<a href=/x>y",
    "div": "<div>",
    "nav": "<nav>",
    "/nav": "<nav></nav>",
    "blanks": " ",
    "lines": "\n \n",
    "pre": "<pre>  ",
    "<aaaa": "<" + "a" * 100,
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_no_page_takes_long(piece: str) -> None:
    """html.parser of Python 3.11 needs minutes for some of these; 1 MB is the most that fetch reads"""
    page = piece * (1_000_000 // len(piece))
    began = time.process_time()
    readable(page, "https://example.com/")
    assert time.process_time() - began < 8


@given(st.text(alphabet="<>/!-\"'= apscriptheadhref&#;\n", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read(page: str) -> None:
    title, body = readable(page, "https://example.com/")
    assert isinstance(title, str)
    assert body == body.strip()


@given(st.lists(st.sampled_from(["a b", "1 < 2", "x & y", "ü"]), min_size=1, max_size=5))
def test_words_outside_of_markup_are_never_lost(paragraphs: list[str]) -> None:
    page = "".join(f"<div><p class='x'>{one.replace('&', '&amp;').replace('<', '&lt;')}</p></div>" for one in paragraphs)
    assert text(page) == "\n\n".join(paragraphs)
