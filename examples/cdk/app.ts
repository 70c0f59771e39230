// A stage with one stream of its own. `make release` writes the folder that `release` names.
import { App, CfnOutput, Stack } from 'aws-cdk-lib';
import { Streamkeeper } from '../../packaging/cdk/streamkeeper';

const app = new App();
const stack = new Stack(app, 'Streams');
// To add a stream, add a value: no code is deployed for it.
const profiles = { prices: 'address = "https://prices.example.org/{name}"\nframing = "sse"\n' };
const settings = { KeepDays: 7, ApiAuth: 'iam', LogApiCalls: false };
const streams = new Streamkeeper(stack, 'Streamkeeper', { release: '../../release', profiles, settings });
new CfnOutput(stack, 'Endpoint', { value: streams.endpoint });
app.synth();
