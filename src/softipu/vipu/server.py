"""The REST interface of a V-IPU controller: routes, statuses and the description of both.

Each route is one call of the controller; every failure is JSON of one form. Listening on a port is
not done here (see serve.py), nor are limits and keys (see guard.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match

from .. import __version__, errors
from ..devices.controller import Controller, nobody
from ..devices.entities import NAME_PATTERN, Holders, PartitionRequest
from ..devices.remote import API
from . import bodies
from .guard import App, Guard

#: Status of each error; what is not here is the server's fault, 500.
STATUSES: dict[type[errors.SoftIPUError], int] = {
    errors.UnknownPartition: 404,
    errors.UnknownEntity: 404,
    errors.AlreadyExists: 409,
    errors.InUse: 409,
    errors.NoFreeIpus: 409,
    errors.NotEnoughIpus: 409,
    # Shapes are checked before (422), so what the controller refuses is a conflict: between
    # fields of the request, or with what there is.
    errors.InvalidIpuCount: 409,
    errors.InvalidRequest: 409,
    errors.UnknownSystem: 409,
    errors.StateReadOnly: 503,
    errors.StateUnusable: 503,
    errors.StateFull: 507,
}

_MEANINGS = {
    400: "The request is not HTTP, or its body not JSON",
    401: "The access key is missing or wrong",
    404: "There is no such thing here",
    408: "The body did not arrive in time",
    409: "The request conflicts with itself or with what exists",
    413: "The body is too large",
    421: "The Host header names another server",
    422: "A field or parameter is missing, unknown or wrong",
    500: "The server failed, or its database is damaged",
    503: "The state cannot be written at the moment",
    507: "The disk is full",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": bodies.Error, "description": meaning} for status, meaning in _MEANINGS.items()
}

Id = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$")]
Force = Annotated[
    bodies.QueryFlag, Query(description="Go ahead although programs hold some of the IPUs")
]


class PlainJson(JSONResponse):
    """JSON in ASCII, so that text from outside can never break its encoding."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode()


