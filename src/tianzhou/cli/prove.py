"""`prove`: acknowledged = stored on a majority = consumed, shown on a running cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    counted,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.process import EXIT_FAILED
from tianzhou.cli.progress import progress
from tianzhou.cli.signals import run_client
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.bench.proof.comparison import ProofVerdict
    from tianzhou.bench.proof.run import ProofOutcome, ProofPlan

DEFAULT_COUNT = 1_000
SHOWN = 20
"""Maximum findings of a kind in text output. JSON output contains all of them."""


def prove(
    topic: Annotated[str, typer.Argument(help="The topic; it is made when it is not there.")],
    count: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"Messages to send; default: {DEFAULT_COUNT}.", min=1, max=10_000_000),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", help="Send for so long, whatever is killed meanwhile.", min=0.1)
    ] = None,
    rate: Annotated[
        float, typer.Option(metavar="N", help="Messages a second; 0: as fast as they are acknowledged.")
    ] = 0,
    size: Annotated[int, typer.Option(metavar="BYTES", help="Of a body.", min=1, max=4_000_000)] = 128,
    in_flight: Annotated[int, typer.Option(metavar="N", help="Sends at a time.", min=1, max=10_000)] = 32,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a message is tried before it counts as failed.", min=0.1)
    ] = 30,
    acked: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Send nothing; look for these: KEY [BROKER QUEUE OFFSET] a line."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write such a file while messages are acknowledged.")
    ] = None,
    copies: Annotated[
        int, typer.Option(metavar="N", help="Replicas that each broker name has; default: those seen.", min=0, max=9)
    ] = 0,
    queues: Annotated[int, typer.Option(metavar="N", help="Of a topic that is made.", min=1, max=1024)] = 8,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long replicas and consumers may take afterwards.", min=0)
    ] = 60,
    no_duplicates: Annotated[
        bool, typer.Option("--no-duplicates", help="A message that came twice is a failure.")
    ] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Prove that a cluster loses nothing: what was acknowledged is on a majority of replicas, and consumed.

    It sends, reads the topic at each replica by itself and by a new group, and compares by unique key. Kill brokers
    meanwhile. Ends with 1 when something is lost or differs, and names it.

    Example: tianzhou prove orders --seconds 60 --copies 3
    """
    from tianzhou.bench.proof.load import LoadOrder
    from tianzhou.bench.proof.run import ProofPlan

    if acked is not None and (count is not None or seconds is not None or ledger is not None):
        raise ConfigError("--acked sends nothing, so --count, --seconds and --ledger do not go with it; give one")
    load = None
    if acked is None:
        most = count if count is not None or seconds is not None else DEFAULT_COUNT
        load = LoadOrder(topic, most, seconds, rate, size, in_flight, round(timeout * 1000))
    with ExitStack() as files:
        proof = ProofPlan(
            topic=topic,
            load=load,
            acknowledged=_read(acked) if acked is not None else None,
            queues=queues,
            copies=copies,
            wait_s=wait,
            ledger=files.enter_context(_opened(ledger)) if ledger is not None else None,
        )
        outcome = _run(proof, namesrv, tls, output)
    verdict = outcome.verdict
    failed = not verdict.proven or (no_duplicates and bool(verdict.stored_twice or verdict.consumed_twice))
    if output is Output.json:
        print_json(document(outcome, proven=not failed))
    else:
        _show(outcome, failed=failed)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _run(proof: ProofPlan, namesrv: str, tls: bool | None, output: Output) -> ProofOutcome:
    from tianzhou.bench.proof.run import prove as prove_it

    def announce(text: str) -> None:
        if output is Output.text:
            print_note(text)

    total = proof.load.count if proof.load is not None else None
    with progress("acknowledged", total, worth_it=proof.load is not None) as advance:
        return run_client(prove_it(proof, namesrv, tls, announce=announce, progress=advance))


def _read(path: Path) -> Any:
    from tianzhou.bench.proof.acknowledged import read_lines

    try:
        with path.open(encoding="utf-8") as lines:
            return read_lines(lines, str(path))
    except OSError as error:
        raise ConfigError(f"--acked {path}: {error.strerror}; name a file of unique keys, one a line") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--acked {path}: is no text; name a file of unique keys, one a line") from None


def _opened(path: Path) -> Any:
    try:
        # Buffer only lines, so that the file contains all acknowledged messages even if this process is killed.
        return path.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigError(f"--ledger {path}: {error.strerror}; name a file that can be written") from None


def document(outcome: ProofOutcome, *, proven: bool) -> dict[str, Any]:
    """Return the result for JSON."""
    verdict = outcome.verdict
    return {
        "proven": proven,
        "acknowledged": verdict.acknowledged,
        "on_majority": verdict.on_majority,
        "consumed": verdict.consumed,
        "replicas": [
            {
                "broker": reading.broker,
                "address": reading.address,
                "messages": reading.messages,
                "read_whole": reading.whole,
                "why": reading.why,
            }
            for reading in outcome.readings
        ],
        "lost": [_missed(one) for one in verdict.lost],
        "unproven": [_missed(one) for one in verdict.unproven],
        "not_consumed": list(verdict.not_consumed),
        "differing": [{**one.place._asdict(), "keys": one.keys} for one in verdict.differing],
        "behind": [
            {"broker": one.broker, "address": one.address, "queue_id": one.queue_id, "end": one.end, "of": one.longest}
            for one in verdict.behind
        ],
        "stored_twice": [
            {"key": one.key, "places": [place._asdict() for place in one.places]} for one in verdict.stored_twice
        ],
        "consumed_twice": [{"key": one.key, "times": one.times} for one in verdict.consumed_twice],
        "failed_sends": dict(outcome.failures),
        "sent_seconds": round(outcome.sent_s, 3),
        "notes": outcome.notes,
    }


def _missed(one: Any) -> dict[str, Any]:
    place = one.place._asdict() if one.place is not None else None
    return {"key": one.key, "acknowledged_at": place, "on": list(one.on), "copies": one.copies}


def _show(outcome: ProofOutcome, *, failed: bool) -> None:
    verdict = outcome.verdict
    print_rows(
        ("broker", "address", "messages", "state"),
        [(one.broker, one.address, one.messages, _state(one, verdict)) for one in outcome.readings],
        Output.text,
    )
    for title, found in (
        ("lost", verdict.lost),
        ("not proven, as replicas could not be read", verdict.unproven),
        ("not consumed", verdict.not_consumed),
        ("replicas differ", verdict.differing),
        ("stored more than once", verdict.stored_twice),
        ("consumed more than once", verdict.consumed_twice),
    ):
        for one in found[:SHOWN]:
            print_line(f"{title}: {one}")
        if len(found) > SHOWN:
            print_line(f"{title}: {len(found) - SHOWN} more; -o json has all")
    for reason, times in outcome.failures.most_common(SHOWN):
        print_note(f"failed {counted(times, 'time')}, and never acknowledged: {reason}")
    for note in outcome.notes:
        print_note(f"note: {note}")
    print_line(
        f"{'NOT PROVEN' if failed else 'proven'}: {verdict.acknowledged} acknowledged, {verdict.on_majority} on a "
        f"majority, {verdict.consumed} consumed"
    )


def _state(reading: Any, verdict: ProofVerdict) -> str:
    if not reading.whole:
        return f"not read: {reading.why}" if reading.why else "not read to its end"
    behind = sum(one.longest - one.end for one in verdict.behind if one.address == reading.address)
    return f"{behind} behind" if behind else "whole"
