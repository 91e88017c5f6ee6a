"""Generated SQL92 filter expressions and property sets: typical ones, erroneous ones, and unusual ones."""

# ruff: noqa: RUF001 - digits and letters of other scripts are the point

from __future__ import annotations

import random
from collections.abc import Callable

Properties = dict[str, str]

NAMES = ("a", "b", "c", "TAGS", "_x", "$y", "A", "inn", "isNull", "trueish")
STRINGS = (
    "", "x", "abc", "it's", "''", "true", "TRUE", "falsch", "1", "3.5", "天舟", "😀", "a b", "%", "--", "/* */",
    "\n", "é",
)  # fmt: skip
INTEGERS = (
    "0", "1", "2", "3", "7", "10", "100", "2147483646", "2147483647", "2147483648", "4294967296",
    "9007199254740993", "9223372036854775807", "5l", "12L", "2147483648L",
)  # fmt: skip
ODD_INTEGERS = ("9223372036854775808", "99999999999999999999999", "0L", "007", "0x1F", "1_000", "٣")
FLOATS = (
    "1.0", "3.5", "2.", ".5", "1e3", "1E-3", "1.5e+2", ".1E1", "5.E1", "9007199254740993.0", "1e308",
    "4.9e-324", "0.1", "0012.5", "2147483648.0", "123456789012345678.0",
)  # fmt: skip
ODD_FLOATS = ("0.0", "0e5", "1e309", "1e-400", "1e", "1.2.3", "1d", "1.5f", "..5")
SPACES = (" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", " /* note */ ", " /***/ ", " -- note\n", "\f")
ODD_SPACES = (" /* open", " -- no line end", "\v", "\u00a0", " /**/ ", "--x\r")
JUNK = (
    "(", ")", ",", "=", "<", ">", "<>", "<=", ">=", "!=", "==", "+", "-", "*", "/", "%", "'", '"', "''", ";",
    ".", "#", "@", "AND", "or", "Not", "LIKE", "IN", "is", "NULL", "BETWEEN", "true", "FALSE", "contains",
    "StartsWith", "a", "b", "1", "'x'", "0.5", "é", "天", "\0", "ſ", "ı", "K", "--", "/*", "*/", "?", "&&",
    "||", "`", "\\", "{", "~",
)  # fmt: skip
VALUES = (
    "", " ", "x", "abc", "ABC", "it's", "true", "TRUE", "tRuE", "false", "yes", "0", "-0", "+0", "1", "+1",
    "-1", "01", "3", "3.5", "-3.5", "3.0", " 3 ", "3 ", "\t3.5\n", "3f", "3D", "3.5d", "1e3", "1E-3", "1e",
    "e1", ".5", "5.", ".", "+.5e-1", "-", "+", "+-1", "0x10", "0x1p4", "0x1.8p1", "0x.8P-2f", "0x1p5000",
    "-0x1p99999", "0x1p-2000", "NaN", "+NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf", "1e400", "-1e400",
    "1e-400", "4.9e-324", "2e-324", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "00000000000000000000000000000000005", "-00000000000000000000000000000000005", "1_000", "1,000", "１２",
    "٣", "𝟗", "²", "٣.٥", "天舟", "😀", "é", "\u00a03", "\u20033", "3\u00a0", "9007199254740993",
    "9007199254740992", "0.1", "100", "7", "10", "12", "a b", "abcabc", "1e99999999999", "0e99999999999",
    "1e-99999999999", "null", "12345678901234567890123456789012345678901234567890.5", "2147483647.0", "5l",
    "5L", "\x003", "3\x00", "''", "%", "−3",
)  # fmt: skip


