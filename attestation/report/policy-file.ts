import { decodeHex, encodeUtf8 } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { type BundlePolicy, readPolicy } from '../evidence/policy.ts'
import { parseExactJson } from '../json/parse-strict.ts'
import type { Json } from '../json/value.ts'
import { type MeasurementSet, PolicyError, parseRoots } from '../nitro/policy.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import type { ProviderPolicy } from '../providers/evidence/provider-policy.ts'
import { configurationOf } from '../release/release.ts'
import type { ReleaseEntry, ReleaseList } from '../release/release-list.ts'
import { parseReleaseKey, type ReleaseTrust } from '../release/release-signatures.ts'
import { digestConfiguration, parseReleaseFile, readExpectedReleases } from './release-file.ts'

export type OneOrMore<Type> = Type | readonly Type[]

/** The enclaves that a reader trusts: `enclaves` of a policy. */
export type EnclavesPolicy = {
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
  /**
   * Roots of attestation documents: PEM, or SHA-256 of a certificate's DER (64 hex digits, or 32
   * bytes). Default: AWS's root.
   */
  readonly roots?: OneOrMore<string | Uint8Array>
}

/**
 * Whom a reader trusts: `policy.json` (client/policy.schema.json). Has `enclaves`, `providers` or
 * both. Never take any part from the gateway under test.
 */
export type Policy = {
  /** The JSON Schema for the file. Only editors use it. */
  readonly $schema?: string
  readonly enclaves?: EnclavesPolicy
  /**
   * Providers in TEEs (attestation/providers/evidence/formats.md). If given, no other provider is
   * trusted.
   */
  readonly providers?: OneOrMore<object>
}

/** Bytes. The release lists of many years fit. */
export const POLICY_BYTES_MAX = 8 * 1024 * 1024
/** The most providers of a policy. */
export const POLICY_PROVIDERS_MAX = 64

/** Parses the text of a policy, and checks its own members alone. Throws PolicyError. */
export function parsePolicy(bytes: Uint8Array): Policy {
  if (bytes.length > POLICY_BYTES_MAX)
    throw invalid(`expected a policy of at most ${POLICY_BYTES_MAX} bytes, got ${bytes.length}`)
  const json = withFieldName('policy', () => parseExactJson(bytes))
  checkPolicy(json)
  return json
}

/**
 * Returns what a policy demands of a bundle. Throws PolicyError as readEnclavesPolicy and
 * readProviderPolicies do.
 *
 * @example
 * const policy = await readPolicyFile(parsePolicy(file))
 * const { verdict } = await verifyBundle(bundle, policy)
 */
export async function readPolicyFile(
  policy: Policy,
  options: EnclaveOptions = {},
): Promise<BundlePolicy> {
  const enclaves = readEnclavesPolicy(policy, options)
  const providers = await readProviderPolicies(policy)
  return { ...enclaves, ...(providers === null ? {} : { providers }) }
}

type EnclaveOptions = { readonly allowDebug?: boolean }

/**
 * Null without `enclaves`. Throws PolicyError for malformed parts, for releases without a trusted
 * signature, and if no code or no configuration is accepted: any enclave would satisfy it.
 */
