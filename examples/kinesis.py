"""Prints each event of a data stream, once: what was sent again has the same key. A shard has a stream's in order."""

import json
import sys
import time

import boto3

kinesis, seen, name = boto3.client("kinesis"), set(), sys.argv[1]
begin = {"StreamName": name, "ShardIteratorType": "TRIM_HORIZON"}
shards = [shard["ShardId"] for shard in kinesis.list_shards(StreamName=name)["Shards"]]
places = [kinesis.get_shard_iterator(ShardId=shard, **begin)["ShardIterator"] for shard in shards]
while True:
    answers = [kinesis.get_records(ShardIterator=place) for place in places]
    for event in (json.loads(record["Data"]) for answer in answers for record in answer["Records"]):
        if (event["stream"], event["key"]) not in seen:
            seen.add((event["stream"], event["key"]))
            print(event["stream"], event["key"], flush=True)
    places = [answer["NextShardIterator"] for answer in answers]
    time.sleep(1)
