"""The numbers that users give to a family, checked and brought into one type.

In: anything, out: an int or a float in range. Everything else raises SpecError by the field's name.
"""

from __future__ import annotations

import operator

from bloomstore.errors import SpecError
from bloomstore.layout.layouts import BY_NAME, SCHEMES

# Smallest error a family may be asked for: 2^-40 leaves room for tightening within 64 hashes.
LEAST_ERROR = 1e-12


def check_hashing(layout: object, scheme: object, seed: object) -> None:
    """Refuses a layout and a scheme that do not exist or do not fit, and an impossible seed."""
    if layout is not None and (not isinstance(layout, str) or layout not in BY_NAME):
        raise SpecError(f"layout must be one of {', '.join(BY_NAME)}, got {layout!r}")
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise SpecError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    if layout is not None:
        BY_NAME[layout].check_scheme(SCHEMES[scheme])
    if type(seed) is not int or not 0 <= seed < 1 << 32:
        raise SpecError(f"seed must be an int in 0..2^32-1, got {seed!r}")


def set_whole(spec: object, name: str, least: int) -> int:
    """Makes the field an int of at least `least`, whatever kind of whole number it was."""
    value = getattr(spec, name)
    if isinstance(value, bool):
        raise SpecError(f"{name} must be a whole number, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise SpecError(f"{name} must be a whole number, got {value!r}") from None
    if not least <= number < 1 << 62:
        raise SpecError(f"{name} must be in {least}..2^62, got {number}")
    object.__setattr__(spec, name, number)
    return number


def set_real(spec: object, name: str) -> float:
    """Makes the field a float."""
    value = getattr(spec, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise SpecError(f"{name} must be a number that a float can hold, got a larger") from None
    object.__setattr__(spec, name, number)
    return number


def set_error(spec: object, name: str) -> float:
    """Makes the field a float that can be an error."""
    value = getattr(spec, name)
    error = set_real(spec, name)
    if not LEAST_ERROR <= error < 1.0:
        raise SpecError(f"{name} must be in [{LEAST_ERROR}, 1), got {value!r}")
    return error
