"""Replies to DLedger's own clients at the port of a group's nodes; clients send messages to the broker instead."""

from __future__ import annotations

from typing import Protocol

from tianzhou.records.entry import decode_header
from tianzhou.replication.dledger.ready import Standing
from tianzhou.store.entries.entry_log import EntryLog
from tianzhou.wire.bodies import dledger
from tianzhou.wire.codes import DLedgerResponseCode


class AnsweringNode(Protocol):
    """The node that replies.

    Attributes:
        group: name of the group.
        id: of the node, `n0`.
        standing: role, term and leader now.
    """

    group: str
    id: str
    standing: Standing

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses at which the nodes of the group listen for other nodes, by id."""
        ...

    @property
    def leads(self) -> bool:
        """Whether the node leads and serves."""
        ...


def answer_client(node: AnsweringNode, entries: EntryLog, request: dledger.Request) -> dledger.Response:
    """Return the reply to a request of a client.

    Args:
        node: the node that replies.
        entries: its log.
        request: METADATA, APPEND, GET or PULL.
    """
    code = DLedgerResponseCode.SUCCESS
    response: dledger.Response
    if request.remote_id not in {None, node.id}:
        code = DLedgerResponseCode.UNKNOWN_MEMBER
    elif request.group not in {None, node.group}:
        code = DLedgerResponseCode.UNKNOWN_GROUP
    if isinstance(request, dledger.MetadataRequest):
        response = dledger.MetadataResponse(peers=node.addresses)
    elif isinstance(request, dledger.GetRequest):
        response = dledger.GetResponse()
        if code is DLedgerResponseCode.SUCCESS:
            code = _get(node, entries, request.begin_index, response)
    else:
        response = dledger.AppendResponse() if isinstance(request, dledger.AppendRequest) else dledger.PullResponse()
        code = DLedgerResponseCode.UNSUPPORTED
    response.code, response.group, response.local_id = code, node.group, node.id
    response.leader_id, response.term = node.standing.leader, node.standing.term
    return response


def _get(
    node: AnsweringNode, entries: EntryLog, index: int | None, response: dledger.GetResponse
) -> DLedgerResponseCode:
    if not node.leads:
        return DLedgerResponseCode.NOT_LEADER
    if index is None or not 0 <= entries.begin_index <= index <= entries.committed_index:
        return DLedgerResponseCode.INDEX_OUT_OF_RANGE
    if not entries.is_whole(index):
        return DLedgerResponseCode.DISK_ERROR
    data = entries.entry(index)
    header = decode_header(data)
    entry = dledger.Entry(
        body=data[header.size - header.body_size :], index=header.index, magic=header.magic, pos=header.pos,
        size=header.size, term=header.term,
    )  # fmt: skip
    response.entries = [entry]
    return DLedgerResponseCode.SUCCESS
