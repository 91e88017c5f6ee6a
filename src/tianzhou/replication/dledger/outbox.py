"""The decisions that a member collects until `ready` returns them."""

from __future__ import annotations

from tianzhou.replication.dledger.ready import (
    Append,
    CommittedEnd,
    Cut,
    HardState,
    Keep,
    NodeAnswer,
    Ready,
    RequestToSend,
    Standing,
)


class ReadyBuilder:
    """Parts of the next `Ready`; the attributes are its attributes."""

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.cut: Cut | None = None
        self.append: Append | None = None
        self.committed: CommittedEnd | None = None
        self.standing: Standing | None = None
        self.open_term = False
        self.recovered = False
        self.sends: list[RequestToSend] = []
        self.answers: list[NodeAnswer] = []
        self.complaints: list[str] = []
        self.keep: Keep | None = None

    @property
    def filled(self) -> bool:
        """Whether there are decisions."""
        return bool(
            self.sends or self.answers or self.hard_state or self.cut or self.append or self.committed or self.standing
            or self.open_term or self.recovered or self.complaints or self.keep
        )  # fmt: skip

    @property
    def changes_log(self) -> bool:
        """Whether decisions that change the log wait for execution."""
        return self.cut is not None or self.append is not None

    def take(self) -> Ready:
        """Return all decisions, and clear the outbox."""
        taken = Ready(
            self.hard_state, self.cut, self.append, self.committed, self.standing, self.open_term, self.recovered,
            tuple(self.sends), tuple(self.answers), tuple(self.complaints), self.keep,
        )  # fmt: skip
        self.__init__()  # type: ignore[misc]
        return taken
