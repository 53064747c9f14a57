"""schemathesis, with all its default checks, finds nothing in what /openapi.json promises."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.failures import FailureGroup

from softipu.devices.controller import Controller, PartitionRequest
from softipu.vipu.server import make_app

KEY = "schemathesis-key"
FOLDER = tempfile.TemporaryDirectory(prefix="softipu-openapi-")
COUNT = itertools.count()


def new_controller() -> Controller:
    """With things in it, so that not every request ends in a 404."""
    made = Controller(Path(FOLDER.name) / f"{next(COUNT)}.sqlite", system="bow-pod16")
    made.create_partition(PartitionRequest("p1", 4, num_gcds=2))
    made.create_cluster("half", ["ag0", "ag1"])
    return made


CONTROLLER = new_controller()
OPEN = schemathesis.openapi.from_asgi("/openapi.json", make_app(CONTROLLER))
HEADERS = {"Authorization": f"Bearer {KEY}"}
KEYED = schemathesis.openapi.from_asgi(
    "/openapi.json", make_app(CONTROLLER, access_key=KEY), headers=HEADERS
)
BOUNDED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    yield
    CONTROLLER.close()
    FOLDER.cleanup()


async def careless(scope, receive, send):
    """The same server, but it takes for good what it should refuse."""

    async def pleased(message):
        if message["type"] == "http.response.start" and message["status"] == 422:
            message = {**message, "status": 201}
        await send(message)

    await make_app(CONTROLLER)(scope, receive, pleased)


def test_the_checks_would_notice_a_careless_server():
    schema = schemathesis.openapi.from_asgi("/openapi.json", careless)
    negative = schema["/api/v1/partitions"]["POST"].as_strategy(
        generation_mode=schemathesis.GenerationMode.NEGATIVE
    )

    @settings(BOUNDED, max_examples=5)
    @given(case=negative)
    def call(case):
        case.call_and_validate()

    with pytest.raises(FailureGroup, match="violates schema|should have been rejected"):
        call()


@OPEN.parametrize()
@BOUNDED
def test_every_operation_keeps_its_promises(case):
    case.call_and_validate()


@KEYED.include(method="GET").parametrize()
@settings(BOUNDED, max_examples=8)
def test_operations_behind_a_key_keep_them_too(case):
    case.call_and_validate(headers=HEADERS)


def test_sequences_of_requests_keep_them_too():
    class Workflow(OPEN.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            for info in CONTROLLER.partitions():
                CONTROLLER.remove_partition(info.id)
            for cluster in CONTROLLER.clusters():
                CONTROLLER.remove_cluster(cluster.id)
            for agent in CONTROLLER.agents():
                CONTROLLER.remove_agent(agent.id)
            CONTROLLER.add_agent("ag0", "10.0.0.1")
            CONTROLLER.create_cluster("c4", ["ag0"])

    Workflow.run(settings=settings(BOUNDED, max_examples=25, stateful_step_count=8))
