import fc from 'fast-check'

/** Deepest nesting in these texts: far beyond the stack of a recursive parser. */
const NESTING_MAX = 100_000
const LONG_TEXT_LENGTH = 70_000

/** Texts that break programs which use them as names, patterns, SQL, paths or C strings. */
export const hostileText: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    ...[
      '',
      ' ',
      '\0',
      'a\0b',
      '\ud800',
      '\udfff\ud800',
      '\ufeff',
      '\u2028',
      '\u202e',
      '\x7f',
      '\x1b[2J',
    ],
    ...[
      '%',
      '%00',
      '_',
      "'",
      "';--",
      '"',
      '\\',
      '\\u0000',
      '$\x7b7*7}',
      '{{7*7}}',
      '../../etc/passwd',
    ],
    ...[
      '__proto__',
      'constructor',
      'toString',
      'hasOwnProperty',
      'null',
      'undefined',
      'NaN',
      '-1',
      '1e999',
    ],
    ...[
      'e\u0301'.repeat(300),
      '\u{1f468}\u200d\u{1f469}',
      'İ',
      '\r\nset-cookie: a=b',
      'data: x\n\ndata: [DONE]',
    ],
  ),
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
  fc.constant('x'.repeat(LONG_TEXT_LENGTH)),
)

const nesting = fc
  .tuple(
    fc.constantFrom('[', '{"a":', '[{"a":'),
    fc.constantFrom(70, 1_000, NESTING_MAX),
    fc.boolean(),
  )
  .map(([open, depth, isClosed]) => {
    const close = open === '[' ? ']' : open === '{"a":' ? '}' : '}]'
    return open.repeat(depth) + (isClosed ? `0${close.repeat(depth)}` : '')
  })

/** Texts in place of a JSON value: of any type, out of all bounds, or not JSON. */
export const hostileJsonText: fc.Arbitrary<string> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      'null',
      'true',
      'false',
      '0',
      '-1',
      '""',
      '[]',
      '{}',
      '[null]',
      '[[]]',
    ),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom(
      ...[
        '1e999',
        '-1e999',
        '1e-999',
        '-0',
        '0.1',
        '9007199254740993',
        '-9223372036854775809',
        '2147483648',
      ],
      ...['9'.repeat(400), `0.${'3'.repeat(400)}`, '1e308', '1E+2', '4294967296', '1.0'],
    ),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      ...[
        '',
        'NaN',
        'Infinity',
        'undefined',
        '01',
        '1.',
        '.5',
        '+1',
        '0x10',
        "'a'",
        '"',
        '"\t"',
        '"\\x"',
        '"\\ud8"',
      ],
      ...[
        '{',
        '}',
        '[',
        ']',
        ',',
        '{"a"}',
        '{"a":1,}',
        '[1,]',
        '// a\n1',
        '{a:1}',
        '\u00a0',
        '"a" "b"',
      ],
    ),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      ...[
        '{"__proto__":{"a":1}}',
        '{"constructor":{"prototype":{}}}',
        '{"toString":null}',
        '{"":0}',
        '{"a":1,"a":2}',
      ],
      ...['"\\ud800"', '"\\udc00\\ud800"', '{"\\ud800":1}', '{"\\u0000":1}', '["\\u0000"]'],
    ),
  },
  // Characters that databases refuse or terminals obey, in texts long enough for any name.
  { weight: 4, arbitrary: fc.constantFrom('"a\\u0000bc"', '"abc\\n"', '"abc\\u001b[2J"') },
  { weight: 4, arbitrary: hostileText.map((text) => JSON.stringify(text)) },
  { weight: 3, arbitrary: fc.json({ maxDepth: 3 }) },
  nesting,
)
