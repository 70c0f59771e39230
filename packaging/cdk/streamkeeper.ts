// Streamkeeper as a construct: the release's template as a nested stack, and profiles as values. streamkeeper_cdk.py is
// the same in Python; a test compares what the two synthesize.
import * as fs from 'node:fs';
import * as path from 'node:path';
import { CfnStack, Tags, Token } from 'aws-cdk-lib';
import { BlockPublicAccess, Bucket, type IBucket } from 'aws-cdk-lib/aws-s3';
import { Asset } from 'aws-cdk-lib/aws-s3-assets';
import { BucketDeployment, Source } from 'aws-cdk-lib/aws-s3-deployment';
import { Construct } from 'constructs';

const TEMPLATE = /^streamkeeper-(.+)\.template\.json$/;
const NAMES = 'The name of a profile must be letters, digits, dots, hyphens and underscores, 64 at most.';
const OWN = ['Stage', 'CodeBucket', 'CodeKey', 'ProfilesBucket', 'ProfilesFolder'];

// What the rules of a parameter demand instead of this text; '' if CloudFormation takes it.
function mustBe(rules: Record<string, any>, text: string): string {
  if (rules.AllowedValues) {
    const allowed = rules.AllowedValues.map(String);
    return allowed.includes(text) ? '' : `must be one of ${allowed.join(', ')}`;
  }
  if (rules.Type === 'Number') {
    const isWithin = /^[0-9]+$/.test(text) && Number(text) >= rules.MinValue && Number(text) <= rules.MaxValue;
    return isWithin ? '' : `must be a whole number from ${rules.MinValue} to ${rules.MaxValue}`;
  }
  return new RegExp(`^(?:${rules.AllowedPattern})$`).test(text) ? '' : rules.ConstraintDescription;
}

export interface StreamkeeperProps {
  /** The folder with the files of a release: streamkeeper-VERSION.zip and its template. */
  readonly release: string;
  /** Names everything: streamkeeper-<stage>-events. Default: prod. */
  readonly stage?: string;
  /** The text of each profile by its name. */
  readonly profiles?: Record<string, string>;
  /** Parameters of the template by name, in place of their defaults: { KeepDays: 7, ApiAuth: 'key' }. */
  readonly settings?: Record<string, string | number | boolean>;
  /** The bucket for the profiles, with versioning turned on; stages may share it. Default: one of its own. */
  readonly bucket?: IBucket;
}

export class Streamkeeper extends Construct {
  /** The bucket with the profiles, in the folder streamkeeper/<stage>/profiles/. */
  readonly bucket: IBucket;
  readonly stack: CfnStack;
  /** The version of the release. */
  readonly version: string;

  constructor(scope: Construct, id: string, props: StreamkeeperProps) {
    super(scope, id);
    if (!Object.keys(props.profiles ?? {}).every((name) => /^[A-Za-z0-9._-]{1,64}$/.test(name))) throw new Error(NAMES);
    const [template, ...others] = fs.readdirSync(props.release).filter((name) => TEMPLATE.test(name));
    if (template === undefined || others.length > 0) {
      throw new Error(`${props.release} must have the files of one release, which \`make release\` makes`);
    }
    this.version = template.replace(TEMPLATE, '$1');
    const { stage = 'prod', settings = {}, profiles = {} } = props;
    const { Parameters } = JSON.parse(fs.readFileSync(path.join(props.release, template), 'utf8'));
    const known = Object.keys(Parameters).filter((name) => !OWN.includes(name)).sort();
    const wrong = Object.keys(settings).find((name) => !known.includes(name));
    if (wrong !== undefined) throw new Error(`settings: ${wrong} is none of ${known.join(', ')}`);
    for (const [name, value] of Object.entries({ Stage: stage, ...settings })) {
      // The value of another resource is only known once that exists.
      const problem = Token.isUnresolved(value) ? '' : mustBe(Parameters[name], String(value));
      if (problem) throw new Error(`${name} ${problem}`);
    }
    const code = new Asset(this, 'Code', { path: path.join(props.release, `streamkeeper-${this.version}.zip`) });
    const definition = new Asset(this, 'Template', { path: path.join(props.release, template) });
    // Versioning keeps a profile's former version in use if a new one is wrong.
    this.bucket = props.bucket ?? new Bucket(this, 'Profiles', {
      versioned: true, enforceSSL: true, blockPublicAccess: BlockPublicAccess.BLOCK_ALL,
    });
    // A stage's own folder: an upload also removes what it does not have.
    const folder = `streamkeeper/${stage}/profiles/`;
    // The functions read the profiles each minute, so none of these changes the nested stack.
    new BucketDeployment(this, 'Uploads', {
      destinationBucket: this.bucket,
      destinationKeyPrefix: folder,
      sources: Object.entries(profiles).map(([name, text]) => Source.data(`${name}.toml`, text)),
    });
    this.stack = new CfnStack(this, 'Stack', {
      templateUrl: definition.httpUrl,
      parameters: {
        ...Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, String(value)])),
        Stage: stage,
        CodeBucket: code.s3BucketName,
        CodeKey: code.s3ObjectKey,
        ProfilesBucket: this.bucket.bucketName,
        ProfilesFolder: folder,
      },
    });
    Tags.of(this.stack).add('streamkeeper:version', this.version);
  }

  /** The address of the API. */
  get endpoint(): string {
    return this.stack.getAtt('Outputs.ServiceEndpoint').toString();
  }
}
