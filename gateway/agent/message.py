"""What the library's agents are made of: a message, a configuration, and the base that keeps a history (H5 to H7)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Self

from gateway.chat import Json

ROLES = ("user", "assistant", "system", "tool")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation: `Message("hello", "user")`. ValueError for a role that is none of ROLES."""

    content: str
    role: str
    timestamp: datetime = field(default_factory=datetime.now)
    metadata: Json = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role: {self.role!r} is none of {', '.join(ROLES)}")

    def to_dict(self) -> Json:
        """What a model is sent of it: role and content."""
        return {"role": self.role, "content": self.content}

    def __str__(self) -> str:
        return f"[{self.role}] {self.content}"


@dataclass(frozen=True, slots=True)
class Config:
    """How a library agent works where nothing else is said. `max_history_length`: messages that an agent keeps, at least 1."""

    default_model: str = "gpt-3.5-turbo"
    default_provider: str = "openai"
    temperature: float = 0.7
    max_tokens: int | None = None
    debug: bool = False
    log_level: str = "INFO"
    max_history_length: int = 100

    def __post_init__(self) -> None:
        if self.max_history_length < 1:
            raise ValueError(f"max_history_length: {self.max_history_length} is less than 1")

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Self:
        """The defaults with what DEBUG, LOG_LEVEL, TEMPERATURE and MAX_TOKENS say; ValueError names the one that makes no sense."""
        given = {name: text.strip() for name, text in (os.environ if env is None else env).items()}
        level = given.get("LOG_LEVEL", "").upper() or "INFO"
        if level not in LEVELS:
            raise ValueError(f"LOG_LEVEL: {given['LOG_LEVEL']!r} is none of {', '.join(LEVELS)}")
        return cls(
            debug=given.get("DEBUG", "").lower() in ("1", "true", "yes", "on"),
            log_level=level,
            temperature=_number(given, "TEMPERATURE", float, 0.7),
            max_tokens=_number(given, "MAX_TOKENS", int, None),
        )

    def to_dict(self) -> Json:
        return asdict(self)


class Agent(ABC):
    """The base of the library's agents: a name, a model, a system prompt, a configuration, and the messages so far."""

    def __init__(self, name: str, llm: Any, system_prompt: str | None = None, config: Config | None = None) -> None:
        self.name = name
        self.llm = llm
        self.system_prompt = system_prompt
        self.config = config if config is not None else Config()
        self._history: list[Message] = []

    @abstractmethod
    def run(self, input_text: str, **options: Any) -> str:
        """The answer to an input."""

    def add_message(self, message: Message) -> None:
        """Keep a message. Beyond `config.max_history_length` the oldest go, a tool's message never without the one that asked for it."""
        self._history.append(message)
        del self._history[: -self.config.max_history_length]
        while len(self._history) > 1 and self._history[0].role == "tool":
            del self._history[0]

    def clear_history(self) -> None:
        self._history.clear()

    def get_history(self) -> list[Message]:
        """The messages so far, in a list of the caller's own."""
        return list(self._history)

    def __str__(self) -> str:
        model = getattr(self.llm, "model", None)
        return f"{type(self).__name__}(name={self.name}{f', model={model}' if model else ''})"


def _number(given: Mapping[str, str], name: str, kind: Any, default: Any) -> Any:
    if not given.get(name):
        return default
    try:
        return kind(given[name])
    except ValueError:
        raise ValueError(f"{name}: {given[name]!r} is no number") from None
