"""Hypothesis strategies for JSONata expressions: well-formed, of every operator and function, mostly of wrong types."""

from hypothesis import strategies as st

from states_language.jsonata.engine import Jsonata
from states_language.jsonata.functions import FUNCTIONS

_NAMES = sorted({*Jsonata.static_frame.bindings, *FUNCTIONS, "millis", "now", "random", "toMillis"} - {"eval"})
_ATOMS = st.sampled_from(
    [
        *("1", "0", "-1", "2.5", "1e308", "-1e308", "1e-7", "12345678901234567890", "true", "false", "null"),
        *("'a'", "''", "'a,b'", "'#0'", "'[Y]'", "'[D1o]-[M01]'", "'w'", "'Ww'", "'i'", "'2020-01-01'", "'0x1F'"),
        *("'0123'", "'%'", "'aGk='", "'0,00'", "'ß😀'", "[]", "{}", "[1,2,3]", "['b','a']", "[1..4]", "[[1],[2]]"),
        *("[null,1]", "{'a':1}", "{'a':{'b':[1,{'c':2}]}}", "[{'n':1},{'n':'x'}]", "/a+/", "/(a)|b/i"),
        *("$states.input", "$states.input.a", "$states.input.b[0]", "$states.input.b.c", "$missing", "$sum"),
        *("$string", "function($x){$x}", "function($x,$y){$x&$y}", "function(){1}"),
    ]
)


def _deeper(inner: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
    binary = st.sampled_from(
        ["+", "-", "*", "/", "%", "&", "=", "!=", "<", ">", "<=", ">=", "and", "or", "in", "~>", "..", "."]
    )
    call = st.builds(
        lambda name, arguments: f"${name}({','.join(arguments)})", st.sampled_from(_NAMES), st.lists(inner, max_size=4)
    )
    return st.one_of(
        call,
        call,
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, binary, inner),
        st.builds(lambda a, b: f"({a})[{b}]", inner, inner),
        st.builds(lambda a, b: f"[{a},{b}]", inner, inner),
        st.builds(lambda a, b: f"[{a}..{b}]", inner, inner),
        st.builds(lambda a, b: f"{{{a}:{b}}}", inner, inner),
        st.builds(lambda a, b, c: f"({a} ? {b} : {c})", inner, inner, inner),
        st.builds(lambda a, b: f"({a})^({b})", inner, inner),
        st.builds(lambda a, b, c: f"({a}){{{b}:{c}}}", inner, inner, inner),
        st.builds(lambda a: f"-({a})", inner),
        st.builds(lambda a, b: f"($v := {a}; {b} & $v)", inner, inner),
        st.builds(lambda a, b: f"(({a}) ~> |$|{b}|)", inner, inner),
        st.builds(lambda a, b: f"({a})({b})", inner, inner),
    )


EXPRESSIONS = st.recursive(_ATOMS, _deeper, max_leaves=8)
INPUT = {"a": 1, "b": [{"c": "x"}, {"c": None}, 2.5], "t": "text"}
