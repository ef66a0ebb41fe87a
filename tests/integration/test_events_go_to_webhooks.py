"""What a real HTTP server receives: every event of its own once it is up, signed, and nothing of another team's."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
from collections.abc import Callable
from itertools import count

import pytest
from receiver import PATIENCE_S, Receiver
from rest_client import Client, problem
from small_cluster import SmallCluster

from scheduler.core.events import Remark, Write
from scheduler.core.records import Team
from scheduler.core.settings import US
from scheduler.store.tokens import Role
from scheduler.store.webhooks import MAX_WEBHOOKS, Webhooks
from scheduler.transport import webhooks
from scheduler.transport.feed import Feed
from scheduler.transport.reach import forbidden
from scheduler.transport.webhooks import Deliverer


@pytest.fixture
def receivers():
    made: list[Receiver] = []

    def make() -> Receiver:
        made.append(Receiver())
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    for name, value in (("RETRY_S", 0.02), ("RETRY_CAP_S", 0.05), ("GIVEN_UP_S", 0.05), ("LOOK_S", 0.02)):
        monkeypatch.setattr(webhooks, name, value)
    small = SmallCluster(tmp_path)
    yield small
    small.close()


def hook(client: Client, receiver: Receiver, **fields: object) -> dict:
    made = client("POST", "/v1/webhooks", json={"name": "chat", "url": receiver.url, **fields})
    assert made.status_code == 201, made.text
    return made.json()


@contextlib.asynccontextmanager
async def delivering(cluster: SmallCluster, store: Webhooks | None = None):
    remarks: list[Remark] = []
    feed = Feed(cluster.state, cluster.ring, cluster.repository.history)
    deliverer = Deliverer(store or cluster.webhooks, feed, remarks.append, cluster.now_us, lambda address, of_team: "")
    task = asyncio.create_task(deliverer.run())
    try:
        yield remarks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(what: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not what():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


async def submit(cluster: SmallCluster, team: str) -> int:
    from scheduler.jobfile import parse_document

    job = {"name": "j", "entrypoint": "m:f", "workdir": "/w", "team": team, "gpus": 1, "work": {"total": "5 steps"}}
    return await cluster.submit(parse_document(job), "k", "eva", None)


def all_of(cluster: SmallCluster, job: int) -> list[str]:
    return [event.kind for event in cluster.repository.history.events(job, 0, 1000)]


def verified(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As a receiver does it, by the text of Standard Webhooks alone."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    return headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()


def test_a_receiver_that_fails_first_gets_every_event_in_order_signed_and_with_one_id(cluster, admin, receivers):
    flaky = receivers()
    flaky.answer = lambda number: (500, None, b"garbage\r\n\r\n", 302, 404)[number - 1] if number < 6 else 200
    secret = hook(admin, flaky)["secret"]

    async def scene() -> None:
        webhooks.ANSWER_S, before = 0.2, webhooks.ANSWER_S
        try:
            async with delivering(cluster):
                id = await submit(cluster, "nlp")
                await until(lambda: flaky.tried >= 5)
                webhooks.ANSWER_S = before
                flaky.let_go.set()
                cluster.advance(20)
                await until(lambda: flaky.of_job(id) == all_of(cluster, id))
                newest = cluster.ring.newest
                await until(lambda: Webhooks(cluster.repository, cluster.vault).all()[0].cursor == newest)
        finally:
            webhooks.ANSWER_S = before
        assert flaky.events[-1]["state"] == "COMPLETED"
        assert all(verified(secret, headers, body) for headers, body in flaky.requests)
        ids = [headers["webhook-id"] for headers, _ in flaky.requests]
        assert ids == [event["id"] for event in flaky.events]
        assert len(set(ids)) == len(ids)
        assert all("key=1" not in str(headers) for headers, _ in flaky.requests)

    asyncio.run(scene())


def test_one_that_hangs_holds_up_neither_scheduling_nor_the_others(cluster, admin, receivers):
    stuck, well = receivers(), receivers()
    stuck.answer = lambda number: None
    hook(admin, stuck)
    hook(admin, well)

    async def scene() -> None:
        async with delivering(cluster):
            id = await submit(cluster, "nlp")
            cluster.advance(20)
            assert cluster.state.jobs[id].result == "COMPLETED"
            await until(lambda: well.of_job(id) == all_of(cluster, id))
            assert stuck.tried == 1

    asyncio.run(scene())


def test_what_happened_while_jctd_was_down_is_delivered_after_its_start(cluster, admin, receivers):
    receiver = receivers()
    hook(admin, receiver)
    id = asyncio.run(submit(cluster, "nlp"))
    cluster.advance(20)

    async def scene() -> None:
        fresh = Webhooks(cluster.repository, cluster.vault)
        cluster.ring._events.clear()  # as after a start
        async with delivering(cluster, fresh):
            await until(lambda: receiver.of_job(id) == all_of(cluster, id))

    asyncio.run(scene())


def test_a_teams_webhook_is_told_of_its_own_jobs_only_and_of_the_kinds_it_names(cluster, as_, admin, receivers):
    own, ends, whole = receivers(), receivers(), receivers()
    lead = as_("ida", "nlp", Role.LEAD)
    assert hook(lead, own)["team"] == "nlp"
    hook(lead, ends, events=["Ended"])
    hook(admin, whole)

    async def scene() -> None:
        async with delivering(cluster):
            mine, other = await submit(cluster, "nlp"), await submit(cluster, "vision")
            cluster.advance(20)
            await cluster.ask(lambda number: Write(request=number, actor="root", record=Team(name="nlp")))
            await until(lambda: whole.of_job(other) == all_of(cluster, other) and "Written" in kinds(whole))
            await until(lambda: own.of_job(mine) == all_of(cluster, mine))
            await until(lambda: ends.of_job(mine) == ["Ended"])
            await asyncio.sleep(0.1)
        assert {event["job"] for event in own.events} == {mine}
        assert len(ends.events) == 1

    asyncio.run(scene())


def kinds(receiver: Receiver) -> set[str]:
    return {event["event"] for event in receiver.events}


def test_after_a_day_of_failing_what_is_a_day_old_is_given_up_and_the_rest_delivered(cluster, admin, receivers):
    down = receivers()
    down.answer = lambda number: 503
    made = hook(admin, down)

    async def scene() -> None:
        async with delivering(cluster) as remarks:
            old = await submit(cluster, "nlp")
            await until(lambda: cluster.webhooks.find(made["id"]).failing_us is not None)
            shown = await asyncio.to_thread(admin.get, "/v1/webhooks")
            assert shown["webhooks"][0]["trouble"] == "it answered 503"
            assert shown["webhooks"][0]["behind"] == len(all_of(cluster, old))
            cluster._now_us += 86_401 * US
            new = await submit(cluster, "nlp")
            await until(lambda: bool(remarks))
            assert remarks[0].kind == "WebhookGaveUp"
            assert remarks[0].data["events"] == len(all_of(cluster, old))
            down.answer = lambda number: 200
            await until(lambda: down.of_job(new) == all_of(cluster, new))
            assert down.of_job(old) == []
            shown = await asyncio.to_thread(admin.get, "/v1/webhooks")
            assert (shown["webhooks"][0]["failing_since"], shown["webhooks"][0]["trouble"]) == (None, None)

    asyncio.run(scene())


def test_a_removed_webhook_is_told_of_nothing_more(cluster, admin, receivers):
    receiver = receivers()
    made = hook(admin, receiver)

    async def scene() -> None:
        async with delivering(cluster):
            await submit(cluster, "nlp")
            await until(lambda: len(receiver.requests) > 0)
            removed = await asyncio.to_thread(admin, "DELETE", f"/v1/webhooks/{made['id']}")
            assert removed.status_code == 204
            await asyncio.sleep(0.1)
            told = len(receiver.requests)
            await submit(cluster, "nlp")
            await asyncio.sleep(0.2)
            assert len(receiver.requests) == told

    asyncio.run(scene())


# --- who may, and what -------------------------------------------------------------------------------------------


def test_admins_and_leads_make_webhooks_and_the_secret_is_nowhere_else(cluster, as_, admin, receivers):
    url = receivers().url
    body = {"name": "x", "url": url}
    for role in (Role.VIEWER, Role.USER, Role.OPERATOR, Role.AGENT):
        problem(as_("eva", role=role)("POST", "/v1/webhooks", json=body), 403, "not-allowed")
    lead = as_("ida", "nlp", Role.LEAD)
    problem(lead("POST", "/v1/webhooks", json={**body, "team": "vision"}), 403, "not-allowed")
    problem(lead("POST", "/v1/webhooks", json={**body, "events": ["node"]}), 422, "bad-spec")
    own = lead("POST", "/v1/webhooks", json=body).json()
    whole = admin("POST", "/v1/webhooks", json=body).json()
    assert [one["id"] for one in lead.get("/v1/webhooks")["webhooks"]] == [own["id"]]
    assert [one["secret"] for one in admin.get("/v1/webhooks")["webhooks"]] == [None, None]
    problem(lead("DELETE", f"/v1/webhooks/{whole['id']}"), 404, "not-found")
    problem(as_("rob", "vision", Role.LEAD)("DELETE", f"/v1/webhooks/{own['id']}"), 404, "not-found")
    assert as_("eva").get("/v1/webhooks")["webhooks"] == []
    for text in (str(admin.get("/v1/audit")), str(admin.get("/v1/events"))):
        assert own["secret"] not in text
    database = b"".join(file.read_bytes() for file in cluster.folder.glob("jctd.db*"))
    assert own["secret"].removeprefix("whsec_").encode() not in database
    assert url.encode() in database
    denied = admin.get("/v1/audit")["entries"]
    assert {entry["actor"] for entry in denied if not entry["allowed"]} == {"eva", "ida", "rob"}


@pytest.mark.parametrize(
    "url", ["", "ftp://h/x", "http://", "http://u:p@h/", "http://h/#f", "http://h:99999/", "http://h/\u043a", "file:///x",
            "http://h/a b", "//h/x", "http://h:0/", "http://h\n.x/"],
)  # fmt: skip
def test_other_urls_are_refused(admin, url):
    problem(admin("POST", "/v1/webhooks", json={"name": "x", "url": url}), 422, "bad-spec")


@pytest.mark.parametrize("events", [[], ["jobs"], ["job", "end"], ["Ended "], "job", [1]])
def test_other_events_are_refused(admin, events):
    problem(admin("POST", "/v1/webhooks", json={"name": "x", "url": "http://h/", "events": events}), 422, "bad-spec")


def test_there_is_an_end_to_webhooks(cluster, admin):
    for number in range(MAX_WEBHOOKS):
        more = {"team": None, "events": ("job",), "by": "root", "now_us": 1, "cursor": 0}
        cluster.webhooks.create(name=str(number), url="http://h/", **more)
    problem(admin("POST", "/v1/webhooks", json={"name": "x", "url": "http://h/"}), 409, "quota")


@pytest.mark.parametrize(
    ("address", "of_team", "allowed"),
    [
        ("10.0.0.7", True, True), ("8.8.8.8", True, True), ("2001:4860:4860::8888", True, True),
        ("127.0.0.1", False, True), ("127.0.0.1", True, False), ("::1", True, False), ("::ffff:127.0.0.1", True, False),
        ("169.254.169.254", False, False), ("::ffff:169.254.169.254", False, False), ("fe80::1", False, False),
        ("0.0.0.0", False, False), ("224.0.0.1", False, False), ("::", True, False),
    ],
)  # fmt: skip
def test_a_webhook_reaches_ordinary_hosts_and_only_an_admins_this_one(address, of_team, allowed):
    import ipaddress

    assert (forbidden(ipaddress.ip_address(address), of_team) == "") is allowed


def test_a_name_that_cannot_be_resolved_or_leads_here_is_no_delivery(cluster, admin, receivers):
    here = receivers()
    numbers = count()
    for url in ("http://nowhere.invalid/", f"http://localhost:{here.port}/"):
        body = {"name": f"w{next(numbers)}", "url": url, "team": "nlp"}
        assert admin("POST", "/v1/webhooks", json=body).status_code == 201

    async def scene() -> None:
        feed = Feed(cluster.state, cluster.ring, cluster.repository.history)
        task = asyncio.create_task(Deliverer(cluster.webhooks, feed, print, cluster.now_us).run())
        await submit(cluster, "nlp")
        await until(lambda: len(cluster.webhooks.trouble) == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert "cannot be resolved" in cluster.webhooks.trouble[1]
        assert "the daemon's own host" in cluster.webhooks.trouble[2]
        assert here.tried == 0

    asyncio.run(scene())


def test_a_closed_ring_lets_the_loop_breathe(cluster):
    """A daemon that stops closes the ring first: who follows it must not spin."""

    async def scene() -> None:
        feed = Feed(cluster.state, cluster.ring, cluster.repository.history)
        cluster.ring.close()

        async def follow() -> None:
            while True:
                assert await feed.after(cluster.ring.newest, 10, 5.0) == []

        task = asyncio.create_task(follow())
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scene())
