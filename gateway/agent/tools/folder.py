"""Search in a folder of text files: the backend `local` of web_search."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = frozenset((".txt", ".md", ".markdown", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".log", ".html", ".htm"))
MAX_FILES = 2000
MAX_FILE = 1024 * 1024
MAX_ALL = 32 * 1024 * 1024
"""bytes that one search reads"""
PASSAGE = 1200
"""characters of a passage at most"""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_HEADING = re.compile(r"^#{1,6}\s+(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph of a file: `name` is the file's path in the folder, `title` its first heading, or the name."""

    name: str
    title: str
    text: str


def words(text: str) -> list[str]:
    """The words of a text in lower case, without the commonest endings; Chinese, Japanese and Korean in pairs of signs."""
    out: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if "\u3040" <= word[0] <= "\ud7af":
            out += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        else:
            out.append(_stem(word))
    return out


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def search(folder: Path, query: str, most: int) -> list[Passage]:
    """The best passage of each of the `most` best files, best first; none where no word of the query occurs.

    Words that few passages hold count more, long passages less (BM25).
    """
    wanted = set(words(query))
    passages = [(one, Counter(words(f"{one.title} {one.text}"))) for one in _passages(folder)]
    if not wanted or not passages:
        return []
    holding = {word: sum(word in counts for _, counts in passages) for word in wanted}
    lengths = [sum(counts.values()) for _, counts in passages]
    mean = max(1.0, sum(lengths) / len(lengths))
    best: dict[str, tuple[float, Passage]] = {}
    for (passage, counts), length in zip(passages, lengths, strict=True):
        score = sum(_weight(counts[word], holding[word], len(passages), length / mean) for word in wanted if counts[word])
        if score > 0 and score > best.get(passage.name, (0.0, passage))[0]:
            best[passage.name] = (score, passage)
    ranked = sorted(best.values(), key=lambda found: (-found[0], found[1].name))
    return [passage for _, passage in ranked[:most]]


def _weight(count: int, holding: int, passages: int, length: float) -> float:
    rarity = math.log(1 + (passages - holding + 0.5) / (holding + 0.5))
    return rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))


def excerpt(text: str, query: str, size: int) -> str:
    """At most `size` characters of a text, around the first word of the query, on one line."""
    line = " ".join(text.split())
    if len(line) <= size:
        return line
    wanted = set(words(query))
    at = next((match.start() for match in _WORD.finditer(line) if wanted & set(words(match[0]))), 0)
    room = size - 6
    begin = min(max(0, at - room // 3), len(line) - room)
    return f"{'...' if begin else ''}{line[begin : begin + room]}{'...' if begin + room < len(line) else ''}"


def _passages(folder: Path) -> Iterator[Passage]:
    left = MAX_ALL
    for path in _files(folder):
        try:
            with path.open("rb") as file:
                raw = file.read(min(MAX_FILE, left))
        except OSError:
            continue  # gone, or not ours to read: the other files are still worth searching
        left -= len(raw)
        text, name = raw.decode("utf-8", "replace"), path.relative_to(folder).as_posix()
        heading = _HEADING.search(text)
        title = heading[1].strip()[:200] if heading else name
        for part in _parts(text):
            yield Passage(name, title, part)
        if left <= 0:
            return


def _parts(text: str) -> Iterator[str]:
    """Paragraphs; a heading goes with what follows it, a long paragraph comes in pieces."""
    before = ""
    for paragraph in _PARAGRAPHS.split(text):
        part = f"{before}{paragraph}".strip()
        before = ""
        if part.startswith("#") and "\n" not in part:
            before = part + "\n"
            continue
        for at in range(0, len(part), PASSAGE):
            yield part[at : at + PASSAGE]
    if before:
        yield before.strip()


def _files(folder: Path) -> Iterator[Path]:
    """The text files of a folder and those below it in a fixed order; hidden ones and links that lead elsewhere are left out."""
    root, count = folder.resolve(), 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES or not path.resolve().is_relative_to(root) or not path.is_file():
                continue
            yield path
            count += 1
            if count >= MAX_FILES:
                return
