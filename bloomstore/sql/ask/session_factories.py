"""The changes that a plugin makes in session factories to listen to them, and their reversal.

Several plugins may listen to one factory, and cease in any order. Its sessions ask the plugin that
began last. Each plugin undoes only its own changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import Session, sessionmaker

from bloomstore.errors import SpecError
from bloomstore.sql.ask.asker import Asker
from bloomstore.sql.ask.session import GuardedSession
from bloomstore.sql.attached import ASKER, OWN_CLASS
from bloomstore.sql.listeners import Listeners


def listen_to_sessions(target: Any, asker: Asker, listeners: Listeners) -> None:
    """Lets a session, or those of a factory, ask the plugin from now on. Raises SpecError."""
    if not isinstance(target, (async_sessionmaker, sessionmaker, Session)):
        raise SpecError(f"listen to an engine, a session factory or a session, got {target!r}")
    heard: Any = target  # where the event listeners are registered
    sessions = getattr(target, "class_", target)
    kind = sessions if isinstance(sessions, type) else type(sessions)
    if issubclass(kind, ShardedSession):
        raise SpecError(f"{kind.__name__} asks several databases: a plugin serves one")
    tells: Any = tell_session if isinstance(target, Session) else tell
    listeners.undo_later(tells(target, asker))
    if isinstance(target, async_sessionmaker):
        heard, undo = own_session_class(target, asker)
        kind = heard
        listeners.undo_later(undo)
    names = ["after_begin", "after_transaction_end"]
    if not issubclass(kind, GuardedSession) or asker.policy != "explicit":
        names.append("do_orm_execute")
    for name in names:
        listeners.add(heard, name, getattr(asker, name))


def own_session_class(
    factory: async_sessionmaker[Any], asker: Asker
) -> tuple[type[Session], Callable[[], None]]:
    """Gives a factory of async sessions a class of sync sessions of its own, for its events."""
    before = factory.kw.get("sync_session_class")
    base = _base_of(before)
    own = type("GuardedSync", (base or Session,), {OWN_CLASS: (asker, base)})
    factory.configure(sync_session_class=own)

    def undo() -> None:
        if factory.kw.get("sync_session_class") is not own:
            return  # another plugin has made its own since
        left = before if _listens(getattr(before, OWN_CLASS, (None,))[0]) else base
        factory.kw["sync_session_class"] = left
        if left is None:
            del factory.kw["sync_session_class"]

    return own, undo


def _base_of(kind: type[Session] | None) -> type[Session] | None:
    """The class that the application has given to the factory."""
    base: type[Session] | None = getattr(kind, OWN_CLASS, (None, kind))[1]
    return base


def tell(factory: Any, asker: Asker) -> Callable[[], None]:
    """Attaches the asker to all sessions that the factory makes from now on."""
    before = (factory.kw.get("info") or {}).get(ASKER)
    factory.configure(info={**(factory.kw.get("info") or {}), ASKER: asker})

    def undo() -> None:
        info = dict(factory.kw.get("info") or {})
        _leave(info, asker, before)
        factory.kw["info"] = info
        if not info:
            del factory.kw["info"]

    return undo


def tell_session(session: Session, asker: Asker) -> Callable[[], None]:
    """Attaches the asker to this session."""
    before = session.info.get(ASKER)
    session.info[ASKER] = asker
    return lambda: _leave(session.info, asker, before)


def _leave(info: dict[Any, Any], asker: Asker, before: Asker | None) -> None:
    if info.get(ASKER) is asker:
        del info[ASKER]
        if _listens(before):
            info[ASKER] = before


def _listens(asker: Asker | None) -> bool:
    return asker is not None and asker.eligibility.listening is not None
