"""One transaction, told as a generator: it yields statements and is sent the rows of each.

Written so, a transaction with decisions in it (read, compare, write) is one plain function
that runs on SQLite's own thread and on PostgreSQL's event loop alike. It holds no state
outside itself, sees either all of its writes kept or none, and refuses by raising:

    def append(run: str, epoch: int, event: str) -> Steps[None]:
        owner = yield Sql("UPDATE runs SET seen = seen + 1 WHERE id = ? AND epoch = ? RETURNING id", (run, epoch))
        if not owner:
            raise Fenced(run)
        yield Sql("INSERT INTO events ...", (...,))
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]


class Sql(NamedTuple):
    """One statement that both databases understand; `?` stands for a value, which never becomes part of the text."""

    text: str
    values: Sequence[Any] = ()


class Many(NamedTuple):
    """One statement for each of many rows of values; it gives no rows back."""

    text: str
    rows: Sequence[Sequence[Any]]


Steps: TypeAlias = Generator[Sql | Many, list[Row], T]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where the two databases differ: the words of a table's definition, how a schema is locked and looked for, the clock."""

    name: str
    words: dict[str, str]
    known: str
    """a statement with one row if `thinkgate_meta` exists, else none"""
    now: str
    """an expression: the database's own clock, unix seconds"""
    notify: str | None = None
    """a statement with a channel and a text that tells listeners when the transaction is kept; None: nobody can listen"""
    lock: str | None = None
    """what keeps other processes out of the schema until the transaction ends; None: the transaction itself does"""

    def spell(self, text: str) -> str:
        """A definition with `{blob}`, `{serial}` and `{keyed}` in this database's words."""
        return text.format_map(self.words)


class Engine(Protocol):
    """A database that runs transactions. StoreUnavailable when it does not answer."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def file(self) -> Path | None:
        """The database's file; None: it is in memory, or a server's."""

    async def read(self, steps: Steps[T]) -> T:
        """Run statements that change nothing."""

    async def write(self, steps: Steps[T], *, durable: bool = False) -> T:
        """Run statements that are kept together or not at all; two writers never see each other's half.

        Kept means: through the death of this process. `durable`: through a power cut too,
        which SQLite pays with one wait for the disk; PostgreSQL always does.
        """

    def listen(self, channel: str) -> AsyncGenerator[str]:
        """What any process tells on a channel: first "", once the line stands, then each text. StoreUnavailable when it is cut."""

    async def backup(self, path: Path) -> None:
        """A copy of all that is committed, in a new file. StoreRefused where the database has its own tool."""

    async def aclose(self) -> None: ...
