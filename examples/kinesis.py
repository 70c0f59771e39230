"""Prints each event of a data stream of one shard, once: what was sent again has the same key."""

import json
import sys
import time

import boto3

kinesis, seen, name = boto3.client("kinesis"), set(), sys.argv[1]
shard = kinesis.list_shards(StreamName=name)["Shards"][0]["ShardId"]
place = kinesis.get_shard_iterator(StreamName=name, ShardId=shard, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
while True:
    answer = kinesis.get_records(ShardIterator=place)
    for event in (json.loads(record["Data"]) for record in answer["Records"]):
        if (event["stream"], event["key"]) not in seen:
            seen.add((event["stream"], event["key"]))
            print(event["stream"], event["key"], flush=True)
    place = answer["NextShardIterator"]
    time.sleep(1)
