"""JSONata's functions return what the JavaScript library returns, or AWS where it was measured."""

from typing import Any

import pytest

from language.test_jsonata import failure, output
from states_language import DefinitionError, load

THREW = "threw an error during evaluation. "
SIGNATURE = 'T0410: Argument {} of function "{}" does not match function signature'
PICTURE = "The sub-picture must not contain "


RETURNED: list[tuple[str, Any]] = [
    # The functions of Step Functions and of JSONata, on the virtual clock.
    ("$parse('{\"a\":[null,1]}').a[0]", None),
    ("$partition([1,2,3,4,5], 2)", [[1, 2], [3, 4], [5]]),
    ("$range(0, 6, 2)", [0, 2, 4, 6]),
    ("$range(-1.7, 2, 1)", [-1, 0, 1, 2]),
    ("$range(3, 1, -1)", [3, 2, 1]),
    ("$hash('input', 'SHA-1')", "140f86aae51ab9e1cda9b4254fe98a74eb54c1a1"),
    ("$random(42)", 0.7275636800328681),
    ("$count([1..873782])", 873_782),
    ("$distinct([1, true, 1.0, 'a', 'a'])", [1, True, "a"]),
    ("10 / 4", 2.5),
    ("5.5 % 2", 1.5),
    ("-7 % 3", -1),
    ("10 / 5", 2),
    ("$map([1, null], function($v) { $v })", [1, None]),
    ("$millis()", 1_767_225_600_000),
    ("$now()", "2026-01-01T00:00:00.000Z"),
    ("$sort([3, 1, 2], function($a, $b) { $a > $b })", [1, 2, 3]),
    ("$states.context.State.Name", "A"),
    ("$exists($nobody)", False),
    ("$replace('aXbX', /X/, '-')", "a-b-"),
    # Numbers as texts: whole ones exactly while they fit a long, then as ECMAScript writes them (AWS measured).
    ("$string(1e20)", "100000000000000000000"),
    ("$string(1e21)", "1e+21"),
    ("$string(-1.5e20)", "-150000000000000000000"),
    ("$string(999999999999999868928)", "999999999999999900000"),
    ("$string($parse('9223372036854775807'))", "9223372036854775807"),
    ("$string($parse('9223372036854775808'))", "9223372036854776000"),
    ("$string([1e-6, 1e-7, 1/3])", "[0.000001,1e-7,0.333333333333333]"),
    ("$string({'a': ['é', null], 'f': $sum, 'e': []}, true)",
     '{\n  "a": [\n    "é",\n    null\n  ],\n  "f": "",\n  "e": []\n}'),
    # Numbers that JSON does not have (AWS measured).
    ("[1/0, -1/0, 0/0]", ["Infinity", "-Infinity", "NaN"]),
    ("{'k': 1e308 * 10}", {"k": "Infinity"}),
    ("[5 % 0, 1/0 > 5]", ["NaN", True]),
    ("$parseInteger('abc', '0')", "NaN"),
    ("[$floor(0/0), $ceil(1/0), $abs(-1/0), $sum([1, 1/0])]", ["NaN", *["Infinity"] * 3]),
    # Texts as numbers, and rounding.
    ("[$number('0x12'), $number('0b101'), $number('0o17'), $number('-1.5e3')]", [18, 5, 15, -1500]),
    ("[$number('0123'), $number('-0012.5e1'), $number('0x1z')]", [123, -125, "NaN"]),
    ("[$round(2.5), $round(-1.5), $round(4.525, 2), $round(125, -1), $round(1e-10, 5)]", [2, -2, 4.52, 120, 0]),
    ("[$round(1e300, 2) = 1e300, $round(123, 400)]", [True, 123]),
    ("$formatBase(1e21, 16)", "3635c9adc5dea00000"),
    ("[$formatNumber(34.555, '#0.00;(#0.00)'), $formatNumber(-34.555, '#0.00;(#0.00)')]", ["34.56", "(34.56)"]),
    ("[$formatNumber(2.5, '0'), $formatNumber(0.125, '0.0%')]", ["2", "12.5%"]),
    ("$parseInteger('1.5', '0')", 1),
    ("$parseInteger('😀x', 'A')", 38_854_092),
    # Texts.
    ("[$substring('hello', -3.7, 3), $substring('hello', 0.5, 2.5), $substring('hello', -9, 2)]", ["ll", "hel", "he"]),
    ("$replace('abc', /b/, '$5')", "ac"),
    ("$replace('abcdefghijkl', /(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)/, '$12-$13-$1')", "l-a3-a"),
    ("$replace('265USD', /([0-9]+)USD/, '$$$1')", "$265"),
    ("$replace('abc', 'b', '$0')", "a$0c"),
    ("$replace('a1b2', /[0-9]/, function($m) { '<' & $m.match & '>' }, 1)", "a<1>b2"),
    ("$replace('68F', /(-?\\d+)F\\b/, function($m) { $string($number($m.groups[0]) - 32) })", "36"),
    ("$split('a1b2c3', /[0-9]/, 2)", ["a", "b"]),
    ("$base64decode('YQ')", "a"),
    ("[$decodeUrl('%3Fx%20%D1%88'), $decodeUrlComponent('%3Fx%20')]", ["%3Fx ш", "?x "]),
    # Arrays, types and dates.
    ("$count(null)", 1),
    ("[$exists([1,2,3][-1].a), ([{'a':1},{'a':2}][0]).a, [{'a':1}].a]", [False, 1, 1]),
    ("1e20 & /a/ & [1..2]", "100000000000000000000[1,2]"),
    ("[true in [1], 1 in [1.0], null in [null], 'a' in 'a', [1] in [[1]]]", [False, True, True, True, False]),
    ("$sort([{'a':1,'b':1},{'a':1,'b':2},{'a':0}], function($l,$r){$l.a > $r.a}).b", [1, 2]),
    ("$distinct([[1],[1]])", [[1]]),
    ("$type(/a/)", "function"),
    ("$toMillis('2017-11')", 1_509_494_400_000),
    ("$toMillis('2017-11-07T15:07:54.972+0100')", 1_510_063_674_972),
    ("$fromMillis($toMillis('15:07', '[H]:[m]'))", "2026-01-01T15:07:00.000Z"),
    ("$fromMillis($toMillis('2005-01-01'), '[X0001]-W[W01]-[F1]')", "2004-W53-6"),
    ("$fromMillis(1483272000000, 'Week: [w] of [xNn]')", "Week: 5 of December"),
    ("$fromMillis(1510067557121, '[H01]:[m01] [Z]', '+0530')", "20:42 +05:30"),
    # Texts by UTF-16 units, and Base64 by their lower bytes, as JavaScript has them.
    ("$match('a😀', /./)[2].index", 2),
    ("$match('a😀b', /a(.+)b/).groups", ["😀"]),
    ("[$contains('😀', /^..$/), $contains('😀', /^.$/), $contains('😀', /\\ud83d/)]", [True, False, True]),
    ("[$length('😀'), $length($replace('a😀', /a/, '')), $split('x😀y', /x|y/)[1]]", [1, 1, "😀"]),
    ("[$split('a😀', ''), $split('a1b2c', /[0-9]/, 1.5)]", ["a", "\ufffd", "\ufffd", "a", "b"]),
    ("['😀' < '\uffff', $sort(['\uffff', '😀'])[0] = '😀']", [True, True]),
    # Regular expressions are JavaScript's.
    ("[$contains('a\n', /a$/), $contains('a\n', /a$/m), $contains('a\r', /a./)]", [False, True, False]),
    ("[$match('Ah{,2}', /\\A\\h{,2}/).match, $match('}[]', /}[[][^]/).match]", ["Ah{,2}", "}[]"]),
    ("$match('aba', /(?:(x)|a)\\1\\2(b)[\\d-z\\x61]/).groups", [None, "b"]),
    ("[$replace('\u00a0\ufeff', /\\s/, '-'), $match('abab', /(?<n>a)b\\k<n>/).groups]", ["--", "a"]),
    ("$replace('abc', function($s){$s ? {'match': 'b', 'start': 1, 'next': function(){$none}}}, '<$0>')", "a<b>c"),
    ("$formatNumber(0.123, '#.e9') & $formatNumber(1e21, '0') & $formatNumber(2.5, '#e0')", "0.1e01e+210.e1"),
    ("[$fromMillis(0, '[D01,2-4]|[D,*-3]'), $fromMillis(0, '[[x]].') , $toMillis('[1970', '[[[Y]')]",
     ["0001|001", "[x].", 0]),
    ("[$base64encode('é'), $base64encode('😀'), $base64decode('6Q==')]", ["6Q==", "PQA=", "é"]),
    # A regular expression is a function of a text and a place.
    ("$map(['a1', '2b', '33b'], /[a-z]/).start", [0, 1, 2]),
    ("$map(['ab', 'b', 'cb'], /b/).match", "b"),
    ("$filter(['abc', 'x', '..b'], /b/)", ["abc", "..b"]),
    ("($m := /b/('abcb'); $next := $m.next; $next()).start", 3),
    ("/(a)(x)?/('ab').groups[0]", "a"),
    ("['ab' ~> /b/ ~> function($m) { $m.end }, $map([10, 21], /1/).match]", [2, "1", "1"]),
    # Days that a month does not have, the hours of a zone rounded down, and years that have five digits.
    ("[$toMillis('2020-02-30') = $toMillis('2020-03-01'), $toMillis('2020-13-01')]", [True, "NaN"]),
    ("$toMillis('2020-01-01T24:00:00Z') - $toMillis('2020-01-01T00:00:00.570Z')", 86_399_430),
    ("[$toMillis('0000-01-01'), $toMillis('9999-12-31')]", [-62_167_219_200_000, 253_402_214_400_000]),
    ("$fromMillis(0, '[H01]:[m01] [Z]', '-0330')", "19:30 -04:30"),
    ("$fromMillis(0, '[H01]:[m01]', '+05:30')", "00:05"),
    ("[$fromMillis(-62167219200000), $fromMillis(253402300799999)]",
     ["0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"]),
    ("$fromMillis(1e15, '[Y]-[M]-[D] [FNn]')", "33658-9-27 Friday"),
    # Pictures that were made at random, and what jsonata 2.0.6 makes of them.
    ("$fromMillis(1204405500000, '[Hi]|[bA]|[xNn,3]|[W]|[w1-1]')", "xxi|undefined|February|9|0-4"),
    ("$fromMillis(1521801216617, '[Mn,4]-[ H0000 ](', '1400')", "march-0000("),
    ("$fromMillis(-1, '([MN,0-*][WIo][d001]', '+0100')", "(JANUARYI001"),
    ("$fromMillis(0, '[F0o,2] [Z0] [z00]', '12')", "04th +0:12 GMT+00:12"),
    ("$fromMillis(0, '[I1][H0000]:[m] [P,5-1]', 'abc')", "undefined0NaN:NaN am"),
    ("$fromMillis(-60000000000000, '[Y] [d] [X] [W] [F] [Y,*-2]')", "68 247 67 36 monday 68"),
    ("$toMillis('GMT-0330 1st of March 99, 12 am', '[z0000] [D1o] of [MNn] [Y,2-2], [h] [P]')", 920_255_400_000),
    ("$formatInteger(1e46, 'w')", "ten billion trillion trillion trillion"),
    ("[$formatInteger(999, '#:##0.00'), $formatInteger(1e46, 'a')]", [":.99", "efrqlkaagjbayygmgkaqooogwgacgimku"]),
    ("$parseInteger('one million, two hundred and twelve', 'w')", 1_000_212),
    # What is no number, and null in a copy.
    ("[0/0 ? 1 : 2, $boolean(0/0), $not(0/0), $count([1, 2][0/0])]", [2, False, True, 0]),
    ("[$formatInteger(0/0, 'I'), $formatInteger(-1/0, '#,##0'), $formatBase(1/0)]", ["", "-In,fin,ity", "Infinity"]),
    ("[$string(5e-324), $replace('a', 'z', function($m) { 1 })]", ["5e-324", "a"]),
    ("({'a': null} ~> |$|{}|).($type(a))", "null"),
    # What Step Functions adds (AWS measured).
    ("[$random(0), $random(7), $random(0.9)]", [0.730967787376657, 0.7306990420600421, 0.730967787376657]),
    ("$range(3, 3, 1)", 3),
    ("$range(5, 1, -1.5)", [5, 4, 3, 2, 1]),
    ("$partition([1,2,3])", [[1, 2, 3]]),
    ("$partition([1,2,3,4,5], 2.9)", [[1, 2], [3, 4], [5]]),
    ("$map(['{\"a\":1}', '{\"a\":2}'], $parse).a", [1, 2]),
    ("$hash('ñ', 'MD5')", "94e9342ecbb1458b6043ecd3bfcbc192"),
    ("$count($range(-9223372036854775808, 9223372036854775807, 9223372036854775807))", 3),
    # The library for Python has another answer than 2.0.6 in Node.js, or none.
    ("('a')[$string]", "a"),
    ("[1,2][function($x){$x}]", [1, 2]),
    ("[$sum ? 1 : 2, $sum and true ? 1 : 2, $boolean($sum) ? 1 : 2]", [1, 1, 2]),
    ("$filter([1,2], $sum)", [1, 2]),
    ("$map([1,2], $count)", [1, 1]),
    ("$map([1,2,3], $power(?, 2))", [1, 4, 9]),
    ("($f := $substring(?, 1, ?); $f('abc', 1))", "b"),
    ("[[1,2,3][-0.5], [1,2,3][-1.5], [1,2,3][2.9], [1,2,3][(-0.5)]]", [3, 2, 3, 3]),
    ("[$count([{'a':1}, {'a':2}].b[$not($exists(c))]), $count([{}].b[0]), $count({}.b[true].(1))]", [2, 0, 1]),
    ("[[1,2,3][[0,0]], [1,2,3][[-1,0]]]", [[1, 1], [1, 3]]),
    ("$contains('', /^$/)", True),
    ("$match('ab', /$/)", {"match": "", "index": 2, "groups": []}),
    ("$replace('', /^/, '-')", "-"),
    (r"$replace('a1_é٣', /\w|\d/, '-')", "---é٣"),
    (r"$replace('a1_é', /[^\w]/, '-')", "a1_-"),
    (r"$contains('é', /\b/)", False),
    # A pair of escapes is one character, also joined by &; half of one leaves an expression as U+FFFD.
    (r'"\uD834\uDD1E"', "\U0001d11e"),
    (r'"\uD834" & "\uDD1E"', "\U0001d11e"),
    (r'$length("\uD834\uDD1E")', 1),
    (r'{"\ud834\udd1e": "\uD834"}', {"\U0001d11e": "\ufffd"}),
    (r'$string(["\uDD1E"])', '["\ufffd"]'),
    # The bounds, from below (AWS measured).
    ("1" + "+1" * 99, 100),
    ("(" * 99 + "1" + ")" * 99, 1),
    ("1" + "~>$string" * 99, "1"),
    ("($f := function($x){ $x <= 0 ? 0 : 1 + $f($x-1) }; $f(31))", 31),
    ("$sum($map([1..20000], function($v){$v * 2}))", 400_020_000),
]  # fmt: skip


