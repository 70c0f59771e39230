# Streamkeeper as a nested CloudFormation stack: the release's template and zip, and profiles as values.

locals {
  bucket     = var.bucket == "" ? aws_s3_bucket.own[0].id : var.bucket
  prefix     = "streamkeeper/${var.stage}/"
  template   = one(fileset(var.release, "streamkeeper-*.template.json"))
  version    = trimsuffix(trimprefix(local.template, "streamkeeper-"), ".template.json")
  zip        = "${var.release}/streamkeeper-${local.version}.zip"
  parameters = jsondecode(file("${var.release}/${local.template}")).Parameters
  numbers    = { for name, value in var.settings : name => try(tonumber(regex("^[0-9]+$", value)), -1) }
  # The settings that CloudFormation would refuse. Terraform's expressions take no count of counts above 1,000, so how
  # long a list may be is left to CloudFormation.
  refused = [for name, value in var.settings : name if !try(
    contains([for one in local.parameters[name].AllowedValues : tostring(one)], value),
    local.parameters[name].MinValue <= local.numbers[name] && local.numbers[name] <= local.parameters[name].MaxValue,
    length(regexall("^(?:${replace(local.parameters[name].AllowedPattern, "/[)][{]0,[0-9]+[}]/", ")*")})$", value)) > 0,
    true,
  )]
  # A bucket with a dot in its name has no certificate under its own host.
  templates = "https://${data.aws_service.s3.dns_name}"
}

# The provider's own region: versions 5 and 6 name it by different attributes of `aws_region`.
data "aws_service" "s3" {
  service_id = "s3"
}

# Versioning keeps a profile's former version in use if a new one is wrong.
resource "aws_s3_bucket" "own" {
  count         = var.bucket == "" ? 1 : 0
  bucket_prefix = "streamkeeper-${var.stage}-"
}

resource "aws_s3_bucket_versioning" "own" {
  count  = var.bucket == "" ? 1 : 0
  bucket = local.bucket
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_public_access_block" "own" {
  count                   = var.bucket == "" ? 1 : 0
  bucket                  = local.bucket
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_object" "zip" {
  bucket = local.bucket
  # The key depends on the zip's bytes; otherwise CloudFormation would see no change.
  key         = "${local.prefix}${filesha256(local.zip)}.zip"
  source      = local.zip
  source_hash = filesha256(local.zip)

  # An update of the stack that fails goes back to the former zip.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_s3_object" "template" {
  bucket = local.bucket
  # Its content is not written here: a plan would show all of it.
  key         = "${local.prefix}${filesha256("${var.release}/${local.template}")}.template.json"
  source      = "${var.release}/${local.template}"
  source_hash = filesha256("${var.release}/${local.template}")
}

# The functions read the profiles each minute, so none of these changes the stack.
resource "aws_s3_object" "profile" {
  for_each = var.profiles
  bucket   = local.bucket
  key      = "${local.prefix}profiles/${each.key}.toml"
  content  = each.value

  depends_on = [aws_s3_bucket_versioning.own]
}

resource "aws_cloudformation_stack" "streamkeeper" {
  name         = "streamkeeper-${var.stage}"
  template_url = "${local.templates}/${local.bucket}/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM"]
  parameters = merge(var.settings, {
    Stage          = var.stage
    CodeBucket     = local.bucket
    CodeKey        = aws_s3_object.zip.key
    ProfilesBucket = local.bucket
    ProfilesFolder = "${local.prefix}profiles/"
  })
  tags = merge(var.tags, { "streamkeeper:version" = local.version })

  lifecycle {
    precondition {
      condition     = length(setsubtract(keys(var.settings), keys(local.parameters))) == 0
      error_message = "settings has a name that is no parameter of the release; env/README.md lists them, as keep_days for KeepDays."
    }
    precondition {
      condition = length(local.refused) == 0
      error_message = join(" ", [for name in local.refused : "settings: ${name} ${try(
        local.parameters[name].ConstraintDescription,
        "must be one of ${join(", ", local.parameters[name].AllowedValues)}",
        "must be a whole number from ${local.parameters[name].MinValue} to ${local.parameters[name].MaxValue}",
      )}."])
    }
  }
}
