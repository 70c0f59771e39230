"""Prints each event that is posted and signed (Standard Webhooks), once by its id; SECRET is whsec_ and Base64."""

import base64
import hmac
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

KEY, SEEN = base64.b64decode(os.environ["SECRET"].removeprefix("whsec_")), set()


class Hook(BaseHTTPRequestHandler):
    """Answers 204 to what is signed and 401 to all else."""

    def do_POST(self) -> None:
        """One event. A real consumer also refuses a timestamp that is some minutes old."""
        body, own_id = self.rfile.read(int(self.headers.get("content-length", 0))), self.headers["webhook-id"]
        content = f"{own_id}.{self.headers['webhook-timestamp']}.".encode() + body
        signature = b"v1," + base64.b64encode(hmac.digest(KEY, content, "sha256"))
        is_ours = hmac.compare_digest(signature, self.headers.get("webhook-signature", "").encode())
        if is_ours and own_id not in SEEN:
            SEEN.add(own_id)
            event = json.loads(body)
            print(event["stream"], event["key"], flush=True)
        self.send_response(204 if is_ours else 401)
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
