"""A look at this Python: whether it was built to be as fast as it can be."""

from __future__ import annotations

import sys
import sysconfig
from typing import Final

_OF_THE_SYSTEM: Final = "/usr"
_OPTIMISED: Final = "--enable-optimizations"


def optimised() -> bool | None:
    """Whether the interpreter was built with profile-guided optimisation; None when nothing is known of that.

    It says by which arguments it was configured, elsewhere than on POSIX nothing. What a Linux distribution brings is
    optimised by rules of its own, without that argument (Debian's `debian/rules` of python3).
    """
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if not arguments:
        return None
    return _OPTIMISED in arguments or sys.base_prefix == _OF_THE_SYSTEM
