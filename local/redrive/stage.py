"""The parts of a stage that `redrive` uses: its queue, its tables and its machine."""

from handlers.redrive.redriving import Stage
from handlers.redrive.restore import Events
from handlers.store.overflow import Objects
from local.stage_clients import connect_to_stage


def connect_redrive_stage(name: str | None) -> Stage:
    """The deployed stage of this name; None means the run on this machine. Raises UserError."""
    reached = connect_to_stage(name)
    dynamodb, s3 = reached.clients["dynamodb"], reached.clients["s3"]
    return Stage(
        reached.clients["sqs"],
        reached.queue_url,
        dynamodb,
        reached.names["control_table"],
        Events(dynamodb, reached.names["events_table"], Objects(lambda: s3, reached.bucket)),
        reached.clients["stepfunctions"],
        reached.machine_arn("start"),
    )
