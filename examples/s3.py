"""Prints each event that lies in a bucket, once, object by object: those of `s3` and of `firehose` alike."""

import gzip
import json
import sys

import boto3

s3, seen = boto3.client("s3"), set()
for page in s3.get_paginator("list_objects_v2").paginate(Bucket=sys.argv[1]):
    for entry in page.get("Contents", []):
        content = s3.get_object(Bucket=sys.argv[1], Key=entry["Key"])["Body"].read()
        lines = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        for event in map(json.loads, lines.splitlines()):
            if (event["stream"], event["key"]) not in seen:
                seen.add((event["stream"], event["key"]))
                print(event["stream"], event["key"], flush=True)