def test_a_function_returns_the_expected_value() -> None:
    """Each call returns the expected number, text, array or date, at the limits of the function's domain."""
    wrong = [(expression, got) for expression, value in RETURNED if (got := output(expression)) != value]
    assert not wrong


REFUSED = [
    ("$states.input.missing", "returned nothing (undefined)."),
    ("$range(1, 0, 1)", "returned nothing (undefined)."),
    ("1 + 'a'", 'T2002: The right side of the "+" operator must evaluate to a number'),
    # A function keeps its name, whatever variable holds it, in later executions too.
    ("($f := $sum; $f(['a']))", 'T0412: Argument 1 of function "sum" must be an array of "numbers"'),
    ("$sum(['a'])", 'T0412: Argument 1 of function "sum" must be an array of "numbers"'),
    ("$abs('a')", 'T0410: Argument 1 of function "abs" does not match function signature'),
    ("$number('x')", 'D3030: Unable to cast value to a number: "x"'),
    ("$eval('1')", "T1006: Attempted to invoke a non-function"),
    ("$nobody(1)", "T1006: Attempted to invoke a non-function"),
    ("$parse('1e999')", "D3137: Invalid JSON"),
    ("$error('no')", "D3137: no"),
    ("$states.input.missing[$error('no')]", "D3137: no"),
    ("$sum", "returned an unsupported result type."),
    ("$abs(null)", SIGNATURE.format(1, "abs")),
    ("$number(null)", SIGNATURE.format(1, "number")),
    ("$substring('hello', 'a')", SIGNATURE.format(2, "substring")),
    ("$split('a', 'b', null)", SIGNATURE.format(3, "split")),
    ("$count([1],[2])", SIGNATURE.format(2, "count")),
    ("$hash('a', 5)", SIGNATURE.format(2, "hash")),
    ("$parse('{}', 'x')", SIGNATURE.format(2, "parse")),
    ("$sum([null])", 'T0412: Argument 1 of function "sum" must be an array of "numbers"'),
    ("(1)(2)", "T1006: Attempted to invoke a non-function"),
    ("1/0 + 1", 'D1001: Number out of range: "Infinity"'),
    # A second match of nothing gets no further; a first one is taken.
    *(
        (search, "D1004: Regular expression matches zero length string")
        for search in ("$match('abab', /(?=b)/)", "$match('abc', /x*/)", "$match('baaa', /a*/)", "$split('abc', /x*/)")
    ),
    # What AWS answers with an identifier that is new each time has the code of $error here.
    ("$base64decode('!!!')", "D3137: The expression cannot be evaluated"),
    ("$string(1/0)", "D3001: Attempting to invoke string function on Infinity or NaN"),
    ("$replace('a', '', 'b')", "D3010: Second argument of replace function cannot be an empty string"),
    ("$replace('a', 'b', 'x', -1)", "D3011: Fourth argument of replace function must evaluate to a positive number"),
    ("$replace('a', /a/, function($m){1})", "D3012: Attempted to replace a matched string with a non-string value"),
    ("$split('a','b',-1)", "D3020: Third argument of split function must evaluate to a positive number"),
    ("$number('1_000')", 'D3030: Unable to cast value to a number: "1_000"'),
    ("$number(' 5 ')", 'D3030: Unable to cast value to a number: " 5 "'),
    ("$string([1/0])", 'D1001: Number out of range: "Infinity"'),
    ("$boolean([1/0])", 'D1001: Number out of range: "Infinity"'),
    ("$sum ~> 1", "T2006: The right side of the function application operator ~> must be a function"),
    ("$split('a', $uppercase)",
     'T1010: The matcher function argument passed to function "split" does not return the correct object structure'),
    ("$sqrt(-1)", "D3060: The sqrt function cannot be applied to a negative number: -1"),
    ("$power(-2, 0.5)",
     "D3061: The power function has resulted in a value that cannot be represented as a JSON number: "
     "base=-2, exponent=0.5"),
    ("$sort([1,'a'])",
     "D3070: The single argument form of the sort function can only be applied to an array of strings or an "
     "array of numbers.  Use the second argument to specify a comparison function"),
    ("$formatNumber(1, 'x')",
     f"D3086: {PICTURE}a passive character that is preceded by an active character and that is followed by "
     "another active character"),
    ("$formatNumber(1, '0%%')", f"D3082: {PICTURE}more than one instance of the 'percent' character"),
    ("$formatNumber(1, '0,,0')", f"D3089: {PICTURE}two adjacent instances of the 'grouping-separator' character"),
    ("$formatBase(1, 37)", "D3100: The radix of the formatBase function must be between 2 and 36.  It was given 37"),
    ("$toMillis('x')",
     'D3110: The argument of the toMillis function must be an ISO 8601 formatted timestamp. Given "x"'),
    ("$formatInteger(1, 'x')", 'D3130: Formatting or parsing an integer as a sequence starting with "x" is not '
     "supported by this implementation"),
    ("$formatInteger(1, '\u06600')",
     "D3131: In a decimal digit pattern, all digits must be from the same decimal group"),
    ("$fromMillis(1, '[q]')", 'D3132: Unknown component specifier "q" in date/time picture string'),
    ("$fromMillis(1, '[YN]')",
     "D3133: The 'name' modifier can only be applied to months and days in the date/time picture string, not \"Y\""),
    ("$now('[Y')", "D3135: No matching closing bracket ']' in date/time picture string"),
    ("$toMillis('2018 12', '[Y] [D]')",
     "D3136: The date/time picture string is missing specifiers required to parse the timestamp"),
    ("$pad('foo', -5.5)", "D3137: The expression cannot be evaluated"),
    ("$partition([1], -1)", "D3137: Second argument must be zero or greater"),
    ('$parse(\'{"a":1,"a":2}\')', "D3137: Invalid JSON"),
    ("$error('boom')", "D3137: boom"),
    ("$decodeUrl('%E0%A4%A')", 'D3140: Malformed URL passed to $decodeUrl(): "%E0%A4%A"'),
]  # fmt: skip


