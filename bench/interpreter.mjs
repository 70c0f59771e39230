// Runs the loop on aws-local-stepfunctions: reads {definition, lengths} on standard input, writes a line of JSON for
// each length. Its log of events is made and not read: to read it takes longer than to run, and only its side is timed.
import { readFileSync } from "node:fs";
import { StateMachine } from "aws-local-stepfunctions";

const { definition, lengths } = JSON.parse(readFileSync(0, "utf8"));

async function timed(most) {
  const machine = new StateMachine(definition, {});
  const begun = performance.now();
  const before = process.cpuUsage();
  const { n } = await machine.run({ n: 0, most }).result;
  const { user, system } = process.cpuUsage(before);
  const seconds = (performance.now() - begun) / 1000;
  return { iterations: most, reached: n, seconds, cpu_seconds: (user + system) / 1e6 };
}

await timed(lengths[0]); // so that nothing is compiled while it is measured
for (const most of lengths) console.log(JSON.stringify(await timed(most)));
