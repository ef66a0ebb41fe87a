"""Nodes and devices over REST."""

from fastapi import APIRouter
from fastapi.responses import Response

from scheduler.api.access import CallerDep, ClusterDep, team_seen
from scheduler.api.answers import Plain, answer
from scheduler.api.shapes import DeviceList, NodeList
from scheduler.api.views import Moment, device_views, node_views

router = APIRouter(tags=["cluster"])


@router.get("/nodes", response_model=NodeList)
async def nodes(cluster: ClusterDep, _token: CallerDep, _: Plain) -> Response:
    return answer(NodeList(nodes=node_views(Moment.of(cluster.state, cluster.now_us()))))


@router.get("/devices", response_model=DeviceList)
async def devices(cluster: ClusterDep, token: CallerDep, _: Plain) -> Response:
    views = device_views(Moment.of(cluster.state, cluster.now_us()), team_seen(token))
    return answer(DeviceList(devices=views))
