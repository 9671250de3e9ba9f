"""The safeguards of the item writer; :mod:`mutants` takes out one after the other.

Each is a name, the changes (file, text that is there once, text instead) and the tests,
one of which must notice.
"""

from __future__ import annotations

from typing import TypeAlias

Change: TypeAlias = tuple[str, str, str]
Given: TypeAlias = tuple[str, tuple[Change, ...], tuple[str, ...]]

KEY, VAL, ITEMS = "test_key.py::test_key_", "test_val.py::test_val_", "test_val_items.py::test_val_"

MUTANTS: tuple[Given, ...] = (
    (
        "a key column that may be NULL is not looked at",
        (("store/items/findings.py", '"nullable_key": "refuse"', '"nullable_key": "ignore"'),),
        (f"{KEY}1_none_in_a_unique_column[mariadb]",),
    ),
    (
        "a row without its key is sent",
        (
            ("store/items/judging.py", "if values.get(name) is None:", "if False:"),
            (
                "itemrows.py",
                "raise _NoKey(missing)",
                "return key",
            ),
            (
                "store/items/judging.py",
                "if None in column and name in target.declared.key:",
                "if False:",
            ),
            (
                "store/items/columnrules.py",
                "            if nullable:\n                return None\n",
                "            return None\n",
            ),
        ),
        (f"{KEY}1_none_in_a_unique_column[mariadb]", f"{KEY}1_none_in_a_unique_column[sqlite]"),
    ),
    (
        "keys of the product's own table are compared loosely",
        (
            (
                "store/columns.py",
                'return "utf8mb4_nopad_bin"',
                'return "utf8mb4_general_ci"',
            ),
        ),
        (f"{KEY}2_keys_that_differ_in_case_only[mariadb]",),
    ),
    (
        "a loose collation is not found",
        (('store/items/tablefindings.py', 'exact = "bin" in', 'exact = "" in'),),
        (
            f"{KEY}2_a_table_of_the_users_own[sqlite-False]",
            f"{KEY}2_a_table_of_the_users_own[mariadb-False]",
        ),
    ),
    (
        "keys are never normalised",
        (("itemvalues.py", 'return unicodedata.normalize("NFC", value)', "return value"),),
        (f"{KEY}3_one_word_in_two_spellings[sqlite-nfc-default]",),
    ),
    (
        "keys are always normalised",
        (
            (
                "itemrows.py",
                "self._compose = settings is not None and settings.normalize_keys",
                "self._compose = True",
            ),
        ),
        (f"{KEY}3_one_word_in_two_spellings[sqlite-as-it-comes-own]",),
    ),
    (
        "a second unique index is written past",
        (("store/items/targets.py", "self.careful = self.is_mysql and ", "self.careful = 0 and "),),
        (f"{KEY}4_a_second_unique_index_catches_no_upsert[mariadb-20]",),
    ),
    (
        "the first of equal keys wins",
        (
            (
                "store/items/batch.py",
                "self._target.meet(before.values, after.values)",
                "self._target.meet(after.values, before.values)",
            ),
        ),
        (f"{KEY}5_the_same_key_twice_on_one_page[sqlite-20-own]",),
    ),
    (
        "the first item decides the columns",
        (
            (
                "store/items/sending.py",
                "        if len(groups) < 2:\n            return self._upsert(entries)\n",
                "        first = next(iter(groups))\n"
                "        return self._upsert([\n"
                "            e._replace(fields=first, values={n: e.values.get(n) for n in first})\n"
                "            for e in entries\n"
                "        ])\n",
            ),
        ),
        (f"{KEY}6_items_with_different_fields_on_one_page[sqlite-1]",),
    ),
    (
        "None is no value",
        (
            (
                "itemvalues.py",
                "        for name, value in fields.items()\n    }\n    try:",
                "        for name, value in fields.items() if value is not None\n    }\n    try:",
            ),
        ),
        (f"{KEY}7_a_field_set_back_to_none_on_purpose[sqlite-unset]",),
    ),
    (
        "text is cut to its column",
        (
            (
                "store/items/textrules.py",
                "            if not in_bytes and len(kept) > size:\n"
                "                raise ValueError("
                'f"it has {len(kept)} characters, the column takes {size}")\n',
                "            kept = kept[:size]\n",
            ),
        ),
        (
            f"{KEY}8_keys_are_not_cut_to_the_column_length[mariadb]",
            f"{KEY}8_keys_are_not_cut_to_the_column_length[sqlite]",
        ),
    ),
    (
        "neither the rules nor the session are strict",
        (
            (
                "store/items/textrules.py",
                "            if not in_bytes and len(kept) > size:\n",
                "            if False:\n",
            ),
            (
                "store/items/columnrules.py",
                "if len(value) <= size and value[-1:] != padded:",
                "if value[-1:] != padded:",
            ),
            ("store/items/plaincolumns.py", " or max(map(len, values)) > size", ""),
            ("store/connections.py", "sql_mode='{_STRICT}'", "sql_mode=''"),
        ),
        (f"{KEY}8_keys_are_not_cut_to_the_column_length[mariadb]",),
    ),
    (
        "an index on the beginning of a key will do",
        (("store/items/findings.py", '"prefix_index": "refuse"', '"prefix_index": "ignore"'),),
        (f"{KEY}8_an_index_on_the_beginning_of_a_key",),
    ),
    (
        "the product's tables have the server's character set",
        (
            (
                "store/columns.py",
                'f"CHARACTER SET utf8mb4 COLLATE {exact_collation(compiler.dialect)}"',
                '"CHARACTER SET latin1"',
            ),
        ),
        (f"{VAL}1_every_text_into_the_product_s_own_tables[mariadb]",),
    ),
    (
        "a narrow column is asked for what it cannot hold",
        (
            ("store/items/textrules.py", "if _BEYOND_BMP.search(value):", "if False:"),
            ("store/connections.py", "sql_mode='{_STRICT}'", "sql_mode=''"),
        ),
        (f"{VAL}1_text_that_a_narrow_column_cannot_hold",),
    ),
    (
        "NaN is a number",
        (
            (
                "store/items/columnrules.py",
                '"float": _float,',
                '"float": lambda f, t, d, n: _careful(f, lambda value: value),',
            ),
        ),
        (f"{VAL}2_nan_and_infinity[sqlite-own]",),
    ),
    (
        "one bad row spoils its statement",
        (
            (
                "store/items/sending.py",
                "        if len(part) == 1:\n"
                "            self._refused.append((part[0], error))\n            return\n",
                "        self._refused += [(entry, error) for entry in part]\n        return\n",
            ),
        ),
        (f"{VAL}3_one_bad_row_in_a_good_page[sqlite]",),
    ),
    (
        "a list of one is its element",
        (
            (
                "itemvalues.py",
                "    if isinstance(value, (Mapping, list, tuple, set, frozenset)):\n",
                "    if isinstance(value, list) and len(value) == 1:\n"
                "        return _column_value(value[0])\n"
                "    if isinstance(value, (Mapping, list, tuple, set, frozenset)):\n",
            ),
        ),
        (f"{VAL}4_lists_and_dicts_in_plain_columns[sqlite-TEXT]",),
    ),
    (
        "dates are taken as they come",
        (
            (
                "store/items/columnrules.py",
                '"date": _date,',
                '"date": lambda f, t, d, n: _careful(f, lambda value: value),',
            ),
        ),
        (
            f"{VAL}5_dates_that_are_not_dates[sqlite-strict]",
            f"{VAL}5_dates_that_are_not_dates[mariadb-lax]",
        ),
    ),
    (
        "fields that nobody set count",
        (("itemfields.py", "n in known or not (every or v is None)", "True"),),
        (f"{ITEMS}6_items_of_every_kind[sqlite-own]",),
    ),
    (
        "an item that became None is passed by",
        (
            (
                "pipelines.py",
                'raise ValueError("a pipeline before this one returned None instead of the item")',
                "return item",
            ),
        ),
        (f"{ITEMS}6_a_pipeline_that_returns_none[sqlite]",),
    ),
    (
        "a field without a column is dropped in silence",
        (
            ("store/items/judging.py", 'if shape.unknown and rule == "stop":', "if False:"),
            ("store/items/judging.py", "            target.ignore(field)\n", "            pass\n"),
        ),
        (f"{ITEMS}7_a_field_the_table_does_not_have[sqlite-rating-4]",),
    ),
    (
        "a table is looked at only once",
        (("store/items/sending.py", "                raise Outdated from exc\n",
          "                raise\n"),),
        (f"{ITEMS}7_a_table_that_is_altered_during_the_run[mariadb]",),
    ),
    (
        "names are not quoted",
        (
            (
                "store/items/statements.py",
                "Column(spelt(name), NullType(), key=name)",
                "Column(spelt(name), NullType(), key=name, quote=False)",
            ),
        ),
        (f"{ITEMS}8_reserved_words_and_odd_names[sqlite]",),
    ),
)  # fmt: skip
