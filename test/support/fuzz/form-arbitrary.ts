import fc from 'fast-check'
import { pngOf } from '../image-files.ts'
import { spoilBytes } from './hostile-bytes.ts'
import { hostileText } from './hostile-texts.ts'
import { type Dictionary, type Schema, valuesOf } from './schema-arbitrary.ts'
import { type Written, writeJson } from './written-json.ts'

/** A form as it is sent. */
export type WrittenForm = { readonly contentType: string; readonly bytes: Uint8Array }

type Part = { readonly headers: readonly string[]; readonly bytes: Uint8Array }

const BOUNDARY = 'fuzz-boundary'

/** Forms of an operation, by the schema of its body as an object; `image` is a small PNG. */
export function formsOf(
  schema: Schema,
  options: { readonly dictionary: Dictionary; readonly isSpoiled: boolean },
): fc.Arbitrary<WrittenForm> {
  const whole = valuesOf(schema, { ...options, isSpoiled: false }).map(partsOf)
  if (!options.isSpoiled) return whole.map((parts) => writeForm({ parts, ...SOUND }))
  const spoiled = fc.record({
    parts: fc
      .tuple(whole, fc.array(strangePart, { maxLength: 2 }), fc.nat({ max: 5 }))
      .map(spoilParts),
    lineBreak: fc.constantFrom('\r\n', '\r\n', '\n'),
    start: fc.constantFrom('', '', 'preamble\r\n', '\r\n'),
    end: fc.constantFrom('--\r\n', '--', '', '--\r\nepilogue', '\r\n'),
    separator: fc.constantFrom('--', '--', '', '---'),
    named: fc.constantFrom(
      BOUNDARY,
      BOUNDARY,
      `"${BOUNDARY}"`,
      'another',
      '""',
      `${BOUNDARY}; charset=x`,
    ),
  })
  const forms = spoiled.map(writeForm)
  const wounded = forms.chain((form) =>
    spoilBytes(fc.constant(form.bytes)).map((bytes) => ({ ...form, bytes })),
  )
  return fc.oneof(forms, wounded)
}

const SOUND = { lineBreak: '\r\n', start: '', end: '--\r\n', separator: '--', named: BOUNDARY }

function writeForm(form: {
  readonly parts: readonly Part[]
  readonly lineBreak: string
  readonly start: string
  readonly end: string
  readonly separator: string
  readonly named: string
}): WrittenForm {
  const { parts, lineBreak, start, end, separator, named } = form
  const pieces = parts.flatMap(({ headers, bytes }, index) => [
    Buffer.from(`${index === 0 ? start : lineBreak}${separator}${BOUNDARY}${lineBreak}`),
    Buffer.from(headers.map((header) => header + lineBreak).join('') + lineBreak),
    bytes,
  ])
  const bytes = Buffer.concat([...pieces, Buffer.from(`${lineBreak}${separator}${BOUNDARY}${end}`)])
  return { contentType: `multipart/form-data; boundary=${named}`, bytes }
}

const PNG = pngOf(8)

function partsOf(written: Written): readonly Part[] {
  if (written.kind !== 'object') throw new TypeError('expected the schema of an object')
  return written.members.flatMap(([name, member]): readonly Part[] => {
    if (name === 'image')
      return [
        { headers: ['Content-Disposition: form-data; name="image"; filename="a.png"'], bytes: PNG },
      ]
    const value: unknown = JSON.parse(writeJson(member))
    if (value === null) return []
    const headers = [`Content-Disposition: form-data; name="${name}"`]
    return [{ headers, bytes: Buffer.from(String(value)) }]
  })
}

const strangePart: fc.Arbitrary<Part> = fc.record({
  headers: fc.oneof(
    fc.constantFrom(
      ...[
        [],
        ['Content-Disposition: form-data'],
        ['content-disposition:form-data;name=n'],
        ['Content-Disposition: attachment; name="n"'],
      ],
      ...[
        ['Content-Disposition: form-data; name="mask"; filename="m"'],
        [`Content-Disposition: form-data; name="${'n'.repeat(9_000)}"`],
      ],
      ...[
        ['Content-Disposition: form-data; name="n"', 'Content-Transfer-Encoding: base64'],
        ['no header at all'],
      ],
      ...[
        ['Content-Disposition: form-data; name="__proto__"'],
        ['Content-Disposition: form-data; name="n%00%22"'],
      ],
    ),
    hostileText.map((text) => [`Content-Disposition: form-data; name="${text}"`]),
    fc
      .constantFrom('n', 'prompt', 'image', 'model')
      .map((name) => [`Content-Disposition: form-data; name="${name}"; filename="${name}"`]),
  ),
  bytes: fc.oneof(
    hostileText.map((text) => Buffer.from(text)),
    fc.uint8Array({ maxLength: 30 }),
    fc.constantFrom('0', '11', '1e1', ' 1', '-1', 'null').map((text) => Buffer.from(text)),
    spoilBytes(fc.constant(PNG)),
  ),
})

/** More parts than any caller sends. */
const MANY_PARTS = 40

function spoilParts([parts, strange, kind]: readonly [
  readonly Part[],
  readonly Part[],
  number,
]): readonly Part[] {
  const mixed = [...parts, ...strange]
  if (kind === 0) return mixed.slice(1)
  if (kind === 1)
    return Array.from({ length: MANY_PARTS }, (_, index) => mixed[index % mixed.length]).filter(
      (part) => part !== undefined,
    )
  if (kind === 2) return strange
  return mixed
}