def failure(
    error: errors.SoftIPUError, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    return PlainJson(error.to_json(), status, dict(headers or {}))


async def _only_known_parameters(request: Request) -> None:
    """A misspelt parameter must not be ignored: ?froce=true would be taken for a plain remove."""
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        problem = "unknown parameter" if name not in known else "given twice"
        if name not in known or names.count(name) > 1:
            raise RequestValidationError(
                [{"type": "query", "loc": ("query", name), "msg": problem}]
            )


def make_app(
    controller: Controller,
    *,
    access_key: str | None = None,
    advertised: str = "localhost:8090",
    holders: Holders = nobody,
    listening_on: str | None = None,
) -> App:
    """The guarded application; `advertised` is the host:port that IPUoF files name."""
    return Guard(make_api(controller, access_key, advertised, holders), access_key, listening_on)


def make_api(
    controller: Controller, access_key: str | None, advertised: str, holders: Holders
) -> FastAPI:
    """The application without its guard; `access_key` only decides what it says about keys."""
    api = FastAPI(
        title="softipu V-IPU server",
        version=__version__,
        description="Agents, clusters and partitions of virtual IPUs.",
        docs_url=None,  # both pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=PlainJson,
        responses=_RESPONSES,
    )
    checks = [Depends(_only_known_parameters)]
    if access_key is not None:
        checks.append(Security(HTTPBearer(auto_error=False)))
    router = APIRouter(prefix=API, dependencies=checks)
    _handle_errors(api, router)

    @router.get("/version", response_model=bodies.Version)
    def version() -> Any:
        return {
            "version": __version__,
            "api": 1,
            "system": controller.system,
            "server": advertised,
        }

    _entity_routes(router, controller)
    _partition_routes(router, controller, advertised, holders)
    api.include_router(router)

    @api.get(
        "/health", response_model=bodies.Health, dependencies=[Depends(_only_known_parameters)]
    )
    def health() -> Any:
        return {"status": "ok"}

    return api


def _entity_routes(router: APIRouter, controller: Controller) -> None:
    @router.get("/agents", response_model=list[bodies.Agent])
    def list_agents() -> Any:
        return [agent.to_json() for agent in controller.agents()]

    @router.post("/agents", response_model=bodies.Agent, status_code=201)
    def add_agent(body: bodies.NewAgent) -> Any:
        return controller.add_agent(body.id, body.host, body.port, body.system).to_json()

    @router.get("/agents/{id}", response_model=bodies.Agent)
    def get_agent(id: Id) -> Any:
        return controller.agent(id).to_json()

    @router.delete("/agents/{id}", response_model=bodies.Agent)
    def remove_agent(id: Id) -> Any:
        return controller.remove_agent(id).to_json()

    @router.get("/clusters", response_model=list[bodies.Cluster])
    def list_clusters() -> Any:
        return [cluster.to_json() for cluster in controller.clusters()]

    @router.get("/allocations", response_model=list[bodies.Cluster])
    def list_allocations() -> Any:
        """Each cluster is offered as an allocation of the same name."""
        return list_clusters()

    @router.post("/clusters", response_model=bodies.Cluster, status_code=201)
    def create_cluster(body: bodies.NewCluster) -> Any:
        return controller.create_cluster(body.id, body.agents).to_json()

    @router.get("/clusters/{id}", response_model=bodies.Cluster)
    def get_cluster(id: Id) -> Any:
        return controller.cluster(id).to_json()

    @router.delete("/clusters/{id}", response_model=bodies.Cluster)
    def remove_cluster(id: Id) -> Any:
        return controller.remove_cluster(id).to_json()


def _partition_routes(
    router: APIRouter, controller: Controller, advertised: str, holders: Holders
) -> None:
    @router.get("/partitions", response_model=list[bodies.Partition])
    def list_partitions() -> Any:
        return [info.to_json() for info in controller.partitions()]

    @router.post("/partitions", response_model=bodies.Partition, status_code=201)
    def create_partition(body: bodies.NewPartition) -> Any:
        return controller.create_partition(PartitionRequest(**body.model_dump())).to_json()

    @router.get("/partitions/{id}", response_model=bodies.Partition)
    def get_partition(id: Id) -> Any:
        return controller.partition_info(id).to_json()

    @router.delete("/partitions/{id}", response_model=bodies.Partition)
    def remove_partition(id: Id, force: Force = False) -> Any:
        return controller.remove_partition(id, force=force, holders=holders).to_json()

    @router.post("/partitions/{id}/reset", response_model=bodies.Partition)
    def reset_partition(id: Id, force: Force = False) -> Any:
        return controller.reset_partition(id, force=force, holders=holders).to_json()

    @router.get("/partitions/{id}/ipuof-config", response_model=bodies.IpuofConfig)
    def ipuof_config(
        id: Id, gcd: Annotated[bodies.QueryNumber, Query(description="Graph compile domain")] = 0
    ) -> Any:
        try:
            return controller.ipuof_config(id, gcd, server=advertised)
        except errors.InvalidRequest as error:
            return failure(error, 404)


def _handle_errors(api: FastAPI, router: APIRouter) -> None:
    @api.exception_handler(errors.SoftIPUError)
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.SoftIPUError)
        return failure(error, STATUSES.get(type(error), 500))

    @api.exception_handler(RequestValidationError)
    async def shape(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = error.errors()
        first = problems[0]
        place = " ".join(str(part)[:80] for part in first["loc"][1:]) or "the body"
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        status = 400 if first["type"] == "json_invalid" else 422
        why = str(first["msg"]).removeprefix("Value error, ")
        what = f"The request is not valid: {ascii(place)[1:-1]}: {why}{more}."
        return failure(errors.InvalidRequest(what), status)

    @api.exception_handler(HTTPException)
    async def protocol(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        where = f"{request.method} {request.url.path[:200]!a}"
        headers = dict(error.headers or {})
        if error.status_code == 404:
            what = f"{where}: there is no such path here; /openapi.json describes those there are."
        elif error.status_code == 405:
            headers["Allow"] = ", ".join(_allowed([*router.routes, *api.routes], request))
            what = f"{where}: this path takes {headers['Allow']} only."
        else:
            what = f"{where}: {str(error.detail)[:200]!a}."
        return failure(errors.InvalidRequest(what), error.status_code, headers)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return failure(errors.SoftIPUError(f"The server failed: {type(error).__name__}."), 500)


def _allowed(routes: Sequence[BaseRoute], request: Request) -> list[str]:
    """All methods of a path; the router itself names those of the first route only."""
    methods: set[str] = set()
    for route in routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)
