"""Runs the project on your own machine; nothing here ships to Lambda.

- `service`: the whole service, `streamkeeper run`; it imports the folders below, and none of them imports it.
- `functions`: Lambda functions, and the other services that Tasks call. `states_language.server` has Step Functions.
- `streams`, `profiles`, `costs` and others: a verb of the command each.
- `upstreams`: demonstration streams, and players of real providers.
- `simulation`: the platform in virtual time. `replay`, `chaos`, `compare`, `costs` and `scale` run on it.

Modules beside the folders are shared: a stage's settings, the compiled template, listeners, AWS endpoints.
"""
