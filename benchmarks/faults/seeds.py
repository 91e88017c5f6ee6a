"""Run many seeds of the simulations in one process, note each chunk in a file, and skip the chunks of earlier runs.

    nice -n 19 .venv/bin/python benchmarks/faults/seeds.py --simulations core,folders --seeds 10000 --json seeds.jsonl

`core` is the simulation of the Raft core (tests/unit/replication/dledger). Each other name is a scenario of
`tianzhou simulate`. The simulations take turns, one chunk of seeds each, so all of them have run seeds when the
process is ended early. After each chunk a line gives the number of seeds and failures. The exit code is 1 when a seed
has failed, in this run or in an earlier run of the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = "core"
CHUNK = 25
"""Number of seeds of a chunk."""


@dataclass
class Chunk:
    """A range of seeds that have run.

    Attributes:
        simulation: name of the simulation.
        begin: the first seed.
        end: the seed behind the last one.
        seconds: time of all seeds together.
        failed: reason of each failure, by seed.
    """

    simulation: str
    begin: int
    end: int
    seconds: float
    failed: dict[str, str] = field(default_factory=dict)


def core(seed: int) -> str:
    """Run a story of the Raft core; return why it failed, or an empty text."""
    from group_story import story  # of the tests

    try:
        story(seed).run()
    except Exception as error:  # noqa: BLE001 - the error is the finding, and other seeds follow
        return f"{type(error).__name__}: {error}"
    return ""


def cluster(scenario: str, seed: int) -> str:
    """Run a seed of a scenario; return why it failed, or an empty text."""
    from tianzhou.testing.simulation.run import run

    verdict = run(scenario, seed)
    return "; ".join(f"{one.checker}: {one.text}" for one in verdict.problems[:3])


def runner(simulation: str) -> Callable[[int], str]:
    """Return the function that runs a seed of a simulation."""
    return core if simulation == CORE else lambda seed: cluster(simulation, seed)


def read(path: Path) -> list[Chunk]:
    """Return the chunks of earlier runs. An incomplete last line is skipped."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Chunk(**json.loads(line)) for line in lines if line.endswith("}")]


def left(simulation: str, first: int, seeds: int, known: list[Chunk]) -> Iterator[range]:
    """Yield the chunks that are not in `known`."""
    done = {chunk.begin for chunk in known if chunk.simulation == simulation}
    for begin in range(first, first + seeds, CHUNK):
        if begin not in done:
            yield range(begin, min(begin + CHUNK, first + seeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", default="core,folders", help="names, with commas between")
    parser.add_argument("--seeds", type=int, default=10_000, help="of each simulation")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--json", type=Path, required=True, help="file that gets a line for each chunk")
    options = parser.parse_args()
    sys.path += [str(ROOT / "src"), str(ROOT / "tests/unit/replication/dledger")]
    known = read(options.json)
    names = options.simulations.split(",")
    turns = {name: left(name, options.first, options.seeds, known) for name in names}
    while turns:
        for name in list(turns):
            seeds = next(turns[name], None)
            if seeds is None:
                del turns[name]
                continue
            began_s, run = time.perf_counter(), runner(name)
            failed = {str(seed): why for seed in seeds if (why := run(seed))}
            chunk = Chunk(name, seeds.start, seeds.stop, round(time.perf_counter() - began_s, 2), failed)
            known.append(chunk)
            with options.json.open("a") as file:
                file.write(json.dumps(asdict(chunk)) + "\n")
            for seed, why in failed.items():
                print(f"FAILED {name} {seed}: {why}", flush=True)
            print(summary(name, known), flush=True)
    return 1 if any(chunk.failed for chunk in known if chunk.simulation in names) else 0


def summary(simulation: str, known: list[Chunk]) -> str:
    """Return the progress line of a simulation."""
    mine = [chunk for chunk in known if chunk.simulation == simulation]
    done, failed = sum(chunk.end - chunk.begin for chunk in mine), sum(len(chunk.failed) for chunk in mine)
    seconds = sum(chunk.seconds for chunk in mine)
    return f"{simulation}: {done} seeds, {failed} failed, {seconds / max(done, 1):.2f} s a seed"


if __name__ == "__main__":
    sys.exit(main())
