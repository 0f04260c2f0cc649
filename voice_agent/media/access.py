"""What lets a caller in besides the operator's key: client secrets, and how often calls may be placed. Sans-IO."""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

SECRET_PREFIX = "ek_"
MAX_SECRETS = 4096
MAX_CALLERS = 4096


class SecretsFull(Exception):
    """As many client secrets as may be valid at once."""


@dataclass(frozen=True)
class ClientSecret:
    """A key for a client's device. `expires_at`: Unix time in seconds. `session`: the configuration of its calls."""

    value: str = field(repr=False)
    expires_at: int
    session: dict[str, Any] | None


class ClientSecrets:
    """The valid secrets. As in the protocol, one places any number of calls until it expires, so that a client can
    reconnect with it; each counts towards the rate of calls.
    """

    def __init__(self) -> None:
        self._secrets: dict[str, ClientSecret] = {}

    def issue(self, session: dict[str, Any] | None, seconds: int, now: float) -> ClientSecret:
        """A new secret. `now`: Unix time. Raises SecretsFull."""
        self._secrets = {value: kept for value, kept in self._secrets.items() if kept.expires_at > now}
        if len(self._secrets) >= MAX_SECRETS:
            raise SecretsFull
        secret = ClientSecret(SECRET_PREFIX + secrets.token_urlsafe(32), int(now) + seconds, session)
        self._secrets[secret.value] = secret
        return secret

    def find(self, value: str, now: float) -> ClientSecret | None:
        """The secret of this value, unless it has expired. `now`: Unix time."""
        secret = self._secrets.get(value)
        return secret if secret is not None and secret.expires_at > now else None


class RateLimit:
    """A token bucket a caller: `per_minute` at once, refilled evenly. The callers not seen for longest are forgotten.

    `per_minute` None: no limit.
    """

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float) -> int | None:
        """Count one try at `now` (seconds, monotonic). None: it may go on; else the seconds to wait, at least 1."""
        if self._per_minute is None:
            return None
        left, since = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - since) * self._per_minute / 60)
        allowed = left >= 1
        self._buckets[caller] = (left - allowed, now)
        while len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return None if allowed else max(1, math.ceil((1 - left) * 60 / self._per_minute))
