"""Limits of senders by account: the account that has signed counts, and only administrators change limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tianzhou import Message, Producer
from tianzhou.admin import Admin
from tianzhou.embedded import EmbeddedServer, EmbeddedSettings
from tianzhou.errors import BrokerError
from tianzhou.model.send_limit import LimitScope, limit_of
from tianzhou.wire.codes import ResponseCode

ACCOUNTS = """accounts:
- {accessKey: administrator, secretKey: admin-secret, admin: true}
- {accessKey: storefront, secretKey: storefront-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}
- {accessKey: warehouse, secretKey: warehouse-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}
"""


def keys(name: str) -> dict[str, Any]:
    return {"access_key": name, "secret_key": f"{'admin' if name == 'administrator' else name}-secret"}


async def accepted(namesrv: str, name: str, count: int) -> int:
    """Return the number of an account's `count` sends that the broker accepts."""
    refused: list[BrokerError] = []
    async with Producer(f"group-of-{name}", namesrv, retry_times_when_send_failed=0, **keys(name)) as producer:
        for _ in range(count):
            try:
                await producer.send(Message("orders", b"x"))
            except BrokerError as error:
                refused.append(error)
    assert all(error.code == ResponseCode.SYSTEM_BUSY and f"client {name}" in error.remark for error in refused)
    return count - len(refused)


async def test_an_account_has_its_own_limit(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    file.chmod(0o600)
    settings = EmbeddedSettings(tmp_path, namesrv_port=0, broker_port=0, values={"aclEnable": "true"})
    async with EmbeddedServer(settings) as server, Admin(server.namesrv_address, **keys("administrator")) as admin:
        namesrv = server.namesrv_address
        assert await accepted(namesrv, "storefront", 10) == 10
        for limit in (limit_of(LimitScope.CLIENT, "storefront", 0.01, 3), limit_of(LimitScope.CLIENT, "*", 0.01, 5)):
            await admin.send_limits.set(limit)
        assert await accepted(namesrv, "storefront", 10) == 3
        assert await accepted(namesrv, "warehouse", 10) == 5
        assert [(one.limit.name, one.refused) for one in await admin.send_limits.list()] == [
            ("*", 5),
            ("storefront", 7),
        ]
        async with Admin(namesrv, **keys("storefront")) as storefront:
            with pytest.raises(BrokerError) as refused:
                await storefront.send_limits.set(limit_of(LimitScope.CLIENT, "storefront", 1_000))
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
            with pytest.raises(BrokerError):
                await storefront.send_limits.delete(LimitScope.CLIENT, "storefront")
        assert await accepted(namesrv, "storefront", 10) == 0
