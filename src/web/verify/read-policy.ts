import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { PCR_BYTES, PCRS_MAX } from '#attestation/nitro/document.ts'
import {
  type AttestationPolicy,
  type MeasurementSet,
  PolicyError,
  parseRoots,
} from '#attestation/nitro/policy.ts'
import type { ProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { RELEASE_FILE_BYTES_MAX } from '#attestation/release/release.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import { parseReleaseKey, type ReleaseTrust } from '#attestation/release/release-signatures.ts'
import type { ExpectedEvidence } from '#attestation/report/judge-evidence.ts'
import { DIGEST_FORM, readProviderPolicies } from '#attestation/report/policy-file.ts'
import {
  parseReleaseFile,
  readConfigurationDigest,
  readExpectedReleases,
} from '#attestation/report/release-file.ts'
import { bytesOf, FILE_BYTES_MAX } from './bytes-of.ts'
import type { GivenPolicy } from './job.ts'
import { PolicyFault } from './policy-fault.ts'

/** `releases` says who signed which release. */
export type JobPolicy = {
  readonly expected: ExpectedEvidence
  readonly trust: ReleaseTrust | null
  readonly releases: readonly string[]
}

/** Throws PolicyFault for an invalid field. */
export async function readGivenPolicy(given: GivenPolicy): Promise<JobPolicy> {
  const trust = readTrust(given)
  const { entries, lines } = await readReleases(given.releases, trust)
  const sets = readMeasurements(given.measurements)
  const roots = await readRoots(given)
  const isCodeSaid = entries !== null || sets !== null
  if (isCodeSaid && given.anyMeasurement)
    throw new PolicyFault(
      'You accept the code in more than one way.',
      'Keep only one: releases, measurements, or “any code”.',
    )
  const attestation: AttestationPolicy = {
    measurements: given.anyMeasurement ? 'any' : (sets ?? []),
    ...(entries === null ? {} : { releases: entries }),
    allowDebug: given.allowDebug,
    ...(roots === null ? {} : { roots }),
  }
  const isAttestationDemanded =
    isCodeSaid ||
    given.anyMeasurement ||
    given.allowDebug ||
    roots !== null ||
    given.revocationLists.length > 0
  return {
    trust,
    releases: lines,
    expected: {
      attestation,
      isAttestationDemanded,
      configurations: await readConfigurations(given),
      confirmationsMin: readCount(given.confirmations, 'Confirmations', 999_999_999),
      outcomes: given.outcomes.length === 0 ? null : given.outcomes,
      providers: await readProvidersField(given.providers),
    },
  }
}

/** Null without keys. */
function readTrust({ releaseKeys, releaseSigners }: GivenPolicy): ReleaseTrust | null {
  const keys = linesOf(releaseKeys).map((line) =>
    mending(
      () => parseReleaseKey(line.toLowerCase()),
      'A release key is not valid',
      'Give each key as 64 hex digits on a separate line.',
    ),
  )
  const signersMin = readCount(releaseSigners, 'How many must have signed', 16)
  if (keys.length === 0) {
    if (signersMin === null) return null
    throw new PolicyFault(
      'You gave a number of signers, but no key.',
      'Give the keys that sign releases, or clear the number.',
    )
  }
  const different = new Set(keys.map(encodeHex)).size
  if (signersMin !== null && signersMin > different)
    throw new PolicyFault(
      `${signersMin} keys must have signed, but you gave only ${different}.`,
      'Give more keys, or a smaller number.',
    )
  return { keys, ...(signersMin === null ? {} : { signersMin }) }
}

async function readReleases(
  files: readonly Blob[],
  trust: ReleaseTrust | null,
): Promise<{
  readonly entries: readonly ReleaseEntry[] | null
  readonly lines: readonly string[]
}> {
  if (files.length === 0) return { entries: null, lines: [] }
  if (trust === null)
    throw new PolicyFault(
      'You gave a release, but no key that signs releases. Without a key, anyone could write such a file.',
      'Give the key of the signer of the releases, from a source that you trust.',
    )
  const read = await Promise.all(files.map((file) => readReleaseFile(file, trust)))
  const entries = read.flatMap(({ entries }) => entries)
  if (entries.length === 0)
    throw new PolicyFault(
      'The list has no accepted release.',
      'Give a list that accepts at least one release, or give a release.',
    )
  return { entries, lines: read.map(({ line }) => line) }
}

async function readReleaseFile(blob: Blob, trust: ReleaseTrust) {
  const bytes = await bytesOf(blob, RELEASE_FILE_BYTES_MAX, 'A release')
  const file = mending(
    () => parseReleaseFile(parseExactJson(bytes)),
    'A release cannot be read',
    'Give the file measurements.json or releases.json as it is published.',
  )
  const { entries, signers } = mending(
    () => readExpectedReleases(file, trust),
    'A release is not signed as you expect',
    'Do not accept this file or its evidence until you know why. Are the keys correct?',
  )
  const signed = `signed by ${signers.map((key) => `${key.slice(0, 12)}…`).join(', ')}`
  const line =
    file.kind === 'release'
      ? `${nameRelease(file.signed.release)}, ${signed}; whether it was revoked is not known`
      : `${entries.length} releases, list of ${file.signed.list.issued_at}, ${signed}`
  return { entries, line }
}

const PCR_LINE = new RegExp(
  `^(?:PCR)?(\\d{1,2})\\s*[=:]\\s*(?:0x)?([0-9a-f]{${2 * PCR_BYTES}})$`,
  'i',
)

/**
 * Sets are separated by empty lines. A document matches a set if all registers in the set match.
 */
function readMeasurements(text: string): readonly MeasurementSet[] | null {
  const sets = text.split(/\n[ \t]*\n/).map(linesOf)
  const given = sets.filter((lines) => lines.length > 0)
  return given.length === 0 ? null : given.map(readSet)
}

function readSet(lines: readonly string[]): MeasurementSet {
  const pcrs = new Map<number, Uint8Array>()
  for (const line of lines) {
    const [, index = '', hex = ''] = PCR_LINE.exec(line) ?? []
    if (hex === '' || Number(index) >= PCRS_MAX || pcrs.has(Number(index)))
      throw new PolicyFault(
        'A line of the measurements is not valid, or a register is there twice.',
        `Give lines such as PCR0=… with ${2 * PCR_BYTES} hex digits, each register once. Put an empty line between sets, if one of several sets must match.`,
      )
    pcrs.set(Number(index), decodeHex(hex.toLowerCase()))
  }
  return pcrs
}

async function readConfigurations(given: GivenPolicy): Promise<readonly Uint8Array[]> {
  const digests = linesOf(given.configurations).map((line) => {
    const hex = line.replace(/^0x/i, '')
    if (!DIGEST_FORM.test(hex))
      throw new PolicyFault(
        'A digest of a boot configuration is not valid.',
        'Give 64 hex digits on a separate line, or the configuration as a file.',
      )
    return decodeHex(hex.toLowerCase())
  })
  const files = given.configurationFiles.map(async (blob) => {
    const bytes = await bytesOf(blob, FILE_BYTES_MAX, 'A boot configuration')
    return mending(
      () => readConfigurationDigest(bytes),
      'A boot configuration cannot be read',
      'Give the JSON with which the enclave was started.',
    )
  })
  return [...digests, ...(await Promise.all(files))]
}

async function readRoots({ roots, rootText }: GivenPolicy): Promise<readonly Uint8Array[] | null> {
  const fingerprints = linesOf(rootText).filter((line) => DIGEST_FORM.test(line))
  const pem = fingerprints.reduce((text, line) => text.replace(line, ''), rootText).trim()
  const texts = pem === '' ? [] : [new TextEncoder().encode(pem)]
  const files = await Promise.all(roots.map((blob) => bytesOf(blob, FILE_BYTES_MAX, 'A root')))
  const certificates = [...texts, ...files].flatMap((bytes) => {
    try {
      return [...parseRoots(bytes)]
    } catch (fault) {
      throw new PolicyFault(
        `A root is not a certificate: ${fault instanceof Error ? fault.message : 'unreadable'}`,
        'Give certificates in PEM (-----BEGIN CERTIFICATE-----) or DER, or the SHA-256 of a certificate as 64 hex digits.',
      )
    }
  })
  const all = [...fingerprints.map((hex) => decodeHex(hex.toLowerCase())), ...certificates]
  return all.length === 0 ? null : all
}

/** Null for an empty field. */
async function readProvidersField(text: string): Promise<readonly ProviderPolicy[] | null> {
  if (text.trim() === '') return null
  try {
    return await readProviderPolicies({ providers: parseExactJson(encodeUtf8(text)) as object })
  } catch (fault) {
    if (!(fault instanceof PolicyError || fault instanceof FormatError)) throw fault
    throw new PolicyFault(fault.message, 'Give “providers” of policy.json, or nothing.')
  }
}

/** Null for an empty field. */
export function readCount(text: string, name: string, max: number): number | null {
  const trimmed = text.trim()
  if (trimmed === '') return null
  const count = /^\d{1,9}$/.test(trimmed) ? Number(trimmed) : 0
  if (count >= 1 && count <= max) return count
  throw new PolicyFault(
    `${name}: expected a whole number from 1 to ${max}.`,
    'Change the number, or clear the field.',
  )
}

function linesOf(text: string): readonly string[] {
  return text
    .split(/[\n,]/)
    .map((line) => line.trim())
    .filter((line) => line !== '')
}

function mending<Value>(run: () => Value, message: string, advice: string): Value {
  try {
    return run()
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError)
      throw new PolicyFault(`${message}: ${fault.message}`, advice)
    throw fault
  }
}
