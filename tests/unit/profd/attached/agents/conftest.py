"""A registry behind a socket, for all tests of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.agent_server import Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as found:
        yield found
