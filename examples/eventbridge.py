"""Prints each event of a queue that a rule of an event bus fills, once: EventBridge may send one again."""

import json
import sys

import boto3

sqs, seen = boto3.client("sqs"), set()
url = sqs.get_queue_url(QueueName=sys.argv[1])["QueueUrl"]
while True:
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)
    for message in answer.get("Messages", []):
        event = json.loads(message["Body"])["detail"]
        if (name := (event["stream"], event["key"])) not in seen:
            seen.add(name)
            print(*name, flush=True)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
