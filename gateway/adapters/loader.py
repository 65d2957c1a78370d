"""Finds adapter files, loads and checks them, and loads them anew when they change."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gateway.adapters.hooks import DATA, HOOKS, Adapter, display, freeze, log
from gateway.adapters.lua import LuaFile, lua_name
from gateway.adapters.python import PythonFile
from gateway.config import HookBudget, suggest, unknown
from gateway.errors import AdapterError

ENDINGS = (".lua", ".py")

_DIALECTS = ("chat", "responses", "messages", "completions", "gemini", "converse")
_CHOICES = {"dialect": _DIALECTS, "framing": ("sse", "ndjson", "eventstream"), "trailing_assistant": ("accept", "refuse")}
_TEXTS = ("base_url", "auth", "env", "dialect", "framing", "default_model", "trailing_assistant")

_VARIABLE = re.compile(r"""^\s*(?:adapter\.)?env\s*=\s*["'](\w+)["']""", re.MULTILINE)

Signature = tuple[int, int]


@dataclass(slots=True)
class _Entry:
    """What is known about one file; `looked` is when it was last looked at (monotonic)."""

    path: Path
    signature: Signature
    looked: float
    adapter: Adapter | None = None
    fault: AdapterError | None = None


class Loader:
    """The adapters of some folders, earlier folders first, each in its newest good version.

    A file is looked at again when `check_every` seconds have passed since the last time. If
    its new version is bad the old one stays, the log says why once, and `faults` holds the
    message under the file's name until it is good again.
    """

    def __init__(self, folders: Sequence[Path], budget: HookBudget, check_every: float = 1.0) -> None:
        self._folders = tuple(folders)
        self._budget = budget
        self._check_every = check_every
        self._entries: dict[str, _Entry] = {}
        self.faults: dict[str, str] = {}

    def get(self, name: str) -> Adapter:
        """The adapter of this name. AdapterError if there is none, or none that can be loaded."""
        entry = self._entries.get(name)
        if entry is not None and entry.adapter is not None and time.monotonic() - entry.looked < self._check_every:
            return entry.adapter
        try:
            path = self._find(name)
        except AdapterError as fault:
            if entry is None or entry.adapter is None:
                raise
            self._keep(name, entry, fault)
            return entry.adapter
        return self._newest(name, path, hooks_only=False)

    def file(self, path: Path) -> Adapter:
        """The hooks of one file that stands outside the folders; it may hold no data."""
        key = str(path)
        entry = self._entries.get(key)
        if entry is not None and entry.adapter is not None and time.monotonic() - entry.looked < self._check_every:
            return entry.adapter
        if path.suffix not in ENDINGS:
            raise AdapterError(f"{display(path)}: a hook file ends in .lua or .py")
        return self._newest(key, path, hooks_only=True)

    def names(self) -> list[str]:
        """All adapters that can be found, sorted."""
        return sorted({path.stem for folder in self._folders if folder.is_dir() for path in folder.iterdir() if _is_adapter(path)})

    def variable(self, name: str) -> str:
        """The variable of the usual key as the adapter's file writes it, which is not loaded for it; none: empty."""
        found = _VARIABLE.search(self._find(name).read_text(encoding="utf-8", errors="replace"))
        return found[1] if found else ""

    def _find(self, name: str) -> Path:
        for folder in self._folders:
            found = [folder / f"{name}{ending}" for ending in ENDINGS if name == Path(name).name and (folder / f"{name}{ending}").is_file()]
            if len(found) > 1:
                raise AdapterError(f"{display(found[0])} and {found[1].name}: two adapters of one name in one folder")
            if found:
                return found[0]
        raise AdapterError(unknown("adapter", name, self.names()))

    def _newest(self, key: str, path: Path, *, hooks_only: bool) -> Adapter:
        now, signature, entry = time.monotonic(), _signature(path), self._entries.get(key)
        if entry is None or entry.path != path or entry.signature != signature:
            entry = self._load(key, path, signature, entry, hooks_only)
            self._entries[key] = entry
        elif entry.fault is None:
            self.faults.pop(key, None)
        entry.looked = now
        if entry.adapter is None:
            raise entry.fault or AdapterError(f"{display(path)}: cannot be read")
        return entry.adapter

    def _keep(self, key: str, entry: _Entry, fault: AdapterError) -> None:
        """The last good version goes on where the file is gone or ambiguous now."""
        entry.looked = time.monotonic()
        if self.faults.get(key) != fault.message:
            self.faults[key] = fault.message
            log.error("%s; the version loaded before goes on", fault.message)

    def _load(self, key: str, path: Path, signature: Signature, old: _Entry | None, hooks_only: bool) -> _Entry:
        try:
            adapter = load(path, self._budget, hooks_only=hooks_only)
        except AdapterError as fault:
            kept = old.adapter if old is not None else None
            self.faults[key] = fault.message
            log.error("%s%s", fault.message, "; the version loaded before goes on" if kept else "")
            return _Entry(path, signature, 0.0, kept, fault)
        if old is not None:
            log.info("%s: loaded anew", display(path))
        self.faults.pop(key, None)
        return _Entry(path, signature, 0.0, adapter)


def load(path: Path, budget: HookBudget, *, hooks_only: bool = False) -> Adapter:
    """One file, checked. `hooks_only`: it may hold no data. AdapterError names file and line."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise AdapterError(f"{display(path)}: {error.strerror or 'cannot be read'}") from None
    shown = display(path)
    if path.suffix == ".py":
        python = PythonFile(shown, path, source)
        return _adapter(path, "python", python, source, hooks_only)
    shown = lua_name(shown)
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source[: error.start].count(b"\n") + 1
        raise AdapterError(f"{shown}:{line}: not UTF-8 text") from None
    return _adapter(path, "lua", LuaFile(shown, text, budget), source, hooks_only)


def check_options(adapter: Adapter, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, message) for every option that neither the adapter nor all adapters declare, or of the wrong type."""
    from gateway.adapters.rules import COMMON_OPTIONS
    from gateway.adapters.settings import own_value

    faults = []
    for key, value in options.items():
        common = COMMON_OPTIONS.get(key)
        if common is None and key not in adapter.options:
            known = dict.fromkeys([*adapter.options, *COMMON_OPTIONS])
            faults.append((key, f"unknown option of the adapter {adapter.name}; known: {', '.join(known)}{suggest(key, known)}"))
            continue
        fault = common.fault(value) if common is not None else _type_fault(adapter.options[key], own_value(adapter.options[key], value))
        if fault:
            faults.append((key, fault))
    return faults


def builtin_folder() -> Path:
    """Where the adapters that come with the gateway are: in the package, or beside it in a checkout."""
    packaged = Path(__file__).parent / "builtin"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "adapters"


def _adapter(path: Path, language: str, file: LuaFile | PythonFile, source: bytes, hooks_only: bool) -> Adapter:
    for fault in (*_unknown_names(file), *(_stray_data(file) if hooks_only else _data_faults(file.data))):
        raise AdapterError(f"{file.name}: {fault}")
    data = {key: freeze(value) for key, value in file.data.items() if value is not None}
    hooks = MappingProxyType({name: file.hook(name) for name in HOOKS if name in file.lines})
    return Adapter(name=path.stem, path=path, language=language, hooks=hooks, lines=dict(file.lines), digest=sha256(source).hexdigest(), **data)


def _unknown_names(file: LuaFile | PythonFile) -> Iterator[str]:
    """A returned table holds nothing else; a global of another name is a fault only if it looks misspelt."""
    known = (*DATA, *HOOKS)
    for name in file.others:
        if file.returned:
            yield f"unknown key {name!r}{suggest(name, known)}"
        elif get_close_matches(name, known, 1, 0.86):
            yield f"unknown name {name!r}{suggest(name, known)} (a global of your own needs a name that is less alike)"


def _stray_data(file: LuaFile | PythonFile) -> Iterator[str]:
    for name in file.data:
        yield f"{name} is an adapter's; a hook file holds only hooks"


def _data_faults(data: Mapping[str, Any]) -> Iterator[str]:
    from gateway.adapters.settings import faults

    for name, value in data.items():
        if value is None:
            continue
        if name in HOOKS:
            yield f"{name} must be a function"
        elif name in _TEXTS and not (isinstance(value, str) and value):
            yield f"{name} must be a text"
        elif name in _CHOICES and value not in _CHOICES[name]:
            yield f"{name} is {value!r}, known: {', '.join(_CHOICES[name])}{suggest(str(value), _CHOICES[name])}"
        elif name in ("options", "thinking") and not isinstance(value, Mapping):
            yield f"{name} must be a table"
        elif name == "models" and not isinstance(value, (list, tuple)):
            yield "models must be a list"
    auth = data.get("auth")
    if isinstance(auth, str) and auth not in ("bearer", "none") and not (auth.startswith("header:") and auth[7:].isascii() and auth[7:].strip()):
        yield f"auth is {auth!r}, known: bearer, none, header:NAME"
    if isinstance(data.get("options") or {}, Mapping) and isinstance(data.get("models") or (), (list, tuple)):
        yield from faults(data.get("options") or {}, data.get("thinking"), data.get("models"))


def _type_fault(default: Any, value: Any) -> str | None:
    """Why a value does not fit an option declared with this default, or None."""
    if default is None or value is None:
        return None
    for kind, name in ((bool, "true or false"), ((int, float), "a number"), (str, "a text"), ((list, tuple), "a list"), (Mapping, "a mapping")):
        if isinstance(default, kind):
            fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            return None if fits else f"must be {name}"
    return None


def _is_adapter(path: Path) -> bool:
    return path.suffix in ENDINGS and not path.name.startswith(("_", ".")) and path.is_file()


def _signature(path: Path) -> Signature:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)
