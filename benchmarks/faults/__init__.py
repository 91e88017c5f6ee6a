"""The parts of `failover.py`: members and links as processes, load that notes acknowledgements, checks.

`seeds.py` runs many seeds of the simulations.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]
