# A stage with one stream of its own. `make release` writes the folder that `release` names.
provider "aws" {
  region = "eu-central-1"
}

module "streamkeeper" {
  source  = "../../packaging/terraform"
  release = "../../release"
  stage   = "prod"

  # To add a stream, add a value: no code is deployed for it.
  profiles = {
    prices = <<-TOML
      address = "https://prices.example.org/{name}"
      framing = "sse"
    TOML
  }

  settings = { KeepDays = 7, ApiAuth = "iam" }
}

output "endpoint" {
  value = module.streamkeeper.endpoint
}
