"""The consumer groups of a run: created before it, and deleted after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from tianzhou.admin import Admin
from tianzhou.client.consumer.push.options import BROKER_SUSPEND_MS
from tianzhou.errors import TianzhouError
from tianzhou.wire.codes import LanguageCode, RequestCode
from tianzhou.wire.command import Command

FORGET_LIMIT_S = 1.0
HELD_LOOK_S = 5.0
"""Interval in seconds at which Apache's broker checks held pulls for their timeout."""
HELD_LIMIT_S = BROKER_SUSPEND_MS / 1000 + HELD_LOOK_S + 1.0
"""Seconds after its consumers have left in which a held pull may create a group again."""


class RunGroups:
    """Groups that must not exist after the run.

    Apache's broker holds a pull whose client has disconnected. It executes the pull at its timeout, and then creates
    the deleted group again. Tianzhou's broker ends held pulls with their connection.

    Args:
        names: names of the groups.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._again_at_s: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds in which a broker may still create the groups again; 0 if none can."""
        return 0.0 if self._again_at_s is None else max(0.0, self._again_at_s - time.monotonic())

    async def make(self, admin: Admin) -> None:
        """Create the groups.

        Raises:
            TianzhouError: a broker cannot be reached, or rejects a request.
        """
        for name in self.names:
            await admin.groups.create(name)

    async def forget(self, admin: Admin) -> str:
        """Delete the groups. Their consumers must have left.

        Returns:
            The reason why some could not be deleted; empty if all were.
        """
        try:
            async with asyncio.timeout(FORGET_LIMIT_S):
                keeps = await asyncio.gather(
                    *(_keeps_pulls(admin, address) for address in (await admin.cluster.masters()).values())
                )
                self._again_at_s = time.monotonic() + HELD_LIMIT_S if any(keeps) else None
                await asyncio.gather(*map(admin.groups.delete, self.names))
        except (TianzhouError, TimeoutError) as error:
            return str(error) or f"no answer within {FORGET_LIMIT_S:g} s"
        return ""

    async def forget_again(self, namesrv: str, tls: bool | None) -> str:
        """Delete the groups once more, after the last held pull has ended.

        Args:
            namesrv: the name servers.
            tls: see `ClientInstance`.

        Returns:
            As `forget`.
        """
        await asyncio.sleep(self.left_s)
        try:
            async with Admin(namesrv, tls=tls) as admin:
                return await self.forget(admin)
        except TianzhouError as error:
            return str(error)
        finally:
            self._again_at_s = None


async def _keeps_pulls(admin: Admin, address: str) -> bool:
    reply = await admin.instance.remoting.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    return reply.language == LanguageCode.JAVA
