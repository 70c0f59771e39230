"""Starts the parts of the local service in order, and stops them in order.

Invariants: no request is answered before tables, queues and functions exist; when `stop` returns, every child has ended
and the state is on disk.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from handlers.api.answers import Problem
from handlers.api.sinks import Sinks
from handlers.connection.lease import LEASE_TTL_READS
from handlers.repair.work import RepairWork
from handlers.store.stream_records import StreamRecords
from handlers.watching.orphan_recovery import StepFunctions as OwnStates
from local.aws_endpoints import Endpoints, needs_dynamodb
from local.checkout import CODE
from local.functions.function_pool import FunctionPool
from local.listener import LOOPBACK, Listener, allowed_hosts, port_of
from local.metrics import export
from local.metrics.collector import Collector
from local.metrics.export import MetricsService
from local.permissions import guard
from local.profiles import folders, profile_files
from local.service import capacity
from local.service.aws_server import AwsServer
from local.service.backend import Backend, FunctionAddresses, Sockets
from local.service.capacity import find_group, most_places
from local.service.deployed_code import STREAMS, DeployedCode, line_for_upgrade
from local.service.event_sources import Mappings
from local.service.gateway import Gateway
from local.service.live_view import LiveView, Screen
from local.service.signature_check import SignatureCheck
from local.service.stream_recovery import StreamRecovery, repair_due_gaps, stream_id_of
from local.stack import ProxyRoute, Route, read_stack
from local.terminal import UserError
from local.upstreams import auth_servers
from local.upstreams.demo_streams import Upstreams
from states_language import Machine, server
from states_language.clock import RealClock

# The limit if the template names none.
NEVER_S = 10**9


class Service:
    """A local service; `on_failure` is called when it cannot continue."""

    def __init__(
        self, data: Path, template: Mapping[str, Any], sockets: Sockets, lock_file: IO[str],
        environment: Mapping[str, str], screen: Screen, on_failure: Callable[[], None],
    ) -> None:  # fmt: skip
        self.sockets = sockets
        self.stack = read_stack(template, {})
        self._template = template
        self._data = data
        self._environment = environment
        self.capacity = capacity.read(environment)
        self._screen = screen
        self._on_failure = on_failure
        self.backend = Backend(
            data, sockets.embedded_aws, lock_file, environment, self._aws_died, self._aws_restarted,
            self._report_failure, screen.say,
        )  # fmt: skip
        self.endpoints = self.backend.endpoints
        self.edges = guard.make_guard(environment, template, data, screen.say)
        self._addresses = FunctionAddresses(self.endpoints, sockets, environment, is_guarded=self.edges.is_enforcing)
        self._machines = _load_machines(self.stack.machines)
        self._code = DeployedCode(CODE, data / "code", folders.SHIPPED, folders.own_folder(environment))
        self._clock = RealClock()
        self._pool: FunctionPool | None = None
        self._listeners: list[Listener] = []
        self._closers: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._mappings = Mappings(self.endpoints, data, screen.say, is_kept=self.backend.is_durable)
        self._executions: server.Executions | None = None
        self._step_functions: server.StepFunctions | None = None
        self._gateway: Gateway | None = None

    async def start(self) -> None:
        """Returns once requests are answered and the streams of an earlier run are resumed; raises UserError."""
        queue_urls = self._addresses.queues(await self.backend.start(self.stack))
        self.stack = read_stack(self._template, queue_urls)
        secret = f"{self._variable('SECRETS_PREFIX')}{auth_servers.PROFILE}"
        await asyncio.to_thread(self.backend.put_secret, secret, auth_servers.SECRET)
        for line in await asyncio.to_thread(self._code.make_first_copy):
            self._screen.say(line)
        variables = self._addresses.variables()
        functions = self.edges.with_access_keys(self.stack.functions)
        logs = self._data / "logs"
        pool = self._pool = FunctionPool(functions, variables, self._code.folder, logs, aliases=self.stack.aliases)
        # Made here for the machine that answers POSTs; otherwise the first POST, and everything with it, would wait.
        await asyncio.to_thread(self.endpoints.client, "stepfunctions")
        executions = self._connect_parts(pool)
        own = Endpoints({}, self._addresses.aws)
        # The local Step Functions has no quota.
        states = OwnStates(lambda: own.client("stepfunctions"), self._variable("STATE_MACHINE_ARN"), lambda: None)
        streams = StreamRecovery(
            executions, lambda: (self.endpoints.table_client(), self._variable("CONTROL_TABLE")), states,
            self._room(executions), self._screen.say, shares_tables=not needs_dynamodb(self._environment),
        )  # fmt: skip
        left = await streams.executions_to_resume()
        for listener in self._listeners:
            await listener.start()
        server.settle()
        streams.resume(left)
        work = lambda: RepairWork(self.endpoints.table_client(), self._variable("CONTROL_TABLE"))  # noqa: E731
        overdue = repair_due_gaps(
            work, lambda stream: pool.invoke(self._variable("REPAIR_FUNCTION"), json.dumps({"stream": stream}).encode())
        )
        self._tasks += [asyncio.create_task(streams.run()), asyncio.create_task(overdue)]
        self._mappings.start(self.stack.event_sources, pool.invoke)

    async def deploy_code(self) -> list[str]:
        """Gives all new functions the present code and profiles; returns lines about the changes."""
        assert self._pool is not None
        assert self._gateway is not None
        pool, loop = self._pool, asyncio.get_running_loop()

        def start_problem(folder: Path) -> str:
            return asyncio.run_coroutine_threadsafe(pool.start_problem(folder), loop).result()

        changed, lines = await asyncio.to_thread(self._code.deploy, start_problem)
        if changed:
            pool.replace_sandboxes(task_root=self._code.folder)
            self._gateway.set_routes(self._routes(), self.stack.gateway_responses)
        if pool.versions.is_pinned:
            lines = [line_for_upgrade(line) for line in lines]
        await asyncio.to_thread(self._code.remove_old_copies, pool.task_roots)
        self._mappings.start(self.stack.event_sources, pool.invoke)
        return lines

    async def deploy_template(self, template: Mapping[str, Any]) -> list[str]:
        """Applies a template and returns the names of what changed; a UserError changes nothing."""
        stack = read_stack(template, {})
        loaded = _load_machines(stack.machines)
        queue_urls = await asyncio.to_thread(self.backend.provision, stack)
        stack, before = read_stack(template, self._addresses.queues(queue_urls)), self.stack
        assert self._pool is not None
        assert self._gateway is not None
        assert self._step_functions is not None
        routes = self._routes()
        self._template, self.stack = template, stack
        changed = [function.name for function in stack.functions if function not in before.functions]
        if changed or len(stack.functions) != len(before.functions):
            self._pool.replace_sandboxes(self.edges.with_access_keys(stack.functions))
        changed += self.edges.use_template(template)
        if stack.event_sources != before.event_sources:
            # They resume once the functions have the profiles from which the template was made.
            self._mappings.stop()
            changed.append("the delivery")
        self._gateway.set_routes(self._routes(), self.stack.gateway_responses)
        if self._routes() != routes:
            changed.append("the API")
        return changed + self._step_functions.deploy(loaded)

    async def stop(self) -> None:
        """Returns once every part of the service has ended."""
        for listener in self._listeners:
            listener.stop_accepting()
        for task in self._tasks:
            task.cancel()
        self._mappings.stop()
        if self._executions is not None:
            self._executions.close()
        if self._pool is not None:
            await self._pool.close()
        for close in self._closers:
            close()
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        await self.backend.stop()

    def _connect_parts(self, pool: FunctionPool) -> server.Executions:
        def report_change(known: server.KnownExecution) -> None:
            watch.report_execution(known)
            if known.closing is None and stream_id_of(known):
                self._screen.say(f"{room.running_in_words} running; there is room for about {room.capacity.most:,}")

        step_functions = self._step_functions = server.StepFunctions(
            self._data, self._clock, self._machines, report_change
        )
        executions = self._executions = step_functions.executions
        room = self._room(executions)
        after_s = int(self._variable("UNCONNECTED_AFTER_S") or NEVER_S)
        watch = LiveView(executions, self.endpoints, self._variable("CONTROL_TABLE"), self._screen, after_s)
        integrations = server.TaskPerformer(pool.invoke, self.endpoints.client, step_functions)
        executions.perform = self.edges.guard_tasks(integrations.perform, self.endpoints.client)
        aws = AwsServer(step_functions, pool, self.endpoints, room.can_hold)
        gateway = self._gateway = Gateway(
            self._routes(), self.stack.gateway_responses, executions, self._check_stream,
            self.edges.guard_api_calls(step_functions.call), pool.invoke, room,
            SignatureCheck(*self.endpoints.key_pair)
        )  # fmt: skip
        metrics = MetricsService(self._collector(executions), export.read_target(self._environment), self._screen.say)
        gateway.app.routes.insert(0, metrics.route)
        upstreams = Upstreams(lambda client: upstream_listener.reset(client))
        hosts = allowed_hosts(self._environment)
        # The demonstration streams may be behind a proxy; at the AWS endpoint, the host name may begin with a bucket.
        upstream_listener = Listener(upstreams.app, self.sockets.upstreams, hosts, LOOPBACK, has_sockets=True)
        buckets = f".localhost:{port_of(self.sockets.aws)}"
        aws_listener = Listener(self.edges.guard_endpoint(aws.app), self.sockets.aws, hosts, (buckets,))
        self._listeners = [upstream_listener, aws_listener, Listener(gateway.app, self.sockets.api, hosts)]
        self._closers = [upstreams.close, aws.close, integrations.close]
        self._tasks = [asyncio.create_task(watch.run()), asyncio.create_task(metrics.run())]
        return executions

    def _collector(self, executions: server.Executions) -> Collector:
        table, events = self._variable("CONTROL_TABLE"), self._variable("EVENTS_TABLE")
        since_ms = time.time_ns() // 1_000_000
        renewed_s = max(float(self._variable(name)) for name in ("LEASE_EVERY_S", "PROGRESS_EVERY_S"))
        return Collector(
            lambda: StreamRecords(self.endpoints.table_client(), table, events),
            lambda: map(stream_id_of, executions.running()),
            # A later template may have the table.
            lambda: (
                Sinks(self.endpoints.table_client(), one, events) if (one := self._variable("DELIVERY_TABLE")) else None
            ),
            lambda stream_id: profile_files.sinks_of(stream_id, self._streams_folder),
            lambda: [
                stream_id_of(one) for one in executions.all() if one.closing and one.closing.stopped_ms >= since_ms
            ],
            round(LEASE_TTL_READS * renewed_s * 1000),
        )

    def _room(self, executions: server.Executions) -> capacity.Room:
        def group_of(stream_id: str) -> str:
            most = most_places(machine.definition for machine in self.stack.machines)
            control_table = self._variable("CONTROL_TABLE")
            return find_group(stream_id, self.endpoints.table_client, control_table, most)

        return capacity.Room(self.capacity, lambda: filter(None, map(stream_id_of, executions.running())), group_of)

    def _check_stream(self, stream_id: str) -> Problem | None:
        problem = profile_files.find_problem(stream_id, self._streams_folder, self._addresses.upstreams)
        # The machine that answers a POST finds a profile in the bucket, and the function checks it.
        has_bucket = problem is not None and problem.kind == "unknown-stream" and self._variable("PROFILES_BUCKET")
        return None if has_bucket else problem

    @property
    def _streams_folder(self) -> Path:
        return self._code.folder / (self._variable("STREAMS_DIR") or STREAMS)

    @property
    def signing_keys(self) -> tuple[str, str] | None:
        """The id and the secret for signing requests to the HTTP API; None if signatures are not needed."""
        needs = any(route.needs_signature for route in self.stack.routes)
        return self.endpoints.key_pair if needs else None

    def _routes(self) -> list[Route | ProxyRoute]:
        return self._code.routes(self.stack.routes)

    def _variable(self, name: str) -> str:
        """A variable of the functions, or ""."""
        values = (function.environment.get(name) for function in self.stack.functions)
        return next((value for value in values if value), "")

    def _aws_died(self) -> None:
        # The functions know a newer state than the restored one; new functions resume from the restored cursor.
        if self._pool is not None and self.backend.can_lose_writes:
            self._pool.kill_all()

    async def _aws_restarted(self) -> None:
        with contextlib.suppress(UserError):
            await asyncio.to_thread(self.backend.provision, self.stack)
        if self._pool is not None and self.backend.can_lose_writes:
            # The server of the tables has forgotten their streams.
            self._mappings.stop()
            self._mappings.start(self.stack.event_sources, self._pool.invoke)

    def _report_failure(self, sentence: str) -> None:
        self._screen.say(sentence)
        self._on_failure()


def _load_machines(machines: Iterable[server.StateMachine]) -> dict[str, tuple[server.StateMachine, Machine]]:
    try:
        return server.loaded_stack(machines)
    except server.Refusal as problem:
        raise UserError(str(problem)) from None
