"""What becomes of a value in a column, on every database alike: one expected table."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

D = Decimal
BERLIN = timezone(timedelta(hours=2))


class Refused(str):
    """The words in the reason."""


class Case(NamedTuple):
    """A value for a column of a declared type, and what is stored or why it is not."""

    declared: str
    value: Any
    stored: Any
    coerced: bool = False


def _cases(declared: str, *pairs: tuple[Any, ...]) -> list[Case]:
    return [Case(declared, *pair) for pair in pairs]


def _refused(declared: str, why: str, *values: Any) -> list[Case]:
    return [Case(declared, value, Refused(why)) for value in values]


NAN, INF = float("nan"), float("inf")
NOT_FINITE = (NAN, INF, -INF, D("NaN"), D("sNaN"), D("-Infinity"), "NaN", "nan", "inf", "-Infinity")
NO_NUMBERS = ("abc", "12abc", "12,5", "0x10", "1_000", "١٢", "1 000", '["x"]', "1e", ".")
WRONG_FOR_NUMBERS = (b"5", date(2024, 1, 1), datetime(2024, 1, 1), time(1), timedelta(1))

INTEGERS = [
    *_cases(
        "BIGINT",
        (5, 5),
        (True, 1),
        (False, 0),
        (3.0, 3),
        (D("7.00"), 7),
        ("12", 12),
        ("12.0", 12),
        (" 7 ", 7),
        ("+1e1", 10),
        (-0.0, 0),
        (None, None),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (str(2**63 - 1), 2**63 - 1),
    ),
    *_refused(
        "BIGINT", "out of range", 2**63, -(2**63) - 1, 10**30, 10**5000, 1e300, D("1E+999999")
    ),
    *_refused("BIGINT", "out of range", "9223372036854775808", "1e400", D("1E+99999999999999")),
    *_refused("BIGINT", "no whole number", 3.7, D("3.5"), "3.5", 1e-300),
    *_refused("BIGINT", "not a finite number", *NOT_FINITE),
    *_refused("BIGINT", "no number", *NO_NUMBERS, "", " ", *WRONG_FOR_NUMBERS),
    *_cases("TINYINT", (127, 127), (-128, -128)),
    *_refused("TINYINT", "out of range", 128, -129, "300"),
    *_cases("SMALLINT", (32767, 32767)),
    *_refused("SMALLINT", "out of range", 32768),
    *_cases("MEDIUMINT", (8388607, 8388607)),
    *_refused("MEDIUMINT", "out of range", 8388608),
    *_cases("INT", (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))),
    *_refused("INT", "out of range", 2**31, -(2**31) - 1),
    *_cases("INT UNSIGNED", (0, 0), (2**32 - 1, 2**32 - 1)),
    *_refused("INT UNSIGNED", "out of range", -1, 2**32),
    *_cases("INT(4)", (123456, 123456)),
    *_cases("BOOLEAN", (True, 1), (False, 0), (1, 1), ("1", 1)),
    *_refused("BOOLEAN", "no number", "true", "yes", ""),
    *_cases("YEAR", (2024, 2024), ("2024", 2024), (1901, 1901), (2155, 2155)),
    *_refused("YEAR", "out of range", 0, 24, "24", 1900, 2156),
    *_cases("BIT(3)", (5, 5), (True, 1), ("5", 5)),
    *_refused("BIT(3)", "out of range", 8, -1),
]

NUMBERS = [
    *_cases(
        "DOUBLE",
        (0.1, 0.1),
        (5, 5.0),
        (True, 1.0),
        (D("0.5"), 0.5),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (1e308, 1e308),
        (5e-324, 5e-324),
        (None, None),
        (2**53, 2.0**53),
        (10**22, 1e22),
        (2**53 + 1, 2.0**53, True),
        (10**70 + 1, 1e70, True),
    ),
    *_refused("DOUBLE", "not a finite number", *NOT_FINITE, float("1e400")),
    *_refused("DOUBLE", "out of range", "1e400", 10**400, D("1E+400"), "-1e999999"),
    *_refused("DOUBLE", "no number", *NO_NUMBERS, "", *WRONG_FOR_NUMBERS),
    *_cases("FLOAT", (0.5, 0.5), (1e38, 1e38), (3, 3.0)),
    *_refused("FLOAT", "out of range", 1e39, -1e39, 10**39),
    *_refused("DOUBLE UNSIGNED", "out of range", -0.5, -1, "-1"),
    *_cases("DOUBLE(6,2)", (1234.5, 1234.5), (1234.567, 1234.57)),
    *_refused("DOUBLE(6,2)", "out of range", 12345.0, 9999.999),
    *_cases(
        "DECIMAL(10,2)",
        (D("12.30"), D("12.30")),
        (12, 12),
        ("12.5", D("12.5")),
        (12.5, D("12.5")),
        (True, 1),
        (None, None),
        (0.1 + 0.2, D("0.30")),
        (D("1E+5"), 100000),
        ("1e3", 1000),
        (D("-0.00"), 0),
        (D("0E+500"), 0),
        (D("99999999.99"), D("99999999.99")),
        (12.345, D("12.35"), True),
        (D("12.345"), D("12.35"), True),
        (D("-0.005"), D("-0.01"), True),
        ("99999999.994", D("99999999.99"), True),
        ("1e-400", 0, True),
    ),
    *_refused(
        "DECIMAL(10,2)", "out of range", 10**8, "99999999.995", 1e30, D("1E+999999"), -(10**8)
    ),
    *_refused("DECIMAL(10,2)", "out of range", 10**5000, "1e400"),
    *_refused("DECIMAL(10,2)", "not a finite number", *NOT_FINITE),
    *_refused("DECIMAL(10,2)", "no number", *NO_NUMBERS, "", *WRONG_FOR_NUMBERS),
    *_cases("DECIMAL", (7, 7), (1.5, 2, True)),
    *_cases("NUMERIC(5)", (99999, 99999)),
    *_refused("NUMERIC(5)", "out of range", 100000),
]

TEXTS = [
    *_cases(
        "VARCHAR(5)", ("abcde", "abcde"), ("", ""), ("ab ", "ab "), ("咖啡😎é™", "咖啡😎é™"),
        ("a\0b", "a\0b"), ("a'\\%", "a'\\%"), (12345, "12345"), (True, "1"), (1.5, "1.5"),
        (D("1.50"), "1.50"), (None, None), ("NaN", "NaN"), ('["x"]', '["x"]'), (1.0, "1.0"),
    ),
    *_refused("VARCHAR(5)", "it has 6 characters", "abcdef", "abcde ", "咖啡咖啡咖啡", 123456),
    *_refused("VARCHAR(5)", "half of a surrogate pair", "a\ud83d", "\udc80"),
    *_refused("VARCHAR(5)", "no text", b"abc", b""),
    *_refused("VARCHAR(5)", "not a finite number", NAN, INF, D("NaN")),
    *_refused("VARCHAR(5)", "digits", 10**5000),
    *_cases(
        "VARCHAR(40)", (date(2024, 1, 2), "2024-01-02"), (time(1, 2), "01:02:00"),
        (datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"), (timedelta(hours=26), "26:00:00"),
        (datetime(2024, 1, 2, 3, 4, 5, 600), "2024-01-02 03:04:05.000600"), (1e22, "1e+22"),
    ),
    *_cases("CHAR(3)", ("ab", "ab"), ("ab ", "ab"), ("abc      ", "abc"), ("äöü", "äöü")),
    *_refused("CHAR(3)", "it has 4 characters", "abcd", " abc"),
    *_cases("TINYTEXT", ("é" * 127, "é" * 127), ("x" * 255, "x" * 255)),
    *_refused("TINYTEXT", "it has 256 bytes", "é" * 128, "x" * 256),
    *_cases("LONGTEXT", ("x" * 70000, "x" * 70000), ("é" * 70000, "é" * 70000)),
    *_cases("VARBINARY(3)", (b"ab", b"ab"), (b"\xff\0'", b"\xff\0'"), ("é", "é".encode())),
    *_refused("VARBINARY(3)", "it has 4 bytes", b"abcd", "éé"),
    *_refused("VARBINARY(3)", "neither bytes nor text", 5, 1.5, True, date(2024, 1, 1)),
    *_refused("VARBINARY(9)", "half of a surrogate pair", "\ud83d"),
    *_cases("BINARY(4)", (b"ab", b"ab\0\0"), (b"abcd", b"abcd")),
    *_refused("BINARY(4)", "it has 5 bytes", b"abcde"),
    *_cases("TINYBLOB", (b"x" * 255, b"x" * 255), (bytes(range(256))[:200], bytes(range(200)))),
    *_refused("TINYBLOB", "it has 256 bytes", b"x" * 256),
    *_cases(
        "JSON", ('{"b":1,"a":"é"}', '{"b":1,"a":"é"}'), ("[]", "[]"), ('["x"]', '["x"]'),
        ('"x"', '"x"'), (None, None), ('["\\ud83d\\ude0e"]', '["\\ud83d\\ude0e"]'),
        ("[" * 31 + "]" * 31, "[" * 31 + "]" * 31),
    ),
    *_refused("JSON", "no JSON text", "abc", "", "NaN", "[Infinity]", "{'a':1}", "[1,]",
        "[" * 99999, '["\\ud83d"]', "[1.]"),
    *_refused("JSON", "half of a surrogate pair", '"\ud83d"'),
    *_refused("JSON", "nested deeper", "[" * 32 + "]" * 32, '{"a":' * 40 + "1" + "}" * 40),
    *_refused("JSON", "no JSON", b"[]", date(2024, 1, 1)),
    *_cases("JSON", (True, "true"), ("true", "true")),
    *_refused("JSON", "not a finite number", NAN, "1e400", "-1e400"),
    *_cases(
        "UUID", ("123E4567-E89B-12D3-A456-426655440000", "123e4567-e89b-12d3-a456-426655440000"),
    ),
    *_refused("UUID", "no UUID", "x", "", 5, "123e4567-e89b-12d3-a456"),
    *_cases("INET6", ("::1", "::1"), ("2001:DB8::", "2001:db8::")),
    *_refused("INET6", "no INET6", "1.2.3.4", "x", "", 65536, b"0123456789abcdef"),
    *_cases("INET4", ("1.2.3.4", "1.2.3.4")),
    *_refused("INET4", "no INET4", "::1", "1.2.3", "256.1.1.1", 5),
]  # fmt: skip

NO_DATES = ("yesterday", "2024-1-5", "20240101", "01.02.2024", "2024-01-01x", "2024-W01-1", "NaT")
NEVER = ("2024-02-30", "2023-02-29", "2024-13-01", "2024-00-10", "0000-00-00", "2024-01-00")
NEVER_TIMES = ("0000-00-00 00:00:00", "2024-01-01T24:00:00", "2024-01-01 10:61:00")
NEVER_TIMES += ("2024-06-30T23:59:60Z", "0001-01-01T00:00:00+02:00", "2024-01-01T10:00:00+25:00")
WRONG_FOR_DATES = (20240101, 1700000000, 1.5, True, D(5), b"2024-01-01", time(1), timedelta(1))

DATES = [
    *_cases(
        "DATETIME", (datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        (datetime(2024, 1, 2, 3, 4, 5, 999999), "2024-01-02 03:04:05"), (None, None),
        (datetime(2024, 1, 2, 3, tzinfo=timezone.utc), "2024-01-02 03:00:00"),
        (datetime(2024, 1, 1, 1, tzinfo=BERLIN), "2023-12-31 23:00:00"),
        (date(2024, 1, 2), "2024-01-02 00:00:00"), ("2024-01-02", "2024-01-02 00:00:00"),
        ("2024-01-01T10:00:00Z", "2024-01-01 10:00:00"),
        ("2024-01-01 10:00", "2024-01-01 10:00:00"),
        ("2024-01-01T10:00:00+02:00", "2024-01-01 08:00:00"),
        (" 2024-02-29 ", "2024-02-29 00:00:00"),
        ("2024-01-01T10:00:00.987654321Z", "2024-01-01 10:00:00"),
        (datetime.min, "0001-01-01 00:00:00"),
        ("2024-01-01T10:00:00-0330", "2024-01-01 13:30:00"),
        ("2024-01-01 10:00:00 +02", "2024-01-01 08:00:00"),
        (datetime.max, "9999-12-31 23:59:59"),
    ),
    *_refused("DATETIME", "no ISO date", *NO_DATES),
    *_refused("DATETIME", "empty", "", "  "),
    *_refused("DATETIME", "no such date", *NEVER, *NEVER_TIMES),
    *_refused("DATETIME", "is no date", *WRONG_FOR_DATES),
    *_refused("DATETIME", "no such date in UTC", datetime(1, 1, 1, tzinfo=BERLIN)),
    *_cases(
        "DATETIME(6)", (datetime(2024, 1, 2, 3, 4, 5, 6), "2024-01-02 03:04:05.000006"),
        ("2024-01-01T10:00:00.5Z", "2024-01-01 10:00:00.500000"), (date(2024, 1, 2),
        "2024-01-02 00:00:00.000000"),
    ),
    *_cases("DATETIME(3)", (datetime(2024, 1, 2, 3, 4, 5, 678999), "2024-01-02 03:04:05.678")),
    *_cases("DATETIME(2)", (datetime(2024, 1, 2, 3, 4, 5, 678999), "2024-01-02 03:04:05.67")),
    *_cases(
        "DATE", (date(2024, 1, 2), "2024-01-02"), ("2024-01-02", "2024-01-02"), (None, None),
        (datetime(2024, 1, 2), "2024-01-02"), ("2024-01-02T00:00:00Z", "2024-01-02"),
        (datetime(2024, 1, 2, 3), "2024-01-02", True), ("2024-01-02T03:00:00", "2024-01-02", True),
        (datetime(2024, 1, 2, tzinfo=BERLIN), "2024-01-01", True),
    ),
    *_refused("DATE", "no ISO date", *NO_DATES),
    *_refused("DATE", "empty", ""),
    *_refused("DATE", "no such date", *NEVER),
    *_refused("DATE", "is no date", *WRONG_FOR_DATES),
    *_cases(
        "TIMESTAMP NULL", (datetime(1970, 1, 1, 0, 0, 1), "1970-01-01 00:00:01"), (None, None),
        (datetime(2038, 1, 19, 3, 14, 7), "2038-01-19 03:14:07"),
    ),
    *_refused("TIMESTAMP NULL", "of 1970 to 2038", datetime(1970, 1, 1),
        datetime(2038, 1, 19, 3, 14, 8), "1969-01-01"),
    *_refused("TIMESTAMP NULL", "no such date", "0000-00-00", "2024-02-30"),
    *_cases(
        "TIME", (time(1, 2, 3), "01:02:03"), (time(1, 2, 3, 999999), "01:02:03"),
        ("10:00", "10:00:00"),
        ("10:00:00.5", "10:00:00"), (timedelta(hours=25), "25:00:00"), ("-100:00:01", "-100:00:01"),
        (timedelta(minutes=-1), "-00:01:00"), ("838:59:59", "838:59:59"), (None, None),
        (time(1, 0, tzinfo=BERLIN), "23:00:00"), ("10:00:00Z", "10:00:00"),
        ("10:00+02:00", "08:00:00"),
    ),
    *_refused("TIME", "no time", "abc", "", "10", "1:2", 36000, 1.5, True, b"10:00",
        datetime(2024, 1, 1), date(2024, 1, 1)),
    *_refused("TIME", "no such time", "10:60", "10:00:60"),
    *_refused("TIME", "no fixed offset", time(10, tzinfo=ZoneInfo("Europe/Berlin"))),
    *_refused("TIME", "no such zone", "10:00+25:00", "10:00+02:60"),
    *_refused("TIME", "out of range", "839:00:00", timedelta(hours=839), timedelta(days=-99999)),
    *_refused("TIME", "only a time of the day has a zone", "25:00Z", "-01:00Z"),
    *_cases("TIME(3)", (time(1, 2, 3, 4567), "01:02:03.004"), ("1:00:00", "01:00:00.000")),
]  # fmt: skip

MYSQL_ONLY = [
    *_cases("JSON", (5, "5"), ("1.0", "1.0"), (1.5, "1.5"), (10**30, str(10**30))),
    *_cases("ENUM('a','b''c','1')", ("a", "a"), ("b'c", "b'c"), ("1", "1"), (1, "1"), (None, None)),
    *_refused("ENUM('a','b''c','1')", "none of the column's words", "A", "", "2", 2, "a ", True,
        b"a", 1.0),
    *_cases("SET('a','b','c')", ("c,a", "a,c"), ("", ""), ("b", "b"), (None, None)),
    *_refused("SET('a','b','c')", "another word", "a,x", "A", "a,,b", '["a"]'),
    *_refused("SET('a','b','c')", "no text", 3, b"a", True),
    *_cases("BIGINT UNSIGNED", (2**64 - 1, 2**64 - 1)),
    *_cases("FLOAT(30)", (1e300, 1e300)),
    *_cases("LONG", ("x" * 70000, "x" * 70000)),
    *_cases("TEXT(100)", ("x" * 300, "x" * 300)),
    *_refused("TEXT(10)", "it has 256 bytes", "x" * 256),
    *_cases("NATIONAL VARCHAR(3)", ("äöü", "äöü")),
    *_refused("BIGINT UNSIGNED", "out of range", 2**64, -1),
    *_refused("DECIMAL(5,2) UNSIGNED", "out of range", D("-0.01"), -1),
    *_cases("DECIMAL(65,30)", (D("1" * 35 + "." + "2" * 30), D("1" * 35 + "." + "2" * 30))),
    *_cases("VARCHAR(5) CHARACTER SET utf8mb3", ("咖啡", "咖啡")),
    *_refused("VARCHAR(5) CHARACTER SET utf8mb3", "character set", "😎", "a😎"),
    *_refused("VARCHAR(5) CHARACTER SET ascii", "character set", "é"),
    *_cases("VARCHAR(5) CHARACTER SET latin1", ("é€™", "é€™")),
    *_cases("TINYTEXT CHARACTER SET latin1", ("é" * 255, "é" * 255)),
]  # fmt: skip

SQLITE_ONLY = [
    *_cases("FLOAT(30)", (1e300, 1e300)),
    *_cases("JSON", (5, 5), ("-5", -5), (0, 0)),
    *_refused("JSON", "SQLite would change this number", 1.5, "1.0", "1e3", 10**19, "-0"),
    *_cases("INTEGER", (2**63 - 1, 2**63 - 1), (2**31, 2**31)),
    *_refused("INTEGER", "out of range", 2**63),
    *_refused("BIGINT UNSIGNED", "out of range", 2**63),
    *_cases("TEXT", ("é" * 70000, "é" * 70000), (5, "5")),
    *_cases("BLOB", (b"x" * 70000, b"x" * 70000), ("é", "é".encode())),
    *_cases("REAL", (1e300, 1e300), (5, 5.0)),
    *_cases("NUMERIC", (0.5, 0.5), ("12.50", D("12.5")), (7, 7), (D("0.1"), D("0.1"))),
    *_refused("NUMERIC", "no number", "abc", ""),
    *_refused("NUMERIC", "so many digits", D("1.23456789012345678"), 10**400, D("1E+400")),
    *_refused("DECIMAL(65,30)", "so many digits", D("0.123456789012345678901"), 2**63 + 1),
    *_cases("STRING", ("abc", "abc"), (5, 5), (True, 1)),
    *_refused("STRING", "declare the column as TEXT", "007", "1e3", " 5"),
    *_cases("", ("007", "007"), (5, 5), (b"x", b"x"), (D("1.5"), 1.5)),
    *_cases("NVARCHAR(3)", ("äöü", "äöü")),
    *_refused("NVARCHAR(3)", "it has 4 characters", "äöüß"),
    *_cases("UNSIGNED BIG INT", (5, 5)),
    *_cases("MY_TEXT", ("x" * 300, "x" * 300)),
]

EVERYWHERE = [*INTEGERS, *NUMBERS, *TEXTS, *DATES]
