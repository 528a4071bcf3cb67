"""What pyproject.toml cannot say: the compiled kernels may fail to build, and migrations/ moves in.

Without a compiler the package installs all the same and runs on the numpy kernels. With
BLOOMSTORE_REQUIRE_COMPILED=1 a failure to build them is an error (wheels are built so).
No flag depends on this machine's processor: a wheel must run on others.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup

REQUIRED = os.environ.get("BLOOMSTORE_REQUIRE_COMPILED") == "1"
SOURCE = "bloomstore/kernels/compiled.pyx"
KERNELS = Path("bloomstore/kernels")
HEADERS = sorted(map(str, [*KERNELS.glob("c/*.h"), *KERNELS.glob("*.pxi")]))


def extensions() -> list[Extension]:
    """The extension, or nothing when Cython is missing and nobody insists."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        if REQUIRED:
            raise
        return []
    is_posix = os.name == "posix"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
    kernels = Extension(
        "bloomstore.kernels.compiled",
        [SOURCE],
        include_dirs=["bloomstore/kernels/c"],
        depends=[SOURCE, *HEADERS],  # also what puts them into the source distribution
        extra_compile_args=["-O3", "-pthread", *warnings] if is_posix else ["/O2"],
        extra_link_args=["-pthread"] if is_posix else [],
    )
    made: list[Extension] = cythonize([kernels], build_dir="build/kernels")
    for extension in made:  # cythonize makes new objects and forgets this
        extension.optional = not REQUIRED
    return made


setup(
    ext_modules=extensions(),
    packages=[
        *find_packages(include=["bloomstore", "bloomstore.*"]),
        "bloomstore.migrations",
        "bloomstore.migrations.versions",
    ],
    package_dir={"bloomstore.migrations": "migrations"},
)
