"""Tables, queues and buckets that are missing are created."""

from pathlib import Path

from local.aws_endpoints import Endpoints
from local.service.backend import provision
from tests.local.service.embedded import TABLE, embedded_aws_in
from tests.local.support import client, in_thread


def test_a_table_of_an_older_release_gets_its_index(tmp_path: Path) -> None:
    """What is in the table stays and can be read through the index; creating a bucket again is no error."""
    index = {
        "IndexName": "by-position",
        "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "position", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    names = [*TABLE["AttributeDefinitions"], {"AttributeName": "position", "AttributeType": "S"}]
    with in_thread(lambda: embedded_aws_in(tmp_path, [])) as aws:
        provision(Endpoints({}, aws.url), [TABLE], [], ["bodies"])
        dynamodb = client("dynamodb", aws.url)
        dynamodb.put_item(TableName="events", Item={"PK": {"S": "one"}, "position": {"S": "5"}})
        changed = {**TABLE, "AttributeDefinitions": names, "GlobalSecondaryIndexes": [index]}
        for _ in range(2):
            provision(Endpoints({}, aws.url), [changed], [], ["bodies"])
        items = dynamodb.query(
            TableName="events",
            IndexName="by-position",
            KeyConditionExpression="PK = :one",
            ExpressionAttributeValues={":one": {"S": "one"}},
        )["Items"]
        assert [item["position"] for item in items] == [{"S": "5"}]
