"""The words of the SDK integrations for bad parameters."""

from botocore.exceptions import ParamValidationError

from states_language.server.sdk import unusable


def test_bad_parameters_are_named_by_field() -> None:
    report = (
        'Missing required parameter in input: "Key"\n'
        'Unknown parameter in input: "Keyy", must be one of: TableName, Key\n'
        "Invalid length for parameter TableName, value: 0, valid min length: 1"
    )
    assert unusable({"Keyy": 1}, str(ParamValidationError(report=report))) == (
        """The Parameters '{"Keyy":1}' could not be used to start the Task: """
        """[The field 'Key' is required but was missing, The field "Keyy" is not supported by Step Functions, """
        "Invalid length for parameter TableName, value: 0, valid min length: 1]"
    )
