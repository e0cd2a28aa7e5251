"""Generated item sources: their lines, and the chunks in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from hypothesis import strategies as st

from drumline.sweep_items.reader import Items

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12)
LINES = st.lists(LINE, min_size=1, max_size=60)


def chunks_of(content: bytes, cuts: list[int]) -> Callable[[int], Iterator[bytes]]:
    """A source that starts at any offset, cut at the given places, even inside a character."""

    def source(offset: int) -> Iterator[bytes]:
        edges = sorted({offset, len(content), *(cut for cut in cuts if cut > offset)})
        for low, high in pairwise(edges):
            yield content[low:high]

    return source


def read_all(found: Items) -> list[str]:
    return found.read(0, found.total)
