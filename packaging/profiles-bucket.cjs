// An osls plugin for stages that have profiles in a bucket (profiles_bucket). The functions get the bucket's name and
// may read it, the machine that answers a POST looks there for a name that did not ship, and an alarm acts if the
// newest version of a profile is wrong. handlers/run/profile_source.py reads the profiles. A stage without a bucket
// gets none of this.
'use strict';

const plugin = require('./plugin.cjs');
const { ONCE_IN_5_MINUTES, alarm, filter } = require('./resources/alarms.cjs');
const { allow, sub } = require('./resources/roles.cjs');
const { choose } = require('./shipped-profiles.cjs');

const FUNCTIONS = ['connectionManager', 'connectionControl', 'connectionRepair', 'connectionDelivery'];
// The first words of every sentence about a wrong profile (handlers/run/profile_source.py).
const WRONG = '"in the bucket is wrong, and"';

const inBucket = (bucket, objects = '') => sub(`arn:\${AWS::Partition}:s3:::${bucket}${objects}`);

// States that come before all others. They continue if the profile shipped, is in the bucket, or may be there.
function states(first, bucket, folder, shipped) {
  const id = '$states.input.pathParameters.streamId';
  const key = `'${folder}' & $substringBefore(${id}, ':') & '.toml'`;
  return {
    'Did it ship': {
      Type: 'Choice',
      Comment: 'A profile that came with the code is known without a look into the bucket.',
      Choices: [{ Condition: `{% $substringBefore(${id}, ':') in ${JSON.stringify(shipped)} %}`, Next: first }],
      Default: 'Find profile',
    },
    'Find profile': {
      Type: 'Task',
      Comment: 'Of keys that begin alike S3 lists the shortest first.',
      Resource: 'arn:aws:states:::aws-sdk:s3:listObjectsV2',
      Arguments: { Bucket: bucket, Prefix: `{% ${key} %}`, MaxKeys: 1 },
      TimeoutSeconds: 3,
      Assign: { is_known: `{% $states.result.Contents[0].Key = ${key} %}` },
      Output: '{% $states.input %}',
      // On any other answer of S3 they continue too: the function that opens the stream looks as well.
      Catch: [
        { ErrorEquals: ['States.DataLimitExceeded'], Output: '{% $states.input %}', Next: first },
        { ErrorEquals: ['States.ALL'], Output: '{% $states.input %}', Next: first },
      ],
      Next: 'Is there one',
    },
    'Is there one': {
      Type: 'Choice',
      Choices: [{ Condition: '{% $is_known %}', Next: first }],
      Default: 'No such profile',
    },
    'No such profile': {
      Type: 'Succeed',
      Comment: 'The API answers 404 (packaging/start-responses.yml). As a failure it would raise the alarm ' +
        'StartFailed.',
      Output: "{% 'UnknownStream' %}",
    },
  };
}

function place(serverless) {
  const { service, configurationInput } = serverless;
  const { custom, functions, resources } = service;
  const { profiles_bucket: bucket, profiles_folder: folder } = custom.settings;
  if (bucket === '') return;
  const { Resources: all } = resources;
  const give = (role, ...more) => all[role].Properties.Policies[0].PolicyDocument.Statement.push(...more);
  for (const { environment, role } of FUNCTIONS.map((name) => functions[name]).filter((one) => one !== undefined)) {
    Object.assign(environment, { PROFILES_BUCKET: bucket, PROFILES_FOLDER: folder });
    // Whoever may not list the bucket is answered "forbidden" for an object that does not exist.
    give(role, allow('s3', 'GetObject GetObjectVersion', inBucket(bucket, `/${folder}*.toml`)),
      allow('s3', 'ListBucket ListBucketVersions', inBucket(bucket)));
  }
  give('StartRole', allow('s3', 'ListBucket', inBucket(bucket)));
  const { definition } = configurationInput.stepFunctions.stateMachines.start;
  const { shipped } = choose(serverless.getProvider('aws').getStage(), custom.upstreams);
  definition.States = { ...states(definition.StartAt, bucket, folder, shipped), ...definition.States };
  definition.StartAt = 'Did it ship';
  const { metrics, connection_manager: manager } = custom.names;
  all.WrongProfilesFilter = filter(metrics, 'WrongProfiles', WRONG);
  all.WrongProfilesAlarm = alarm(metrics, 'WrongProfiles', null, ONCE_IN_5_MINUTES,
    `The newest version of a profile in the bucket is wrong; the log of ${manager} says why.`);
}

module.exports = plugin({ 'before:package:compileFunctions': place });
