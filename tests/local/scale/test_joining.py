"""Thousands of streams join groups in virtual time: as the machine behind a POST lets them, and below AWS's limits."""

from functools import cache
from typing import Any

from local import stages
from local.scale import scale_page
from local.scale.joining import Posts, join
from local.scale.throttled import ARN, NAMES, Aws, Limits
from states_language import Machine, TaskCall, load
from states_language.clock import VirtualClock

AMPLE = Limits(10**6, 10**6, 10**6, 10**6)
STREAMS, TOGETHER = 7, 3


class Asked(Aws):
    """Remembers what it is asked for: the action, whose record, and what is written."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(seed=1), AMPLE)
        self.asked: list[tuple[str, ...]] = []

    async def ask(self, action: str, parameters: dict[str, Any]) -> Any:
        """As AWS."""
        found = parameters.get("Key") or parameters.get("Item") or {}
        self.asked.append((action, *(found[name]["S"] for name in ("PK", "SK") if found)))
        return await super().ask(action, parameters)


async def by_machine(aws: Aws, stream: str, request: str) -> bool:
    """A POST that the deployed machine answers."""

    async def perform(call: TaskCall) -> Any:
        return await aws.ask(call.action, call.parameters)

    execution = machine().start(
        {"pathParameters": {"streamId": stream}, "queryStringParameters": {}},
        clock=aws.clock,
        perform=perform,
        name=request,
        machine_arn=f"{ARN}:stateMachine:{NAMES['start']}",
        arn=f"{ARN}:express:{NAMES['start']}:{request}",
    )
    await execution.wait()
    return execution.status == "SUCCEEDED"


@cache
def machine() -> Machine:
    """The deployed one."""
    settings = stages.load("prod") | {"streams_per_function": TOGETHER}
    return load(stages.resolve(stages.definition(stages.ROOT / "statemachines" / "start.asl.yml"), settings, NAMES))


def asked_by(post: Any) -> Asked:
    """What so many POSTs ask for, one after the other."""
    aws = Asked()

    async def run() -> None:
        for number in range(STREAMS):
            assert await post(aws, f"fleet:{number}", f"request-{number}")

    aws.clock.run(run())
    return aws


def test_a_post_asks_for_what_the_machine_asks_for() -> None:
    """Request by request, and the groups are the same in the end."""
    ours, deployed = asked_by(Posts(TOGETHER).post), asked_by(by_machine)
    assert ours.asked == deployed.asked
    assert ours.counts == deployed.counts


def test_posts_at_once_join_by_the_machine_too() -> None:
    """Of many that see the same free place one gets it; nobody is left, and no group has more than it may."""
    ours, deployed = (join(12, TOGETHER, 0, AMPLE, post) for post in (Posts(TOGETHER).post, by_machine))
    for one in (ours, deployed):
        assert (one.throttled, one.refused > 12, one.over_after_s < 120) == (0, True, True)
    assert ours.groups in range(4, 7)
    assert deployed.groups in range(4, 7)


def test_a_start_that_is_spread_is_not_refused() -> None:
    """Four hundred within 3.6 s are as many a second as ten thousand within ninety."""
    listed = scale_page.quotas()
    quota = listed["start_execution"]
    limits = Limits(
        listed["partition_writes"]["most"], listed["new_table_writes"]["most"],
        quota["refill"]["others"], quota["bucket"]["others"],
    )  # fmt: skip
    spread, at_once = join(400, 100, 3.6, limits), join(1_000, 100, 0, limits)
    assert (spread.throttled, spread.busy, spread.groups) == (0, 0, 4)
    assert spread.most_partition_units < listed["partition_writes"]["most"] / 2
    assert at_once.busy > 0
    assert at_once.over_after_s > spread.over_after_s - 3.6


def test_a_lost_answer_costs_a_post_and_no_stream() -> None:
    """A partition that takes five units a second refuses most; each stream has joined in the end."""
    tight = join(20, TOGETHER, 0, Limits(5, 10**6, 10**6, 10**6))
    assert tight.throttled >= tight.busy > 0
    assert tight.groups >= 7
