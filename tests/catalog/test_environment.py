"""The catalog has the data format of LMDB 0.9, whatever py-lmdb would choose by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

import bloomstore
from bloomstore import Scalable
from bloomstore.catalog import environment
from bloomstore.errors import DamagedFile, StoreFailed, UnsupportedVersion

SPEC = Scalable(target_error=0.01)


def test_another_default_of_py_lmdb_changes_nothing(path: Path) -> None:
    code = f"""
import bloomstore
from bloomstore import Scalable
for _ in range(2):
    with bloomstore.open({str(path)!r}) as store:
        store.ensure("seen", Scalable(target_error=0.01)).add("key")
"""
    settings = os.environ | {"LMDB_DEFAULT_LIB_VERSION": "1"}
    subprocess.run([sys.executable, "-c", code], env=settings, check=True)
    with bloomstore.open(path) as store:
        assert "key" in store["seen"]
        assert store["seen"].state.is_sound


@pytest.mark.parametrize("read_only", [True, False])
def test_a_catalog_of_lmdb_1_is_refused_by_its_name(path: Path, read_only: bool) -> None:
    bloomstore.open(path).close()
    shutil.rmtree(path / "catalog")
    with lmdb.open(str(path / "catalog"), max_dbs=8, lib_version=1) as newer:
        newer.open_db(b"store")
    with pytest.raises(UnsupportedVersion, match=r"3 that of LMDB 1\.0: 3, this library reads"):
        bloomstore.open(path, read_only=read_only)


def test_another_version_in_a_meta_page_is_damage(path: Path) -> None:
    bloomstore.open(path).close()
    data = bytearray((path / "catalog" / "data.mdb").read_bytes())
    data[20] = 2
    (path / "catalog" / "data.mdb").write_bytes(data)
    with pytest.raises(DamagedFile, match="the meta page makes no sense"):
        bloomstore.open(path)


def test_a_build_of_py_lmdb_without_that_format_is_told(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bloomstore.open(path).close()
    monkeypatch.setattr(environment, "ENGINE", 7)
    with pytest.raises(StoreFailed, match="this build of py-lmdb has none"):
        bloomstore.open(tmp_path / "new")
    with pytest.raises(StoreFailed, match="no LMDB 7"):
        bloomstore.open(path)


@pytest.mark.parametrize("damage", [b"\0" * 8192, b"", None])
def test_a_damaged_catalog_says_what_to_do(path: Path, damage: bytes | None) -> None:
    bloomstore.open(path).close()
    data = path / "catalog" / "data.mdb"
    data.write_bytes(data.read_bytes()[:-1] if damage is None else damage)
    with pytest.raises(DamagedFile, match="; put the store's folder back from a backup, or") as it:
        bloomstore.open(path)
    assert str(it.value).endswith("make the store anew and rebuild its filters from their sources")
    assert "backup" not in it.value.what
