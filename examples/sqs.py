"""Prints each event of a FIFO queue: the queue has dropped those that were sent twice within five minutes."""

import json
import sys

import boto3

sqs = boto3.client("sqs")
url = sqs.get_queue_url(QueueName=sys.argv[1])["QueueUrl"]
while True:
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)
    for message in answer.get("Messages", []):
        event = json.loads(message["Body"])
        print(event["stream"], event["key"], flush=True)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
