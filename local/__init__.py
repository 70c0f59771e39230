"""Runs the project on your own machine; nothing here ships to Lambda.

- `service`: the whole service, `streamkeeper run`; it imports the folders below, and none of them imports it.
- `stepfunctions`: the Step Functions API.  `functions`: Lambda functions and the other services that Tasks call.
- `profiles`: `streamkeeper profile`.  `upstreams`: demonstration streams, and players of real providers.
- `replay` and `chaos`: the same code in virtual time.  `workbench`: `streamkeeper asl`.

What several folders use is beside them: a stage's settings, the compiled template, listeners, AWS endpoints.
"""
