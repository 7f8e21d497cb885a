import { encodeHex } from '#attestation/bytes.ts'
import { isJsonArray, isJsonObject, type Json } from '#attestation/json/value.ts'
import { BOOT_CONFIGURATION, digestOf } from '../../attestation/evidence/build-evidence.ts'
import { PCR_VALUES, standardChain } from '../../support/nitro-builder/document-builder.ts'
import type { ConformanceCase, Demands, Expectation } from '../manifest.ts'

/** A file of the vectors: an existing one, or the content of a new one. */
export type Content =
  | { readonly path: string }
  | { readonly json: Json }
  | { readonly bytes: Uint8Array; readonly extension: string }

/** A case whose files are not written yet. */
export type Draft = Omit<ConformanceCase, 'source' | 'demands'> & {
  readonly source: Content
  readonly demands: DraftDemands
}

export type DraftDemands = Omit<
  Demands,
  'roots' | 'releases' | 'request' | 'answer' | 'crls' | 'policy'
> & {
  readonly policy?: Content
  readonly roots?: readonly Content[]
  readonly releases?: readonly Content[]
  readonly request?: Content
  readonly answer?: Content
  readonly crls?: readonly Content[]
}

type Row = readonly [about: string, source: unknown, demands?: DraftDemands]

/**
 * Gives a maker of cases from a table: by name, in the words of the manifest, the source (a Content
 * or JSON), and the demands if they are not the usual ones.
 */
export function tableOf(kind: ConformanceCase['kind'], usual: DraftDemands) {
  return (expect: Expectation, rows: Readonly<Record<string, Row>>): readonly Draft[] =>
    Object.entries(rows).map(([name, [about, source, demands = usual]]) => ({
      name: `${kind}/${name}`,
      about,
      kind,
      source: contentOf(source),
      demands,
      expect,
    }))
}

function contentOf(source: unknown): Content {
  const isContent =
    Object(source) === source && ('path' in Object(source) || 'bytes' in Object(source))
  return isContent ? (source as Content) : { json: source as Json }
}

/** A certificate as PEM. */
export function pemOf(der: Uint8Array): Content {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  const text = `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
  return { bytes: Buffer.from(text), extension: 'pem' }
}

/** A text as a file. */
export function textOf(text: string, extension = 'json'): Content {
  return { bytes: Buffer.from(text), extension }
}

/** The development root of all documents made here. */
export const ROOT: Content = pemOf(standardChain.cabundle[0] ?? new Uint8Array())

/** The measurements of all honest documents here. */
export const PCRS = Object.fromEntries(
  [0, 1, 2].map((index) => [String(index), encodeHex(PCR_VALUES.get(index) ?? new Uint8Array())]),
)

export const CONFIGURATION = encodeHex(new Uint8Array(digestOf(BOOT_CONFIGURATION)))

/** The expectations that verify a bundle made here. */
export const EXPECTED: DraftDemands = {
  roots: [ROOT],
  pcrs: PCRS,
  configurations: [CONFIGURATION],
}

/** The expectations that verify a record made here: it holds no boot configuration. */
export const EXPECTED_OF_RECORD: DraftDemands = { roots: [ROOT], pcrs: PCRS }

/** A copy with another value at a path, which may be new. */
export function setAt(value: Json, [name, ...rest]: readonly (string | number)[], to: Json): Json {
  if (name === undefined) return to
  if (isJsonArray(value))
    return value.with(Number(name), setAt(value[Number(name)] ?? null, rest, to))
  const members = isJsonObject(value) ? value : {}
  return { ...members, [name]: setAt(members[name] ?? null, rest, to) }
}

export const OFFLINE = 'block on chain'

export function verified(...notChecked: readonly string[]): Expectation {
  return { verdict: 'verified', failed: [], not_checked: notChecked }
}

export function incomplete(...notChecked: readonly string[]): Expectation {
  return { verdict: 'incomplete', failed: [], not_checked: notChecked }
}

export function invalid(failed: readonly string[], ...notChecked: readonly string[]): Expectation {
  return { verdict: 'invalid', failed, not_checked: notChecked }
}

/** Nothing contradicts the evidence, but the demands do not accept it. */
export function notAccepted(
  failed: readonly string[],
  ...notChecked: readonly string[]
): Expectation {
  return { verdict: 'not_accepted', failed, not_checked: notChecked }
}

/** The source cannot be read: there is no report to compare. */
export const UNREADABLE: Expectation = { verdict: 'invalid', failed: null, not_checked: null }
