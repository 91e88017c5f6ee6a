"""Observation of this Python interpreter: whether it was built with optimisations."""

from __future__ import annotations

import sys
import sysconfig
from typing import Final

_OF_THE_SYSTEM: Final = "/usr"
_OPTIMISED: Final = "--enable-optimizations"


def optimised() -> bool | None:
    """Whether the interpreter was built with profile-guided optimisation; None when that is unknown.

    Python reports its configure arguments, but only on POSIX. A Linux distribution's interpreter is optimised by the
    distribution's own build rules, without that argument (Debian's `debian/rules` of python3).
    """
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if not arguments:
        return None
    return _OPTIMISED in arguments or sys.base_prefix == _OF_THE_SYSTEM
