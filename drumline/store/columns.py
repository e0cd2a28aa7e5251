"""Column types per database, and the options that all tables share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.types import TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Blob = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
Document = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
Word = String(32, collation=None).with_variant(
    mysql.VARCHAR(32, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
Name = String(128).with_variant(
    mysql.VARCHAR(128, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


class Choice(TypeDecorator[Any]):
    """A word that is read as a member of an enum.

    A word that this version does not know, written by a newer version, is read as it is.
    """

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind
        self._members = _Members({member.value: member for member in kind})

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Word.dialect_impl(dialect))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return self._members.__getitem__


class _Members(dict[Any, Any]):
    """Members of an enum by their words. A lookup costs less than a call of a function."""

    def __missing__(self, word: Any) -> Any:
        return word


def table(name: str, *columns: object) -> Table:
    return Table(
        name,
        metadata,
        *columns,  # type: ignore[arg-type]
        # Ids are never reused, so a late message cannot name a row other than its own.
        sqlite_autoincrement=any(getattr(c, "autoincrement", None) is True for c in columns),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def zero(name: str, kind: type[Integer]) -> Column[int]:
    """Zero by default. Omitting defaulted columns makes bulk inserts about a third faster."""
    return Column(name, kind, nullable=False, server_default="0")


def index_if_set(name: str, first: str, *others: str, unique: bool = False) -> Index:
    """An index of the rows whose first column is set. On SQLite the other rows are left out."""
    return Index(name, first, *others, unique=unique, sqlite_where=text(f"{first} IS NOT NULL"))
