"""Nodes and devices over REST."""

from fastapi import APIRouter
from fastapi.responses import Response

from scheduler.api.access import CallerDep
from scheduler.api.answers import Plain, answer
from scheduler.api.inventory_views import device_views, node_views
from scheduler.api.shapes import DeviceList, NodeList
from scheduler.api.views import Moment

router = APIRouter(tags=["cluster"])


@router.get("/nodes", response_model=NodeList)
async def nodes(caller: CallerDep, _: Plain) -> Response:
    return answer(NodeList(nodes=node_views(Moment.at(caller.cluster))))


@router.get("/devices", response_model=DeviceList)
async def devices(caller: CallerDep, _: Plain) -> Response:
    views = device_views(Moment.at(caller.cluster), caller.team_seen)
    return answer(DeviceList(devices=views))
