import { decodeHex, encodeUtf8 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { type BundlePolicy, readPolicy } from '../evidence/policy.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import type { Json } from '../json/value.ts'
import { type MeasurementSet, PolicyError, parseRoots } from '../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import { configurationOf } from '../release/release.ts'
import type { ReleaseEntry, ReleaseList } from '../release/release-list.ts'
import { parseReleaseKey, type ReleaseTrust } from '../release/release-signatures.ts'
import { digestConfiguration, parseReleaseFile, readExpectedReleases } from './expectation-files.ts'

/**
 * The expectations are malformed, or accept every enclave, or their releases lack a trusted
 * signature. The message names the member.
 */
export class ExpectationsError extends FormatError {
  override readonly name = 'ExpectationsError'

  constructor(message: string, options: { readonly cause?: unknown } = {}) {
    super('invalid_expectations', message)
    if ('cause' in options) this.cause = options.cause
  }
}

type OneOrMore<Type> = Type | readonly Type[]

/**
 * Which enclaves a checker accepts: their code, as signed releases or as measurements, and their
 * boot configuration. Never take any part from the gateway under test.
 */
export type Expectations = {
  /** The JSON Schema for a file of expectations. Only editors use it. */
  readonly $schema?: string
  /**
   * Signed releases or lists of releases, as published: the text, or its JSON value. Needs
   * `releaseKeys`.
   */
  readonly releases?: OneOrMore<string | object>
  /** Keys that sign releases, 64 hex digits each. */
  readonly releaseKeys?: OneOrMore<string>
  /** The number of `releaseKeys` that must have signed. Default 1. */
  readonly releaseSigners?: number
  /**
   * Sets of measurements: hex by name (`PCR0`), or bytes by index. One set must match. Each set
   * needs PCR0, the only register that identifies the image.
   */
  readonly measurements?: OneOrMore<MeasurementSet | Readonly<Record<string, string>>>
  /**
   * Boot configurations: the digest (64 hex digits, or 32 bytes), or the configuration itself.
   * Needed unless every release names its configuration.
   */
  readonly configurations?: OneOrMore<string | Uint8Array | object>
}

/** A file of expectations as JSON: the client's options `expect` and `roots` together. */
export type ExpectationsFile = Expectations & {
  /** Roots of attestation documents. Default: AWS's root. */
  readonly roots?: OneOrMore<string | Uint8Array>
}

/** Throws ExpectationsError. */
export function readExpectationsFile(
  { roots, ...expect }: ExpectationsFile,
  { allowDebug }: { readonly allowDebug?: boolean } = {},
): BundlePolicy {
  return readExpectations(expect, { roots, ...(allowDebug === undefined ? {} : { allowDebug }) })
}

/**
 * Throws ExpectationsError for malformed parts, for releases without a trusted signature, and if no
 * code or no configuration is expected.
 */
export function readExpectations(
  expect: Expectations,
  {
    roots,
    allowDebug,
  }: { readonly roots?: OneOrMore<string | Uint8Array> | undefined; readonly allowDebug?: boolean },
): BundlePolicy {
  if (!hasOwnMembersAlone(expect)) throw invalid('expected expect to be an object')
  const unknown = Object.keys(expect).find((name) => !MEMBERS.has(name))
  if (unknown !== undefined)
    throw invalid(`expected expect without ${unknown}: there are ${[...MEMBERS].join(', ')}`)
  const { measurements, configurations, ...signed } = ownMembers(expect)
  const releases = withFieldName('expect.releases', () => readReleases(signed))
  const policy: BundlePolicy = {
    measurements: withFieldName('expect.measurements', () =>
      listOf(measurements).map(readMeasurements),
    ),
    ...(releases === null ? {} : { releases }),
    configurations: withFieldName('expect.configurations', () =>
      listOf(configurations).map(readConfiguration),
    ),
    ...(roots === undefined
      ? {}
      : { roots: withFieldName('roots', () => listOf(roots).flatMap(readRoot)) }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
  }
  checkDemands(policy)
  return withFieldName('expect', () => readPolicy(policy))
}

const MEMBERS: ReadonlySet<string> = new Set([
  '$schema',
  'releases',
  'releaseKeys',
  'releaseSigners',
  'measurements',
  'configurations',
])

/** Refuses expectations that accept every enclave. */
function checkDemands({
  measurements = [],
  releases = [],
  configurations = [],
}: BundlePolicy): void {
  if (measurements.length === 0 && releases.length === 0)
    throw invalid(
      'expected expect to name releases or measurements: without them, any enclave could sign',
    )
  const isConfigured = ({ release }: ReleaseEntry) => configurationOf(release) !== null
  if (configurations.length === 0 && (measurements.length > 0 || !releases.every(isConfigured)))
    throw invalid(
      'expected expect.configurations, or releases that all name a configuration: ' +
        'an operator could start expected code with other providers',
    )
}

function readReleases({
  releases,
  releaseKeys,
  releaseSigners,
}: Pick<Expectations, 'releases' | 'releaseKeys' | 'releaseSigners'>):
  | readonly ReleaseEntry[]
  | null {
  if (releases === undefined) {
    if (releaseKeys === undefined && releaseSigners === undefined) return null
    throw invalid(
      'expected expect.releases with expect.releaseKeys: a key alone accepts no release',
    )
  }
  if (listOf(releases).length === 0) throw invalid('expected expect.releases to have one or more')
  const keys = listOf(releaseKeys).map(parseReleaseKey)
  if (keys.length === 0)
    throw invalid('expected expect.releaseKeys with expect.releases: anyone can write a release')
  const trust: ReleaseTrust = {
    keys,
    ...(releaseSigners === undefined ? {} : { signersMin: releaseSigners }),
  }
  return listOf(releases).flatMap(
    (release) => readExpectedReleases(parseReleaseFile(jsonOf(release)), trust).entries,
  )
}

/** Returns the lists among `releases`, in their order. */
export function releaseLists(releases: Expectations['releases']): readonly ReleaseList[] {
  return listOf(releases).flatMap((release) => {
    const file = parseReleaseFile(jsonOf(release))
    return file.kind === 'list' ? [file.signed.list] : []
  })
}

function readMeasurements(
  given: MeasurementSet | Readonly<Record<string, string>>,
): MeasurementSet {
  const set = readSet(given)
  if (set.has(IMAGE_REGISTER)) return set
  throw invalid('expected each set to have PCR0: no other register says which image runs')
}

const IMAGE_REGISTER = 0

/** A register by its name, `PCR8`, or by its number, `8`. The group captures the number. */
export const REGISTER_NAME = /^(?:PCR)?([0-9]|[12][0-9]|3[01])$/

function readSet(set: MeasurementSet | Readonly<Record<string, string>>): MeasurementSet {
  if (set instanceof Map) return new Map(set)
  if (!hasOwnMembersAlone(set)) throw invalid('expected each set to be an object or a Map')
  const read = new Map<number, Uint8Array>()
  for (const [name, value] of Object.entries(set)) {
    const [, index] = REGISTER_NAME.exec(name) ?? []
    if (index === undefined || typeof value !== 'string')
      throw invalid('expected each measurement to be hex by name, as in { PCR0: "…" }')
    if (read.has(Number(index))) throw invalid(`expected PCR${index} once in each set`)
    read.set(Number(index), decodeHex(value))
  }
  return read
}

function readConfiguration(value: string | Uint8Array | object): Uint8Array {
  if (value instanceof Uint8Array) return value
  if (typeof value === 'string' && DIGEST_FORM.test(value)) return decodeHex(value)
  if (typeof value === 'string' && !value.trimStart().startsWith('{'))
    throw invalid('expected each configuration to be a digest, 64 hex digits, or its JSON')
  return digestConfiguration(jsonOf(value))
}

/** A digest of a configuration, or of a root certificate. */
export const DIGEST_FORM = /^[0-9a-f]{64}$/i
const FINGERPRINT_BYTES = 32

function readRoot(root: string | Uint8Array): readonly Uint8Array[] {
  if (typeof root === 'string')
    return DIGEST_FORM.test(root) ? [decodeHex(root)] : parseRoots(encodeUtf8(root))
  if (!(root instanceof Uint8Array))
    throw invalid('expected each root to be PEM, 64 hex digits, or bytes')
  return root.length === FINGERPRINT_BYTES ? [root] : parseRoots(root)
}

/** Parses a text exactly. Another value is first converted to JSON text. */
function jsonOf(value: string | object): Json {
  return parseExactJson(encodeUtf8(typeof value === 'string' ? value : JSON.stringify(value)))
}

function listOf<Type>(given: OneOrMore<Type> | undefined): readonly Type[] {
  if (given === undefined) return []
  return Array.isArray(given) ? given : [given as Type]
}

function withFieldName<Type>(name: string, read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    if (fault instanceof ExpectationsError) throw fault
    // JSON.stringify throws TypeError for a value that is not JSON.
    const isTheirs = [FormatError, ProofError, PolicyError, TypeError].some(
      (known) => fault instanceof known,
    )
    if (!isTheirs || !(fault instanceof Error)) throw fault
    throw new ExpectationsError(`${name}: ${fault.message}`, { cause: fault })
  }
}

function invalid(message: string): ExpectationsError {
  return new ExpectationsError(message)
}
