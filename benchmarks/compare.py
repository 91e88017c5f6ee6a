#!/usr/bin/env python3
"""Side by side: Apache RocketMQ's broker 5.3.3 and Tianzhou's under one load tool, in turn, on the same cores and disk.

    .venv/bin/python benchmarks/compare.py --lines put64x1,put8x32 --rounds 3

Needs gcc, Java and Maven (Apache's jars come from Maven into the tests' cache). Each round starts each server anew,
warms it, and runs every line; what is printed is the median over the rounds, CPU microseconds per message of the
broker, and the ratio Tianzhou to Apache. `--only tianzhou` measures one side alone, which proves nothing but is quick.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop"))

LINES = {
    "put1x1": "-c 1 -w 1",
    "put64x1": "-c 64 -w 1",
    "put8x32": "-c 8 -w 32",
    "put1x256": "-c 1 -w 256",
    "batch8x4": "-m batch -n 32 -c 8 -w 4",
    "pull1x1": "-m pull -n 32 -c 1 -w 1",
    "pull8x1": "-m pull -n 32 -c 8 -w 1",
    "pull8x4": "-m pull -n 32 -c 8 -w 4",
    "e2e10k": "-m e2e -r 10000",
}
NAMESRV_PORT, BROKER_PORT = 33876, 33911
HEAP = "4g"
JAVA_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class Server:
    """A name server and a broker, Apache's or ours, on a fresh store.

    Args:
        kind: `apache` or `tianzhou`.
        work: scratch folder.
        flush: `async` or `sync`.
    """

    def __init__(self, kind: str, work: Path, flush: str) -> None:
        self.work = work / kind
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        (self.work / "namesrv.conf").write_text(f"listenPort={NAMESRV_PORT}\n")
        (self.work / "broker.conf").write_text(
            "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\nbrokerIP1=127.0.0.1\n"
            f"listenPort={BROKER_PORT}\nnamesrvAddr=127.0.0.1:{NAMESRV_PORT}\n"
            f"storePathRootDir={self.work}/store\nstorePathCommitLog={self.work}/store/commitlog\n"
            f"flushDiskType={flush.upper()}_FLUSH\nautoCreateTopicEnable=true\n"
        )
        namesrv, broker, extra = self._commands(kind)
        self._log = (self.work / "out.log").open("w")
        env = {**os.environ, **extra}
        self._namesrv = subprocess.Popen(namesrv, stdout=self._log, stderr=self._log, env=env)
        wait_port(NAMESRV_PORT, self._namesrv)
        began = time.monotonic()
        self._broker = subprocess.Popen(broker, stdout=self._log, stderr=self._log, env=env)
        wait_port(BROKER_PORT, self._broker)
        self.start_s = time.monotonic() - began
        time.sleep(2)  # both settle: registration, heap, page population
        self.idle_anon_mb = self.anon_mb()

    def _commands(self, kind: str) -> tuple[list[str], list[str], dict[str, str]]:
        namesrv_conf, broker_conf = str(self.work / "namesrv.conf"), str(self.work / "broker.conf")
        if kind == "tianzhou":
            program = [sys.executable, "-m", "tianzhou"]
            return [*program, "namesrv", "-c", namesrv_conf], [*program, "broker", "-c", broker_conf], {}
        from toolchain import server_classpath

        java = ["java", *JAVA_OPENS, f"-Duser.home={self.work}", "-cp", server_classpath()]
        small, large = ["-Xms256m", "-Xmx256m"], [f"-Xms{HEAP}", f"-Xmx{HEAP}"]
        return (
            [*java[:1], *small, *java[1:], "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", namesrv_conf],
            [*java[:1], *large, *java[1:], "org.apache.rocketmq.broker.BrokerStartup", "-c", broker_conf],
            {"ROCKETMQ_HOME": str(self.work)},
        )

    def cpu_s(self) -> float:
        """User and system seconds the broker has used."""
        fields = Path(f"/proc/{self._broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def anon_mb(self) -> float:
        """Anonymous resident memory of the broker."""
        for line in Path(f"/proc/{self._broker.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self) -> None:
        """End both processes and remove the store."""
        for process in (self._broker, self._namesrv):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (self._broker, self._namesrv):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.close()
        shutil.rmtree(self.work / "store", ignore_errors=True)


def wait_port(port: int, process: subprocess.Popen[bytes], limit_s: float = 60) -> None:
    """Return once something accepts connections on the port."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}; see out.log in the scratch folder")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    sys.exit(f"port {port} not open after {limit_s} s")


