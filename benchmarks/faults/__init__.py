"""The parts of `failover.py`: members and links as processes, load that writes down what was acknowledged, checks."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "interop")]