class Cases:
    """A source of cases; the same seed gives the same.

    Args:
        seed: seed of the random numbers.
        searches: whether the library knows CONTAINS, STARTSWITH and ENDSWITH.
    """

    def __init__(self, seed: int, *, searches: bool = True) -> None:
        self._random = random.Random(seed)
        self._searches = searches

    def properties(self) -> Properties:
        """Return a property set; most have most properties."""
        pick = self._random
        return {name: self._value() for name in NAMES if pick.random() < 0.75}

    def _value(self) -> str:
        pick = self._random
        if pick.random() < 0.3:
            return str(pick.randint(-12, 12))
        if pick.random() < 0.1:
            return repr(pick.uniform(-20, 20))
        return pick.choice(VALUES)

    def expression(self) -> str:
        """Return an expression: most are valid; others follow the grammar randomly, and some of both are corrupted."""
        pick = self._random
        depth = pick.randint(0, 3)
        text = self._sound(depth) if pick.random() < 0.75 else self._or(depth)
        while pick.random() < 0.15:
            text = self._spoilt(text)
        return text

    def _space(self) -> str:
        pick = self._random
        return pick.choice(ODD_SPACES if pick.random() < 0.004 else SPACES)

    def _gap(self) -> str:
        return self._space() if self._random.random() < 0.7 else ""

    def _word(self, word: str) -> str:
        pick = self._random
        if pick.random() < 0.2:
            word = pick.choice((word.lower(), word.title(), "".join(pick.choice((c.lower(), c)) for c in word)))
        return self._space() + word + self._space()

    def _sound(self, depth: int) -> str:
        """Return a condition that is usually valid."""
        pick = self._random
        joint = self._word(pick.choice(("AND", "OR")))
        return joint.join(self._condition(depth) for _ in range(pick.choice((1, 1, 2, 2, 3))))

    def _condition(self, depth: int) -> str:
        pick = self._random
        if depth and pick.random() < 0.35:
            return f"{self._word('NOT') if pick.random() < 0.4 else ''}({self._sound(depth - 1)})"
        how = pick.random()
        if how < 0.3:
            return self._number() + self._gap() + pick.choice(("<", "<=", ">", ">=")) + self._gap() + self._number()
        if how < 0.55:
            return self._operand() + self._gap() + pick.choice(("=", "=", "<>")) + self._gap() + self._operand()
        if how < 0.65:
            limits = sorted(pick.randint(0, 12) for _ in "12")
            words = f"{self._negation()}{self._word('BETWEEN')}{limits[0]}{self._word('AND')}"
            return f"{self._number()}{words}{pick.choice((str(limits[1]), self._number()))}"
        if how < 0.75:
            return pick.choice(NAMES) + self._in(depth)
        if how < 0.85:
            return self._operand() + self._search(depth)
        if how < 0.95:
            word = self._word(pick.choice(("NULL", "NOT NULL")))
            return f"{self._operand()}{self._word('IS')}{word}"
        return pick.choice((*NAMES, "TRUE", "FALSE", "NULL"))

    def _number(self) -> str:
        pick = self._random
        how = pick.random()
        sign = "-" if pick.random() < 0.15 else ""
        if how < 0.55:
            return pick.choice(NAMES)
        if how < 0.75:
            return f"{sign}{pick.randint(0, 12)}"
        return sign + pick.choice(INTEGERS if how < 0.9 else FLOATS)

    def _operand(self) -> str:
        pick = self._random
        how = pick.random()
        if how < 0.55:
            return self._number()
        if how < 0.85:
            return self._string()
        return pick.choice(("TRUE", "FALSE", "true", f"({self._sound(0)})"))

    def _or(self, depth: int) -> str:
        count = self._random.choice((1, 1, 1, 2, 2, 3))
        return self._word("OR").join(self._and(depth) for _ in range(count))

    def _and(self, depth: int) -> str:
        count = self._random.choice((1, 1, 1, 2, 2, 3))
        return self._word("AND").join(self._equality(depth) for _ in range(count))

    def _equality(self, depth: int) -> str:
        pick = self._random
        text = self._comparison(depth)
        links = pick.choice((0, 0, 1, 1, 1, 1, 1, 1, 1, 2)) if depth else pick.choice((0, 1))
        for _ in range(links):
            how = pick.random()
            if how < 0.75:
                sign = pick.choice(("=", "=", "<>"))
                text += f"{self._gap()}{sign}{self._gap()}{self._comparison(depth)}"
            elif how < 0.88:
                text += self._word("IS") + self._word("NULL")
            else:
                text += self._word("IS") + self._word("NOT") + self._word("NULL")
        return text

    def _comparison(self, depth: int) -> str:
        pick = self._random
        text = self._unary(depth)
        for _ in range(pick.choice((0, 0, 0, 0, 1, 1, 1, 1, 1, 2) if depth else (0, 1))):
            text += self._tail(depth)
        return text

    def _tail(self, depth: int) -> str:
        pick = self._random
        kinds: list[Callable[[int], str]] = [self._order, self._order, self._order, self._between, self._between]
        kinds += [self._in, self._search]
        return pick.choice(kinds)(depth)

    def _order(self, depth: int) -> str:
        sign = self._random.choice(("<", "<=", ">", ">="))
        return f"{self._gap()}{sign}{self._gap()}{self._unary(depth)}"

    def _between(self, depth: int) -> str:
        limits = [self._unary(depth), self._unary(depth)]
        if self._random.random() < 0.5:
            limits = sorted(str(self._random.randint(0, 12)) for _ in "12")
        return f"{self._negation()}{self._word('BETWEEN')}{limits[0]}{self._word('AND')}{limits[1]}"

    def _in(self, depth: int) -> str:
        pick = self._random
        items = [self._string() for _ in range(pick.choice((1, 1, 2, 3, 6)))]
        if pick.random() < 0.03:
            items.append(pick.choice(("1", "a", "")))
        return f"{self._negation()}{self._word('IN')}({f'{self._gap()},{self._gap()}'.join(items)})"

    def _search(self, depth: int) -> str:
        if not self._searches:
            return self._order(depth)
        pick = self._random
        word = self._word(pick.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        wanted = self._string() if pick.random() < 0.97 else self._unary(depth)
        return f"{self._negation()}{word}{wanted}"

    def _negation(self) -> str:
        return self._word("NOT") if self._random.random() < 0.35 else ""

    def _unary(self, depth: int) -> str:
        pick = self._random
        how = pick.random()
        if how < 0.06:
            return "-" + self._gap() + self._unary(depth)
        if how < 0.09:
            return "+" + self._gap() + self._unary(depth)
        if how < 0.12:
            return self._word("NOT") + self._unary(depth)
        if depth and how < 0.25:
            return f"({self._gap()}{self._or(depth - 1)}{self._gap()})"
        return self._primary()

    def _primary(self) -> str:
        pick = self._random
        how = pick.random()
        if how < 0.5:
            return pick.choice(NAMES)
        if how < 0.72:
            return pick.choice(ODD_INTEGERS if pick.random() < 0.03 else INTEGERS)
        if how < 0.82:
            return pick.choice(ODD_FLOATS if pick.random() < 0.05 else FLOATS)
        if how < 0.92:
            return self._string()
        return pick.choice(("TRUE", "FALSE", "true", "False", "NULL", "null"))

    def _string(self) -> str:
        quoted = self._random.choice(STRINGS).replace("'", "''")
        return f"'{quoted}'"

    def _spoilt(self, text: str) -> str:
        pick = self._random
        at = pick.randint(0, len(text))
        how = pick.randrange(6)
        if how == 0:
            return text[:at] + text[at + 1 :]
        if how == 1:
            return text[:at] + pick.choice(JUNK) + text[at:]
        if how == 2:
            return f"{text[:at]} {pick.choice(JUNK)} {text[at:]}"
        if how == 3:
            return text[:at]
        if how == 4:
            return text + " " + pick.choice(JUNK) + " " + self._equality(0)
        end = min(len(text), at + pick.randint(1, 6))
        return text[:at] + text[end:]