def build_loadgen(work: Path) -> Path:
    """Compile the load tool."""
    program = work / "loadgen"
    subprocess.run(["gcc", "-O2", "-o", str(program), str(HERE / "loadgen.c")], check=True)
    return program


def load(program: Path, arguments: str, seconds: int) -> dict[str, float]:
    """Run the load tool once; returns its figures."""
    run = subprocess.run(
        [str(program), "-p", str(BROKER_PORT), *arguments.split(), "-t", str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + 30,
        check=False,
    )
    figures: dict[str, float] = json.loads(run.stdout.strip().splitlines()[-1])
    if figures["bad"]:
        print(f"{arguments}: {figures['bad']} bad replies: {run.stderr[:300]}", file=sys.stderr)
    return figures


def measure(kind: str, arguments: argparse.Namespace, work: Path, program: Path) -> dict[str, float]:
    """One round of one server: figures by `line.name`."""
    figures: dict[str, float] = {}
    server = Server(kind, work, arguments.flush)
    try:
        load(program, "-c 64 -w 1", arguments.warm)
        figures["start_s"], figures["idle_anon_mb"] = server.start_s, server.idle_anon_mb
        for line in arguments.lines.split(","):
            cpu, began = server.cpu_s(), time.monotonic()
            result = load(program, LINES[line], arguments.secs)
            elapsed = time.monotonic() - began
            messages = max(1, result["msgs"] * arguments.secs)
            figures[f"{line}.msgs_per_s"] = result["msgs"]
            figures[f"{line}.p50_us"], figures[f"{line}.p99_us"] = result["p50_us"], result["p99_us"]
            figures[f"{line}.cpu_us_per_msg"] = (server.cpu_s() - cpu) * 1e6 / messages * arguments.secs / elapsed
        figures["anon_after_mb"] = server.anon_mb()
    finally:
        server.stop()
    return figures


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--secs", type=int, default=6, help="seconds per line")
    parser.add_argument("--warm", type=int, default=12, help="seconds of warm-up per server")
    parser.add_argument("--lines", default=",".join(LINES), help="comma list of " + ", ".join(LINES))
    parser.add_argument("--only", choices=["apache", "tianzhou"])
    parser.add_argument("--flush", default="async", choices=["async", "sync"])
    parser.add_argument("--work", type=Path, help="scratch folder; default: a temporary one")
    parser.add_argument("--json", type=Path, help="write the medians here")
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else ["apache", "tianzhou"]
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        program = build_loadgen(work)
        for number in range(arguments.rounds):
            for kind in kinds:
                rounds[kind].append(measure(kind, arguments, work, program))
                print(f"round {number + 1} of {arguments.rounds}: {kind} done", file=sys.stderr)
    medians = {k: {name: statistics.median(r[name] for r in rs) for name in rs[0]} for k, rs in rounds.items()}
    print("".join(f"{text:>16}" for text in ["", *kinds, "ratio"][1:]).rjust(24 + 16 * (len(kinds) + 1)))
    for name in medians[kinds[0]]:
        cells = "".join(f"{medians[kind][name]:>16.2f}" for kind in kinds)
        ratio = ""
        if len(kinds) == 2 and medians["apache"][name]:
            ratio = f"{medians['tianzhou'][name] / medians['apache'][name]:>15.2f}x"
        print(f"{name:24s}{cells}{ratio}")
    if arguments.json:
        arguments.json.write_text(json.dumps(medians, indent=1) + "\n")


if __name__ == "__main__":
    main()
