"""Encodings and fingerprints of released versions never change."""

from __future__ import annotations

import json
from pathlib import Path

from bloomstore.keys import TagCode
from tests.golden import make_keys

ROWS = json.loads(Path(__file__).with_name("keys.json").read_text())


def test_every_golden_key_is_still_encoded_and_hashed_the_same() -> None:
    assert make_keys.problems(ROWS) == []


def test_golden_keys_cover_every_tag_and_are_all_in_the_file() -> None:
    assert {row["tag"] for row in ROWS} == set(TagCode)
    assert [row["key"] for row in ROWS] == make_keys.KEYS
