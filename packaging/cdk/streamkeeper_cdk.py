"""Streamkeeper as a construct: the release's template as a nested stack, and profiles as values.

streamkeeper.ts is the same in TypeScript; a test compares what the two synthesize.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import CfnStack, Tags, Token
from aws_cdk.aws_s3 import BlockPublicAccess, Bucket, IBucket
from aws_cdk.aws_s3_assets import Asset
from aws_cdk.aws_s3_deployment import BucketDeployment, Source
from constructs import Construct

_NAMES = "The name of a profile must be letters, digits, dots, hyphens and underscores, 64 at most."
_OWN = {"Stage", "CodeBucket", "CodeKey", "ProfilesBucket", "ProfilesFolder"}


def _must_be(rules: Mapping[str, Any], text: str) -> str:
    """What the rules of a parameter demand instead of this text; "" if CloudFormation takes it."""
    if "AllowedValues" in rules:
        allowed = [str(one) for one in rules["AllowedValues"]]
        return "" if text in allowed else f"must be one of {', '.join(allowed)}"
    if rules["Type"] == "Number":
        least, most = rules["MinValue"], rules["MaxValue"]
        is_within = re.fullmatch("[0-9]+", text) is not None and least <= int(text) <= most
        return "" if is_within else f"must be a whole number from {least} to {most}"
    return "" if re.fullmatch(rules["AllowedPattern"], text) else str(rules["ConstraintDescription"])


class Streamkeeper(Construct):
    """`bucket` has the profiles, in streamkeeper/<stage>/profiles/; `version` is that of the release.

    `release` is the folder with the files of a release, `profiles` has the text of each profile by its name, `settings`
    parameters of the template by name, in place of their defaults. `bucket` must keep versions; stages may share it;
    without one it is made.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        release: str,
        stage: str = "prod",
        profiles: Mapping[str, str] | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        bucket: IBucket | None = None,
    ) -> None:
        super().__init__(scope, id)
        if not all(re.fullmatch("[A-Za-z0-9._-]{1,64}", name) for name in profiles or {}):
            raise ValueError(_NAMES)
        found = sorted(Path(release).glob("streamkeeper-*.template.json"))
        if len(found) != 1:
            raise ValueError(f"{release} must have the files of one release, which `make release` makes")
        (template,) = found
        self.version = template.name.removeprefix("streamkeeper-").removesuffix(".template.json")
        said = settings or {}
        parameters = json.loads(template.read_text())["Parameters"]
        known = sorted(parameters.keys() - _OWN)
        if wrong := [name for name in said if name not in known]:
            raise ValueError(f"settings: {wrong[0]} is none of {', '.join(known)}")
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in said.items()}
        for name, text in {"Stage": stage, **texts}.items():
            # The value of another resource is only known once that exists.
            if not Token.is_unresolved(text) and (must_be := _must_be(parameters[name], text)):
                raise ValueError(f"{name} {must_be}")
        code = Asset(self, "Code", path=str(template.parent / f"streamkeeper-{self.version}.zip"))
        definition = Asset(self, "Template", path=str(template))
        # Versioning keeps a profile's former version in use if a new one is wrong.
        self.bucket = bucket or Bucket(
            self, "Profiles", versioned=True, enforce_ssl=True, block_public_access=BlockPublicAccess.BLOCK_ALL
        )
        # A stage's own folder: an upload also removes what it does not have.
        folder = f"streamkeeper/{stage}/profiles/"
        # The functions read the profiles each minute, so none of these changes the nested stack.
        BucketDeployment(
            self,
            "Uploads",
            destination_bucket=self.bucket,
            destination_key_prefix=folder,
            sources=[Source.data(f"{name}.toml", text) for name, text in (profiles or {}).items()],
        )
        self.stack = CfnStack(
            self,
            "Stack",
            template_url=definition.http_url,
            parameters=texts
            | {
                "Stage": stage,
                "CodeBucket": code.s3_bucket_name,
                "CodeKey": code.s3_object_key,
                "ProfilesBucket": self.bucket.bucket_name,
                "ProfilesFolder": folder,
            },
        )
        Tags.of(self.stack).add("streamkeeper:version", self.version)

    @property
    def endpoint(self) -> str:
        """The address of the API."""
        return self.stack.get_att("Outputs.ServiceEndpoint").to_string()
