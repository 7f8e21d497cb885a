import fc from 'fast-check'
import { hostileText } from './hostile-texts.ts'
import { type Dictionary, type Schema, valuesOf } from './schema-arbitrary.ts'
import { writeJson } from './written-json.ts'

/** A parameter of an operation, as the OpenAPI document has it. */
export type Parameter = {
  readonly name: string
  readonly in: 'path' | 'query' | 'header'
  readonly required: boolean
  readonly schema: Schema
}

/** Texts at which percent-decoding can fail, and texts that it can hide. */
const RAW = [
  '%',
  '%0',
  '%zz',
  '%00',
  '%ff',
  '%ed%a0%80',
  '%c0%af',
  '%2f',
  '%2e%2e%2f',
  '+',
  '%25%30',
  '&',
  '=',
  '[]',
  '%u0041',
]

/** In a path, an empty text would give another path. */
const NO_TEXT = '%20'

const hostileParameter = fc.oneof(
  hostileText.filter((text) => text.length < 5_000).map(encode),
  fc.constantFrom(...RAW),
  fc.constantFrom('%00', 'a%00b'),
  fc
    .constantFrom(
      '9007199254740993',
      '999999999999999',
      '-1',
      '1e3',
      '0x10',
      '١٢',
      '+5',
      '1.5',
      '00',
    )
    .map(encode),
  fc
    .uint8Array({ maxLength: 6 })
    .map((bytes) => Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')),
)

/**
 * Path and query of an operation, with parameters that fit its schemas. With `isSpoiled`,
 * parameters may be hostile, strange, repeated or missing.
 */
export function targetsOf(
  path: string,
  parameters: readonly Parameter[],
  options: { readonly dictionary: Dictionary; readonly isSpoiled: boolean },
): fc.Arbitrary<string> {
  const { isSpoiled } = options
  const textOf = ({ name, schema }: Parameter) => {
    const fitting = valuesOf(schema, { ...options, isSpoiled: false }, name).map((value) =>
      encode(textIn(writeJson(value))),
    )
    return isSpoiled ? fc.oneof(fitting, hostileParameter) : fitting
  }
  const filled = fc
    .tuple(
      ...parameters
        .filter((one) => one.in === 'path')
        .map((one) => textOf(one).map((text) => [one.name, text === '' ? NO_TEXT : text] as const)),
    )
    .map((values) => values.reduce((at, [name, text]) => at.replace(`{${name}}`, () => text), path))
  const asked = parameters
    .filter((one) => one.in === 'query')
    .map((one) => {
      const written = textOf(one).map((text) => [`${one.name}=${text}`])
      const isSure = one.required && !isSpoiled
      return isSure ? written : fc.oneof(written, fc.constant<string[]>([]))
    })
  const strange = fc
    .tuple(hostileParameter, hostileParameter)
    .map(([name, value]) => `${name}=${value}`)
  const repeated = fc.constantFrom('', ...asked.map((_, index) => String(index)))
  return fc
    .tuple(
      filled,
      fc.tuple(...asked),
      fc.array(strange, { maxLength: isSpoiled ? 2 : 0 }),
      repeated,
    )
    .map(([at, all, others, again]) => {
      const pairs = [
        ...all.flat(),
        ...(isSpoiled && again !== '' ? (all[Number(again)] ?? []) : []),
        ...others,
      ]
      return pairs.length > 0 ? `${at}?${pairs.join('&')}` : at
    })
}

/** A JSON text's value as a parameter carries it; null gives an empty text. */
function textIn(json: string): string {
  const value: unknown = JSON.parse(json)
  return value === null ? '' : String(value)
}

function encode(text: string): string {
  return encodeURIComponent(text.toWellFormed())
}
