"""What requests and answers of the REST interface look like, for checking and for OpenAPI.

Only shapes: rules that need more than one field, or the state, are the controller's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..devices.entities import (
    DEFAULT_AGENT_PORT,
    HOST_PATTERN,
    LARGEST_INDEX,
    LARGEST_SIZE,
    MOST_AGENTS_PER_CLUSTER,
    NAME_PATTERN,
    SYNC_TYPES,
    normal_sync_type,
)
from ..devices.model import is_power_of_two
from ..errors import InvalidRequest

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", examples=["p1"])]
_POWERS = [1 << power for power in range(LARGEST_SIZE.bit_length())]


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 4.0 is 4, but neither "4" nor true is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number is expected")
    return value


def _power(value: Any) -> Any:
    number = _whole(value)
    if not is_power_of_two(number) or number > LARGEST_SIZE:
        raise ValueError(f"a power of two up to {LARGEST_SIZE} is expected")
    return number


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("true or false is expected")
    return value


def _sync_type(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("a text is expected")
    try:
        return normal_sync_type(value)
    except InvalidRequest as error:
        raise ValueError(error.what) from None


def _query_flag(value: Any) -> Any:
    if value in (True, False, "true", "false"):
        return value in (True, "true")
    raise ValueError("true or false is expected")


def _query_number(value: Any) -> Any:
    text = str(value)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError("a whole number from 0 is expected")
    return int(text)


PowerOfTwo = Annotated[
    int, BeforeValidator(_power), Field(json_schema_extra={"enum": _POWERS}, examples=[4])
]
Flag = Annotated[bool, BeforeValidator(_flag)]
QueryFlag = Annotated[bool, BeforeValidator(_query_flag)]
QueryNumber = Annotated[int, Field(ge=0, le=LARGEST_INDEX), BeforeValidator(_query_number)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewPartition(Request):
    id: Name
    size: PowerOfTwo
    cluster: Name | None = None
    reconfigurable: Flag = False
    num_gcds: PowerOfTwo = 1
    gcd_sync_replicas: PowerOfTwo = 1
    index: Annotated[int, Field(ge=0, le=LARGEST_INDEX), BeforeValidator(_whole)] | None = None
    sync_type: (
        Annotated[
            str, BeforeValidator(_sync_type), Field(json_schema_extra={"enum": list(SYNC_TYPES)})
        ]
        | None
    ) = None


class NewAgent(Request):
    id: Name
    host: Annotated[str, Field(pattern=f"^{HOST_PATTERN}$", examples=["10.1.5.10"])]
    port: Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole)] = DEFAULT_AGENT_PORT
    system: Annotated[str, Field(min_length=1, max_length=64)] | None = None


class NewCluster(Request):
    id: Name
    agents: Annotated[
        list[Name],
        Field(
            min_length=1,
            max_length=MOST_AGENTS_PER_CLUSTER,
            json_schema_extra={"uniqueItems": True},
        ),
    ]


class Agent(BaseModel):
    id: str
    host: str
    port: int
    system: str
    ipus: int


class Cluster(BaseModel):
    id: str
    agents: list[str]


class PartitionIpu(BaseModel):
    host: str
    device_id: int
    system: str


class Partition(BaseModel):
    id: str
    cluster: str
    size: int
    reconfigurable: bool
    num_gcds: int
    gcd_sync_replicas: int
    sync_type: str
    state: str
    created: float
    ilds: int
    routing: str
    ipus: list[PartitionIpu]


class IpuofConfig(BaseModel):
    devices: list[dict[str, str | int]]
    attributes: dict[str, str]


class Version(BaseModel):
    version: str
    api: int
    system: str
    server: str


class Health(BaseModel):
    status: Literal["ok"]


class Error(BaseModel):
    """Every answer that is not a success; the code is listed in docs/errors.md."""

    code: Annotated[str, Field(pattern="^SIPU-[0-9]{4}$")]
    what: str
    cause: str
    remedy: str