export function readEnclavesPolicy(
  policy: Policy,
  { allowDebug }: EnclaveOptions = {},
): BundlePolicy | null {
  checkPolicy(policy)
  const { enclaves } = ownMembers(policy)
  if (enclaves === undefined) return null
  checkNames(enclaves, 'enclaves', ENCLAVE_MEMBERS)
  const { measurements, configurations, roots, ...signed } = ownMembers(enclaves)
  const releases = withFieldName('enclaves.releases', () => readReleases(signed))
  const read: BundlePolicy = {
    measurements: withFieldName('enclaves.measurements', () =>
      valuesOf(measurements).map(readMeasurements),
    ),
    ...(releases === null ? {} : { releases }),
    configurations: withFieldName('enclaves.configurations', () =>
      valuesOf(configurations).map(readConfiguration),
    ),
    ...(roots === undefined
      ? {}
      : { roots: withFieldName('enclaves.roots', () => valuesOf(roots).flatMap(readRoot)) }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
  }
  checkDemands(read)
  return withFieldName('enclaves', () => readPolicy(read))
}

/** Null without `providers`. Throws PolicyError. */
export async function readProviderPolicies(
  policy: Policy,
): Promise<readonly ProviderPolicy[] | null> {
  checkPolicy(policy)
  const { providers } = ownMembers(policy)
  if (providers === undefined) return null
  const all = valuesOf(providers)
  if (all.length === 0 || all.length > POLICY_PROVIDERS_MAX)
    throw invalid(`expected providers to have 1 to ${POLICY_PROVIDERS_MAX}`)
  // Loaded only for a policy of providers: the module is a third of the verifier's code.
  const { parseProviderPolicy } = await import('../providers/evidence/provider-policy.ts')
  return all.map((provider, at) =>
    withFieldName(`providers.${at}`, () =>
      parseProviderPolicy(encodeUtf8(JSON.stringify(provider) ?? '')),
    ),
  )
}

const POLICY_MEMBERS = ['$schema', 'enclaves', 'providers']
const ENCLAVE_MEMBERS = [
  'releases',
  'releaseKeys',
  'releaseSigners',
  'measurements',
  'configurations',
  'roots',
]

function checkPolicy(policy: unknown): asserts policy is Policy {
  checkNames(policy, 'the policy', POLICY_MEMBERS)
  const { enclaves, providers } = ownMembers(policy)
  if (enclaves === undefined && providers === undefined)
    throw invalid('expected the policy to have enclaves, providers or both')
}

function checkNames(
  value: unknown,
  name: string,
  members: readonly string[],
): asserts value is Readonly<Record<string, unknown>> {
  if (!hasOwnMembersAlone(value)) throw invalid(`expected ${name} to be an object`)
  const unknown = Object.keys(value).find((member) => !members.includes(member))
  if (unknown !== undefined)
    throw invalid(
      `expected ${name} without ${unknown.slice(0, NAME_LENGTH_MAX)}: there are ${members.join(', ')}`,
    )
}

const NAME_LENGTH_MAX = 40

/** Refuses a policy that accepts every enclave. */
function checkDemands({
  measurements = [],
  releases = [],
  configurations = [],
}: BundlePolicy): void {
  if (measurements.length === 0 && releases.length === 0)
    throw invalid(
      'expected enclaves to name releases or measurements: without them, any enclave could sign',
    )
  const isConfigured = ({ release }: ReleaseEntry) => configurationOf(release) !== null
  if (configurations.length === 0 && (measurements.length > 0 || !releases.every(isConfigured)))
    throw invalid(
      'expected enclaves.configurations, or releases that all name a configuration: ' +
        'an operator could start accepted code with other providers',
    )
}

function readReleases({
  releases,
  releaseKeys,
  releaseSigners,
}: Pick<EnclavesPolicy, 'releases' | 'releaseKeys' | 'releaseSigners'>):
  | readonly ReleaseEntry[]
  | null {
  if (releases === undefined) {
    if (releaseKeys === undefined && releaseSigners === undefined) return null
    throw invalid(
      'expected enclaves.releases with enclaves.releaseKeys: a key alone accepts no release',
    )
  }
  if (valuesOf(releases).length === 0)
    throw invalid('expected enclaves.releases to have one or more')
  const keys = valuesOf(releaseKeys).map(parseReleaseKey)
  if (keys.length === 0)
    throw invalid(
      'expected enclaves.releaseKeys with enclaves.releases: anyone can write a release',
    )
  const trust: ReleaseTrust = {
    keys,
    ...(releaseSigners === undefined ? {} : { signersMin: releaseSigners }),
  }
  return valuesOf(releases).flatMap(
    (release) => readExpectedReleases(parseReleaseFile(jsonOf(release)), trust).entries,
  )
}

/** Returns the lists among `releases`, in their order. */
export function releaseLists(releases: EnclavesPolicy['releases']): readonly ReleaseList[] {
  return valuesOf(releases).flatMap((release) => {
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

/** The items of a member that may be one item. */
export function valuesOf<Type>(given: OneOrMore<Type> | undefined): readonly Type[] {
  if (given === undefined) return []
  return Array.isArray(given) ? given : [given as Type]
}

/** Names the member in the message, unless the message of `invalid` names it already. */
function withFieldName<Type>(name: string, read: () => Type): Type {
  try {
    return read()
  } catch (fault) {
    if (fault instanceof Named) throw fault
    // JSON.stringify throws TypeError for a value that is not JSON.
    const isTheirs = [FormatError, ProofError, PolicyError, TypeError].some(
      (known) => fault instanceof known,
    )
    if (!isTheirs || !(fault instanceof Error)) throw fault
    throw new Named(`${name}: ${fault.message}`, { cause: fault })
  }
}

class Named extends PolicyError {}

function invalid(message: string): PolicyError {
  return new Named(message)
}
