"""A stage with one stream of its own. `make release` writes the folder that `release` names."""

from aws_cdk import App, CfnOutput, Stack
from streamkeeper_cdk import Streamkeeper

app = App()
stack = Stack(app, "Streams")
# To add a stream, add a value: no code is deployed for it.
profiles = {"prices": 'address = "https://prices.example.org/{name}"\nframing = "sse"\n'}
settings = {"KeepDays": 7, "ApiAuth": "iam", "LogApiCalls": False}
streams = Streamkeeper(stack, "Streamkeeper", release="../../release", profiles=profiles, settings=settings)
CfnOutput(stack, "Endpoint", value=streams.endpoint)
app.synth()
