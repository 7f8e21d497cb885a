import { decodeHex } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { isJsonObject, type Json, memberOf } from '../json/value.ts'
import { PCR_BYTES } from '../nitro/document.ts'
import { ownMembers } from '../own-members.ts'
import {
  parseSignatures,
  type ReleaseSignature,
  releaseForms,
  timeOf,
} from './release-signatures.ts'

const { hexOf, invalid, membersOf, objectOf, textOf } = releaseForms

/** Version 1. This text is at the start of the bytes that are signed. */
export const RELEASE_FORMAT = 'affidavit-release/v1'

export const INPUTS_MAX = 1_024

/** Maximum size of a release or a list. A list of 256 releases with 40 inputs each has 1.2 MB. */
export const RELEASE_FILE_BYTES_MAX = 4 * 1024 * 1024

const ARCHITECTURES = ['x86_64', 'aarch64'] as const

/** Measurements of an image, SHA-384 as 96 hex digits. A signed image also has PCR8. */
export type ReleaseMeasurements = {
  readonly PCR0: string
  readonly PCR1: string
  readonly PCR2: string
  readonly PCR8?: string
}

/** A release of the enclave: the signed payload (../formats.md, Releases). */
export type Release = {
  readonly version: string
  /** The commit from which the image is built: 40 hex digits. */
  readonly git_commit: string
  /** The time of the commit, ISO 8601. No check uses this time. */
  readonly created_at: string
  readonly architecture: (typeof ARCHITECTURES)[number]
  readonly measurements: ReleaseMeasurements
  /** Inputs of the image builder besides the sources. By name: the input's SHA-256 in hex. */
  readonly inputs: Readonly<Record<string, string>>
  /**
   * Digest of the image's boot configuration (digestBootConfiguration), 64 hex digits: providers,
   * CAs, chain and contract. Older releases do not have this member.
   */
  readonly configuration?: string
}

/** A release with its signatures: the content of the published file `measurements.json`. */
export type SignedRelease = {
  readonly format: typeof RELEASE_FORMAT
  readonly release: Release
  readonly signatures: readonly ReleaseSignature[]
}

/**
 * Reads the signed release in attacker-controlled `json` (read its text with parseExactJson). It
 * must have exactly the members of version 1, each in its canonical form. Throws FormatError
 * `unknown_release_format`, `invalid_release` naming the member, and `invalid_release_key`. Does
 * NOT prove who signed it: see verifyRelease.
 */
export function parseSignedRelease(json: Json): SignedRelease {
  if (!isJsonObject(json) || memberOf(json, 'format') !== RELEASE_FORMAT)
    throw new FormatError('unknown_release_format', `expected format to be ${RELEASE_FORMAT}`)
  const signed = membersOf(json, 'the signed release', ['format', 'release', 'signatures'])
  return {
    format: RELEASE_FORMAT,
    release: parseRelease(signed.release, 'release'),
    signatures: parseSignatures(signed.signatures),
  }
}

/**
 * Reads attacker-controlled `json`, the payload. Error messages use `name` for the release. Throws
 * FormatError `invalid_release`.
 */
export function parseRelease(json: Json, name = 'release'): Release {
  const isConfigured = isJsonObject(json) && Object.hasOwn(json, 'configuration')
  const release = membersOf(json, name, isConfigured ? CONFIGURED_RELEASE_MEMBERS : RELEASE_MEMBERS)
  const payload = {
    version: textOf(release.version, `${name}.version`, VERSION),
    git_commit: hexOf(release.git_commit, `${name}.git_commit`, COMMIT_BYTES),
    created_at: timeOf(release.created_at, `${name}.created_at`),
    architecture: architectureOf(release.architecture, `${name}.architecture`),
    measurements: parseMeasurements(release.measurements, `${name}.measurements`),
    inputs: parseInputs(release.inputs, `${name}.inputs`),
  }
  if (!isConfigured) return payload
  const configuration = memberOf(json, 'configuration')
  return { ...payload, configuration: hexOf(configuration, `${name}.configuration`, SHA256_BYTES) }
}

/** The digest of a release's boot configuration, 32 bytes. Null if it is not stated. */
export function configurationOf(release: Release): Uint8Array | null {
  const { configuration } = ownMembers(release)
  return configuration === undefined ? null : decodeHex(configuration)
}

const RELEASE_MEMBERS = [
  'version',
  'git_commit',
  'created_at',
  'architecture',
  'measurements',
  'inputs',
] as const

const CONFIGURED_RELEASE_MEMBERS = [...RELEASE_MEMBERS, 'configuration'] as const

const VERSION = {
  form: /^[0-9A-Za-z.+-]{1,64}$/,
  expectation: '1 to 64 letters, digits, dots, + and -',
}

/** Git names commits by SHA-1. */
const COMMIT_BYTES = 20

/** Printable ASCII, so that two names never look the same, and no name has control characters. */
const INPUT_NAME = /^[\x21-\x7e]{1,200}$/

const SHA256_BYTES = 32

function architectureOf(json: Json, name: string): Release['architecture'] {
  const architecture = ARCHITECTURES.find((known) => known === json)
  if (architecture === undefined) throw invalid(name, ARCHITECTURES.join(' or '))
  return architecture
}

function parseMeasurements(json: Json, name: string): ReleaseMeasurements {
  const isImageSigned = isJsonObject(json) && Object.hasOwn(json, 'PCR8')
  const given = membersOf(
    json,
    name,
    isImageSigned ? ['PCR0', 'PCR1', 'PCR2', 'PCR8'] : ['PCR0', 'PCR1', 'PCR2'],
  )
  const measurements = {
    PCR0: measurementOf(given.PCR0, `${name}.PCR0`),
    PCR1: measurementOf(given.PCR1, `${name}.PCR1`),
    PCR2: measurementOf(given.PCR2, `${name}.PCR2`),
  }
  return isImageSigned
    ? { ...measurements, PCR8: measurementOf(given.PCR8, `${name}.PCR8`) }
    : measurements
}

/** Refuses zeros, which identify no code: debug mode and unsigned images have zeros. */
function measurementOf(json: Json | undefined, name: string): string {
  const hex = hexOf(json, name, PCR_BYTES)
  if (/^0*$/.test(hex)) throw invalid(name, 'a measurement other than zeros')
  return hex
}

function parseInputs(json: Json, name: string): Release['inputs'] {
  const inputs = Object.entries(objectOf(json, name))
  if (inputs.length > INPUTS_MAX) throw invalid(name, `at most ${INPUTS_MAX} inputs`)
  if (!inputs.every(([input]) => INPUT_NAME.test(input)))
    throw invalid(`each name of ${name}`, '1 to 200 printable ASCII characters without spaces')
  return Object.fromEntries(
    inputs.map(([input, digest]) => [input, hexOf(digest, `${name}.${input}`, SHA256_BYTES)]),
  )
}
