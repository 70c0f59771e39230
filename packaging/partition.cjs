// An osls plugin that writes the region's partition into the state machines, and refuses a region whose partition it
// does not know. A definition names Step Functions' integrations by ARNs that begin with `arn:aws:`; in China and in
// GovCloud they begin with the partition's own name. CloudFormation's pseudo parameters do the rest of the template.
'use strict';

const plugin = require('./plugin.cjs');

const PARTITIONS = [
  [/^cn-/, 'aws-cn'],
  [/^us-gov-/, 'aws-us-gov'],
  [/^(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]+$/, 'aws'],
];
const INTEGRATION = /^arn:aws:states:::/;

// The value with every ARN of an integration in `partition`.
function moved(value, partition) {
  if (typeof value === 'string') return value.replace(INTEGRATION, `arn:${partition}:states:::`);
  if (Array.isArray(value)) return value.map((inner) => moved(inner, partition));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, moved(inner, partition)]));
}

module.exports = plugin({ 'before:package:compileFunctions': write });

function write({ service, configurationInput, classes }) {
  const { region } = service.provider;
  const [, partition] = PARTITIONS.find(([regions]) => regions.test(region)) ?? [];
  if (partition === undefined) {
    throw new classes.Error(
      `Streamkeeper cannot be deployed to the region ${region}: only regions of AWS, AWS China and AWS GovCloud ` +
        '(US) are known.',
    );
  }
  for (const machine of Object.values(configurationInput.stepFunctions.stateMachines)) {
    machine.definition = moved(machine.definition, partition);
  }
}