def test_a_function_refuses_with_a_code() -> None:
    """A failed call has JSONata's code and words, with the wrong argument."""
    causes = {expression: error if error.startswith("returned ") else THREW + error for expression, error in REFUSED}
    wrong = [(expression, said) for expression, cause in causes.items() if (said := failure(expression)) != cause]
    assert not wrong


@pytest.mark.parametrize("picture", [
    ("0.0;0.0;0.0", "D3080"), ("0.0.0", "D3081"), ("0‰‰", "D3083"), ("0%‰", "D3084"), (".", "D3085"), ("0,.0", "D3087"),
    ("0,", "D3088"), ("0#", "D3090"), ("##0.0#0", "D3091"), ("0e0%", "D3092"), ("#0e", "D3093"),
    ("0-#", "D3090"), ("0%%e-0", "D3093"),
])  # fmt: skip
def test_each_broken_rule_of_a_number_picture_has_its_own_code(picture: tuple[str, str]) -> None:
    """A picture that breaks one of XPath's rules fails with the code of that rule."""
    assert failure(f"$formatNumber(1, '{picture[0]}')").startswith(f"{THREW}{picture[1]}: ")


@pytest.mark.parametrize(
    "expression",
    [
        *("phone", "-phone", "phone in $states.input.b", "phone(1)", "phone ~> $string()", "[phone].other",
          "{phone: 1}"),
        *("$map($states.input.a, function($y){ phone })", "$count(phone[inner])", "phone.**.deeper"),
        *("$", "$.phone", "$[0]", "$string($)", "$$", "$$.phone", "$states.errorOutput", "[$states.errorOutput]"),
    ],
)  # fmt: skip
def test_a_reference_at_the_top_level_is_refused(expression: str) -> None:
    """At the top level a name, $ and $$ refer to nothing and are refused. Only a Catcher has $states.errorOutput."""
    state = {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True}
    with pytest.raises(DefinitionError):
        load({"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}})


@pytest.mark.parametrize(
    "expression",
    [
        *("$states.input.a[phone > 3]", "$states.input.a^(phone)", "$states.input.a{'k': phone}", "**.phone", "$phone"),
        *("$states.input ~> |phone|{'b': 1}|", "function($x){ $x.phone }", "$states.input.a[$ > 1]", "$states.error"),
    ],
)
def test_a_reference_below_the_top_level_is_accepted(expression: str) -> None:
    """In a predicate, a sort, a group and a transform a name is accepted, because it refers to the value before it."""
    state = {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True}
    assert load({"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}})
