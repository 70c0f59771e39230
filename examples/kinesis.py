"""Prints each event of a data stream, once: what was sent again has the same key. A shard has a stream's in order."""

import json
import sys
import time

import boto3

kinesis, seen, name = boto3.client("kinesis"), set(), sys.argv[1]
# Where to read on in each shard; None once it is closed, by a split or a merge, and read.
places = {}
while True:
    shards = {shard["ShardId"]: shard for shard in kinesis.list_shards(StreamName=name)["Shards"]}
    for own_id, shard in shards.items():
        parents = {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")} & shards.keys()
        if own_id not in places and all(places.get(parent, "unread") is None for parent in parents):
            begin = {"StreamName": name, "ShardId": own_id, "ShardIteratorType": "TRIM_HORIZON"}
            places[own_id] = kinesis.get_shard_iterator(**begin)["ShardIterator"]
    for own_id in [own_id for own_id, place in places.items() if place is not None]:
        answer = kinesis.get_records(ShardIterator=places[own_id])
        places[own_id] = answer.get("NextShardIterator")
        for event in (json.loads(record["Data"]) for record in answer["Records"]):
            if (event["stream"], event["key"]) not in seen:
                seen.add((event["stream"], event["key"]))
                print(event["stream"], event["key"], flush=True)
    time.sleep(1)
