"""Queries that list the newest rows first, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drumline.command_layer.base import QueryCommand
from drumline.command_layer.fields import Id, Limit


class PageQuery(QueryCommand, frozen=True, kw_only=True):
    """A query for a page of rows."""

    before: Id | None = None
    """Only rows with a smaller id: the `next` of the previous page."""
    limit: Limit = 50
    """The size of a page."""

    def next_page(self, rows: Sequence[Any]) -> int | None:
        """The `before` of the next page; None if this page is not full."""
        return rows[-1].id if len(rows) == self.limit else None
