"""`weather` and `attractions`: a place's weather now, and what to see there."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from gateway.agent.tools.search import WebSearch
from gateway.agent.tools.tool import Context, Observation, Tool, ToolParameter
from gateway.chat import Json, loads
from gateway.errors import FetchFailed
from gateway.upstream.guarded import GuardedClient

WTTR = "https://wttr.in"


class Weather(Tool):
    """Current weather and the next days from wttr.in, or a service that answers like it."""

    name = "weather"
    description = "The current weather of a place and the forecast for the next days, in degrees Celsius."
    aliases: ClassVar[tuple[str, ...]] = ("get_weather",)
    annotations: ClassVar[Json] = {"readOnlyHint": True, "openWorldHint": True}

    def __init__(self, *, client: GuardedClient | None = None, url: str = WTTR) -> None:
        self._client = client if client is not None else GuardedClient()
        self._url = url.rstrip("/")

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("city", "string", "City, or city and country")]

    async def call(self, arguments: Json, context: Context) -> Observation:
        """The weather as text; a failure is an observation too."""
        city = _city(arguments)
        if not city:
            return Observation("Error: city must be a non-empty string.", ok=False)
        try:
            answer = await self._client.get(f"{self._url}/{quote(city, safe='')}?format=j1")
        except FetchFailed as error:
            return Observation(f"Error: the weather of {city} could not be read: {error.message}.", ok=False)
        if answer.status == 404:
            return Observation(f"Error: no place is known as {city}.", ok=False)
        try:
            return Observation(_weather(city, loads(answer.body) if answer.ok else None))
        except (ValueError, TypeError, LookupError, AttributeError):
            return Observation(f"Error: the weather of {city} could not be read: the service answered with status {answer.status} and no weather.", ok=False)


def _weather(city: str, value: Any) -> str:
    now = value["current_condition"][0]
    lines = [
        f"{city} now: {_words(now)}, {_number(now, 'temp_C')} °C (feels like {_number(now, 'FeelsLikeC')} °C), "
        f"humidity {_number(now, 'humidity')} %, wind {_number(now, 'windspeedKmph')} km/h."
    ]
    lines += [f"{str(day['date'])[:10]}: {_number(day, 'mintempC')} to {_number(day, 'maxtempC')} °C." for day in value.get("weather") or []]
    return "\n".join(lines[:8])


def _words(now: Json) -> str:
    return str(now["weatherDesc"][0]["value"]).strip()[:100]


def _number(values: Json, field: str) -> str:
    return f"{float(values[field]):g}"


class Attractions(Tool):
    """What to see in a place, by a search. Without one (`search` None) every call says that it needs one."""

    name = "attractions"
    description = "What is worth seeing in a place, for the weather there if it is given."
    aliases: ClassVar[tuple[str, ...]] = ("get_attraction", "get_attractions")
    annotations: ClassVar[Json] = {"readOnlyHint": True, "openWorldHint": True}

    def __init__(self, search: WebSearch | None = None) -> None:
        self._search = search

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("city", "string", "City, or city and country"),
            ToolParameter("weather", "string", "The weather there, as far as it is known", required=False),
        ]

    async def call(self, arguments: Json, context: Context) -> Observation:
        """The search's results as text; a failure is an observation too."""
        city, weather = _city(arguments), arguments.get("weather")
        if not city:
            return Observation("Error: city must be a non-empty string.", ok=False)
        if self._search is None:
            return Observation("Error: attractions needs a search: TAVILY_API_KEY or SERPAPI_API_KEY in the environment.", ok=False)
        when = f" in {weather.strip()[:100]} weather" if isinstance(weather, str) and weather.strip() else ""
        return await self._search.search(f"best sights to visit in {city}{when} and why")


def _city(arguments: Json) -> str:
    city = arguments.get("city")
    return " ".join(city.split())[:100] if isinstance(city, str) else ""
