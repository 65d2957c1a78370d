"""web_search over Tavily, SerpApi and a folder; weather and attractions; the built-in tools by name (H15)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from website import Page, Site, answer, page

from gateway.agent.tools import Context, Observation, Tool, ToolParameter
from gateway.agent.tools.builtin import build
from gateway.agent.tools.folder import excerpt, search, words
from gateway.agent.tools.places import Attractions, Weather
from gateway.agent.tools.search import WebSearch
from gateway.config import agents as config
from gateway.upstream.guarded import Guard, GuardedClient

TAVILY, SERPAPI = {"TAVILY_API_KEY": "tvly-secret"}, {"SERPAPI_API_KEY": "serp-secret"}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as found:
        found.pages["/search"] = answer(
            {
                "answer": "It is 42.",
                "results": [{"title": f"T{number}", "url": f"https://t/{number}", "content": f"{number} " + "x" * 300, "score": 1} for number in range(5)],
            }
        )
        found.pages["/search.json"] = answer(
            {
                "answer_box": {"answer": "It is 43."},
                "organic_results": [{"title": f"S{number}", "link": f"https://s/{number}", "snippet": "y" * 150} for number in range(4)],
            }
        )
        yield found


def searching(site: Site, env: dict[str, str], backend: str | None = None, path: Path | None = None) -> WebSearch:
    client = GuardedClient(Guard.of([site.host], only=True), timeout=5)
    return WebSearch(backend, path, env=env, client=client, tavily_url=f"{site.url}/", serpapi_url=site.url)


async def call(tool: Tool, **arguments: Any) -> Observation:
    return await tool.call(arguments, Context())


async def test_the_direct_answer_comes_first_then_three_results_with_short_texts(site: Site) -> None:
    """H15"""
    got = await call(searching(site, TAVILY), query=" meaning of life ")
    parts = got.text.split("\n\n")
    assert got.ok
    assert parts[0] == "Direct answer: It is 42."
    assert [part.splitlines()[0] for part in parts[1:]] == ["[1] T0", "[2] T1", "[3] T2"]
    assert parts[1].splitlines()[1:] == ["0 " + "x" * 148 + "...", "https://t/0"]
    (method, _, headers, body) = site.asked[0]
    assert (method, headers["authorization"]) == ("POST", "Bearer tvly-secret")
    assert json.loads(body)["query"] == "meaning of life"
    assert json.loads(body)["max_results"] == 3


async def test_serpapi_serves_where_only_its_key_is_there(site: Site) -> None:
    """H15"""
    got = await call(searching(site, SERPAPI), query="a & b")
    assert got.text.startswith("Direct answer: It is 43.\n\n[1] S0\n" + "y" * 150 + "\nhttps://s/0\n\n[2]")
    assert parse_qs(urlsplit(site.asked[0][1]).query)["q"] == ["a & b"]


async def test_tavily_is_preferred(site: Site) -> None:
    """H15"""
    assert "42" in (await call(searching(site, SERPAPI | TAVILY), query="q")).text
    assert len(site.asked) == 1


async def test_the_other_service_is_asked_where_the_first_fails(site: Site) -> None:
    """H15"""
    site.pages["/search"] = page("busy", 503)
    assert "43" in (await call(searching(site, TAVILY | SERPAPI), query="q")).text


async def test_a_named_backend_is_the_only_one(site: Site) -> None:
    """CONTRACT 3"""
    assert "43" in (await call(searching(site, TAVILY | SERPAPI, "serpapi"), query="q")).text
    site.pages["/search.json"] = page("busy", 503)
    assert not (await call(searching(site, TAVILY | SERPAPI, "serpapi"), query="q")).ok


@pytest.mark.parametrize(
    ("backend", "env", "path", "words"),
    [
        (None, {}, None, "TAVILY_API_KEY or SERPAPI_API_KEY"),
        (None, {"TAVILY_API_KEY": ""}, None, "TAVILY_API_KEY or SERPAPI_API_KEY"),
        ("tavily", SERPAPI, None, "needs TAVILY_API_KEY in"),
        ("serpapi", TAVILY, None, "needs SERPAPI_API_KEY in"),
        ("local", {}, None, "needs path"),
        ("local", {}, Path("/no/such/folder"), "is not there"),
        ("bing", TAVILY, None, "unknown search backend 'bing'"),
    ],
)
def test_nobody_who_could_search_is_an_error_at_construction(backend: str | None, env: dict[str, str], path: Path | None, words: str) -> None:
    """H15"""
    with pytest.raises(ValueError, match=words):
        WebSearch(backend, path, env=env)


def test_its_parameters_are_a_list_of_tool_parameters() -> None:
    """H15 [B]"""
    parameters = WebSearch(env=TAVILY).get_parameters()
    assert [type(one) for one in parameters] == [ToolParameter]
    assert parameters[0].name == "query"


@pytest.mark.parametrize(
    "found",
    [page("denied: tvly-secret", 401), page("tvly-secret", 500), page("<html>tvly-secret"), answer([1]), Page(200, {"content-length": "9"}, [b"cut"])],
    ids=["401", "500", "html", "list", "cut"],
)
async def test_a_failure_is_an_observation_without_the_key(site: Site, found: Page) -> None:
    """H15, B107"""
    site.pages["/search"] = found
    got = await call(searching(site, TAVILY), query="q")
    assert not got.ok
    assert got.text.startswith("Error: the search failed: ")
    assert ("did not accept the key" in got.text) is (found.status == 401)
    assert "secret" not in got.text


async def test_the_key_in_a_query_is_in_no_failure(site: Site) -> None:
    """B107.3"""
    del site.pages["/search.json"]
    got = await call(searching(site, SERPAPI), query="q")
    assert "serp-secret" in site.asked[0][1]
    assert "serp-secret" not in got.text


@pytest.mark.parametrize("value", [{}, {"answer": None, "results": None}, {"answer": {"a": 1}, "results": [1, None, "x"]}, {"results": []}])
async def test_an_answer_without_results_says_that_nothing_was_found(site: Site, value: Any) -> None:
    site.pages["/search"] = answer(value)
    got = await call(searching(site, TAVILY), query="q")
    assert got.ok
    assert got.text == "Nothing was found for 'q'."


@pytest.mark.parametrize("query", ["", "  ", None, 7])
async def test_a_search_for_nothing_is_an_observation(site: Site, query: Any) -> None:
    assert not (await call(searching(site, TAVILY), query=query)).ok
    assert site.asked == []


# the folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "deep").mkdir(parents=True)
    (folder / "rivers.md").write_text("# Rivers of Europe\n\nThe Rhine flows north.\n\nThe Danube flows east, through ten countries.\n")
    (folder / "deep" / "lakes.txt").write_text("Lake Geneva is deep.\n\nThe Rhone flows through it.\n")
    (folder / "cities.txt").write_text("Vienna lies on the Danube.\n\n" + "Nothing of interest here. " * 40)
    (folder / "zh.md").write_text("# 河流\n\n多瑙河流经维也纳。\n\n莱茵河向北流。\n")
    (folder / ".hidden.txt").write_text("danube secret")
    (folder / "image.png").write_bytes(b"danube secret")
    (tmp_path / "outside.txt").write_text("danube secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


async def test_a_folder_is_searched_with_the_best_passage_first(site: Site, library: Path) -> None:
    got = await call(searching(site, {}, "local", library), query="Which countries does the Danube flow through?")
    parts = got.text.split("\n\n")
    assert parts[0] == "Direct answer: The Danube flows east, through ten countries."
    assert parts[1] == "[1] Rivers of Europe\nThe Danube flows east, through ten countries.\nrivers.md"
    assert len(parts) <= 4
    assert "secret" not in got.text
    assert site.asked == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("rhine", "rivers.md"),
        ("RHONE geneva", "deep/lakes.txt"),
        ("vienna", "cities.txt"),
        ("多瑙河", "zh.md"),
        ("flowing countries", "rivers.md"),
        ("lakes", "deep/lakes.txt"),
    ],
)
def test_the_best_file_comes_first(library: Path, query: str, first: str) -> None:
    assert search(library, query, 3)[0].name == first


@pytest.mark.parametrize("query", ["zzz", "", "?!", "secret"])
def test_nothing_is_found_where_no_word_occurs(library: Path, query: str) -> None:
    assert search(library, query, 3) == []


def test_an_empty_folder_and_broken_bytes_are_no_trouble(tmp_path: Path) -> None:
    assert search(tmp_path, "a", 3) == []
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe danube \x00")
    assert [one.name for one in search(tmp_path, "danube", 3)] == ["bad.txt"]


def test_a_search_reads_no_more_than_its_caps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text(f"word{number} common")
    monkeypatch.setattr("gateway.agent.tools.folder.MAX_FILES", 5)
    assert search(tmp_path, "word4", 3)
    assert not search(tmp_path, "word5", 3)
    monkeypatch.setattr("gateway.agent.tools.folder.MAX_ALL", 20)
    assert search(tmp_path, "word0", 3)
    assert not search(tmp_path, "word4", 3)
    assert [one.name for one in search(tmp_path, "common", 3)] == ["00.txt"], "the second file is cut in the middle of that word"


def test_a_rare_word_counts_more_than_a_common_one(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("water of a river")
    (tmp_path / "x.txt").write_text("only the Danube")
    assert search(tmp_path, "water river danube", 1)[0].name == "x.txt"


def test_a_heading_goes_with_what_follows_it(library: Path) -> None:
    assert search(library, "europe rhine", 1)[0].text == "# Rivers of Europe\nThe Rhine flows north."


def test_a_large_folder_is_searched_in_a_short_time(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.txt").write_text(f"needle{number} " + "the quick brown fox jumps over it. " * 150)
    began = time.process_time()
    assert search(tmp_path, "needle77 fox", 3)[0].name == "77.txt"
    assert time.process_time() - began < 10


def test_an_excerpt_is_around_the_first_word_that_was_asked_for() -> None:
    text = "a " * 200 + "needle in the hay " + "b " * 200
    shown = excerpt(text, "needles", 150)
    assert "needle" in shown
    assert len(shown) <= 150
    assert shown.startswith("...")
    assert shown.endswith("...")
    assert excerpt("short\n text", "x", 150) == "short text"
    assert excerpt("c " * 200, "none", 20) == "c c c c c c c ..."


def test_words_meet_in_their_stems_and_chinese_in_pairs() -> None:
    for forms in ("Cities city", "Flowing flows FLOWED flow", "needle needles", "houses house", "boxes box", "classes class", "make making"):
        assert len(set(words(forms))) == 1, forms
    assert words("多瑙河") == ["多瑙", "瑙河"]
    assert words("A1_b é") == ["a1", "b", "é"]


# places


WEATHER = {
    "current_condition": [{"temp_C": "21", "FeelsLikeC": "20", "humidity": "50", "windspeedKmph": "7", "weatherDesc": [{"value": " Sunny "}]}],
    "weather": [{"date": "2026-11-30", "mintempC": "12", "maxtempC": "22"}, {"date": "2026-12-01", "mintempC": "9", "maxtempC": "18"}],
}


def weather(site: Site) -> Weather:
    return Weather(client=GuardedClient(Guard.of([site.host]), timeout=5), url=site.url)


async def test_the_weather_of_a_place_is_told_in_words(site: Site) -> None:
    """H15"""
    site.pages["/New%20York"] = answer(WEATHER)
    got = await call(weather(site), city=" New  York ")
    assert got.ok
    assert got.text == ("New York now: Sunny, 21 °C (feels like 20 °C), humidity 50 %, wind 7 km/h.\n2026-11-30: 12 to 22 °C.\n2026-12-01: 9 to 18 °C.")
    assert site.asked[0][1] == "/New%20York?format=j1"


@pytest.mark.parametrize("city", ["../admin", "a/b?x=1#y", "a\r\nb", "http://127.0.0.1/"])
async def test_a_place_is_one_part_of_the_path_whatever_it_is_called(site: Site, city: str) -> None:
    await call(weather(site), city=city)
    path = site.asked[0][1]
    assert path.endswith("?format=j1")
    assert path.count("/") == 1
    assert path.count("?") == 1


@pytest.mark.parametrize(
    "found",
    [
        page("x", 404),
        answer(WEATHER, 500),
        page("no json"),
        answer({}),
        answer([]),
        answer(None),
        answer({"current_condition": []}),
        Page(200, {"content-length": "9"}, [b"cut"]),
    ],
    ids=["404", "500", "text", "object", "list", "null", "nothing", "cut"],
)
async def test_a_weather_that_cannot_be_had_is_a_text(site: Site, found: Page) -> None:
    """H15: errors are texts"""
    site.pages["/Oz"] = found
    got = await call(weather(site), city="Oz")
    assert not got.ok
    assert got.text.startswith("Error: ")
    assert "Oz" in got.text


async def test_attractions_are_a_search_with_the_weather_in_it(site: Site) -> None:
    """H15"""
    got = await call(Attractions(searching(site, TAVILY)), city="Vienna", weather="sunny")
    assert got.ok
    assert "T0" in got.text
    query = json.loads(site.asked[0][3])["query"]
    assert "Vienna" in query
    assert "sunny" in query


async def test_attractions_without_a_search_say_so() -> None:
    """H15: errors are texts"""
    got = await call(Attractions(None), city="Vienna")
    assert not got.ok
    assert "TAVILY_API_KEY" in got.text


@pytest.mark.parametrize("city", ["", " ", None, 3])
async def test_a_place_without_a_name_is_a_text(site: Site, city: Any) -> None:
    for tool in (weather(site), Attractions(searching(site, TAVILY))):
        got = await call(tool, city=city)
        assert not got.ok
        assert "city must be" in got.text
    assert site.asked == []


# by name


@pytest.mark.parametrize("name", config.TOOLS)
def test_each_built_in_tool_is_built_by_its_name(name: str) -> None:
    tool = build(config.Tool(name), TAVILY)
    schema = tool.to_openai_schema()
    assert schema["function"]["name"] == tool.name == name
    assert schema["function"]["description"]
    assert set(schema["function"]["parameters"]["required"]) <= set(schema["function"]["parameters"]["properties"])


def test_no_two_built_in_tools_share_a_name_or_an_alias() -> None:
    """T1"""
    tools = [build(config.Tool(name), TAVILY) for name in config.TOOLS]
    names = [name for tool in tools for name in (tool.name, *tool.aliases)]
    assert len(names) == len(set(names))


async def test_options_of_the_config_reach_the_tool(site: Site, library: Path) -> None:
    local = build(config.Tool("web_search", options=config.SearchOptions("local", library)), {})
    assert "rivers.md" in (await call(local, query="rhine")).text
    fetch = build(config.Tool("fetch", options=config.FetchOptions((site.host,), only=True)), {})
    site.pages["/x"] = page("inside", type="text/plain")
    assert "inside" in (await call(fetch, url=f"{site.url}/x")).text
    assert "not among the hosts" in (await call(fetch, url="https://example.com/")).text
    assert not (await call(build(config.Tool("fetch"), {}), url=f"{site.url}/x")).ok


def test_a_search_that_nobody_can_do_and_an_unknown_name_are_refused() -> None:
    with pytest.raises(ValueError, match="TAVILY_API_KEY"):
        build(config.Tool("web_search"), {})
    with pytest.raises(ValueError, match="unknown tool 'shell'"):
        build(config.Tool("shell"), {})
    assert build(config.Tool("attractions"), {}).name == "attractions"
