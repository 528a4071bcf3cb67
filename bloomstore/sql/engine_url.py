"""The engine plugin: create_engine("...?plugin=bloomstore&bloomstore_path=filters/").

    bloomstore_path      the store, made if it is missing
    bloomstore_policy    explicit (the default), auto or shadow
    bloomstore_durability   commit or process, for filters that are made here

Guards are found on the tables of the statements that the engine sees. The plugin of an engine is
`plugin_of(engine)`; it answers the sessions of a factory after `plugin_of(engine).listen(Session)`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL, CreateEnginePlugin, Engine

import bloomstore
from bloomstore.errors import SpecError
from bloomstore.sql.attached import PLUGINS
from bloomstore.sql.plugin import BloomPlugin

_NAMES = ("bloomstore_path", "bloomstore_policy", "bloomstore_durability")


class BloomEnginePlugin(CreateEnginePlugin):
    """Named by `plugin=bloomstore` in a URL."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        self._given = {name: url.query.get(name) for name in _NAMES}
        if not isinstance(self._given["bloomstore_path"], str):
            raise SpecError("the URL names plugin=bloomstore and needs bloomstore_path=... once")

    def update_url(self, url: URL) -> URL:
        """The driver never sees the plugin's own parameters."""
        return url.difference_update_query(_NAMES)

    def engine_created(self, engine: Engine) -> None:
        """Opens the store and listens."""
        options: dict[str, Any] = {}
        if self._given["bloomstore_durability"] is not None:
            options["durability"] = self._given["bloomstore_durability"]
        store = bloomstore.open(str(self._given["bloomstore_path"]), **options)
        policy: Any = self._given["bloomstore_policy"] or "explicit"
        plugin = BloomPlugin(store, policy=policy)
        plugin.listen(engine)
        PLUGINS[engine] = plugin


def plugin_of(engine: Engine) -> BloomPlugin:
    """The plugin that the engine's URL has named. Raises SpecError if it has named none."""
    try:
        plugin: BloomPlugin = PLUGINS[getattr(engine, "sync_engine", engine)]
    except KeyError:
        raise SpecError(f"the URL of {engine} does not name plugin=bloomstore") from None
    return plugin
