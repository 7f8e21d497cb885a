import { decodeHex, encodeHex } from '../../../attestation/bytes.ts'
import { FormatError, ProofError } from '../../../attestation/errors.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import { PCR_BYTES, PCRS_MAX } from '../../../attestation/nitro/document.ts'
import {
  type AttestationPolicy,
  type MeasurementSet,
  parseRoots,
} from '../../../attestation/nitro/policy.ts'
import { RELEASE_FILE_BYTES_MAX } from '../../../attestation/release/release.ts'
import { nameRelease, type ReleaseEntry } from '../../../attestation/release/release-list.ts'
import {
  parseReleaseKey,
  type ReleaseTrust,
} from '../../../attestation/release/release-signatures.ts'
import {
  parseReleaseFile,
  readConfigurationDigest,
  readExpectedReleases,
} from '../../../attestation/report/expectation-files.ts'
import type { ExpectedEvidence } from '../../../attestation/report/judge-evidence.ts'
import { bytesOf, FILE_BYTES_MAX } from './bytes-of.ts'
import { ExpectationFault } from './expectation-fault.ts'
import type { Expectations } from './job.ts'

/** What is expected, read; and lines about the files of releases. */
export type ReadExpectations = {
  readonly expected: ExpectedEvidence
  readonly trust: ReleaseTrust | null
  readonly releases: readonly string[]
}

/** Reads what the reader expects. Throws ExpectationFault naming the field. */
export async function readExpectations(given: Expectations): Promise<ReadExpectations> {
  const trust = readTrust(given)
  const { entries, lines } = await readReleases(given.releases, trust)
  const sets = readMeasurements(given.measurements)
  const roots = await readRoots(given)
  const said = [entries !== null, sets !== null, given.anyMeasurement].filter(Boolean).length
  if (said > 1)
    throw new ExpectationFault(
      'There is more than one expectation of the code.',
      'Keep one of: releases, measurements, “any code”.',
    )
  const attestation: AttestationPolicy = {
    measurements: given.anyMeasurement ? 'any' : (sets ?? []),
    ...(entries === null ? {} : { releases: entries }),
    allowDebug: given.allowDebug,
    ...(roots === null ? {} : { roots }),
  }
  const isAttestationDemanded =
    said > 0 || given.allowDebug || roots !== null || given.revocationLists.length > 0
  return {
    trust,
    releases: lines,
    expected: {
      attestation,
      isAttestationDemanded,
      configurations: await readConfigurations(given),
      confirmationsMin: readCount(given.confirmations, 'Confirmations', 999_999_999),
      outcomes: given.outcomes.length === 0 ? null : given.outcomes,
    },
  }
}

/** Whom the reader trusts to sign releases; null: nobody was named. */
function readTrust({ releaseKeys, releaseSigners }: Expectations): ReleaseTrust | null {
  const keys = linesOf(releaseKeys).map((line) =>
    mending(
      () => parseReleaseKey(line.toLowerCase()),
      'A release key is none',
      'Give each key as 64 hex digits on a line of its own.',
    ),
  )
  const signersMin = readCount(releaseSigners, 'How many must have signed', 16)
  if (keys.length === 0) {
    if (signersMin === null) return null
    throw new ExpectationFault(
      'There is a number of signers, and no key.',
      'Give the keys that sign releases, or empty the number.',
    )
  }
  const different = new Set(keys.map(encodeHex)).size
  if (signersMin !== null && signersMin > different)
    throw new ExpectationFault(
      `${signersMin} keys must have signed, and ${different} are given.`,
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
    throw new ExpectationFault(
      'A release is given, and no key that signs releases: anyone can write such a file.',
      'Give the key of whoever signs releases, from a source that you trust.',
    )
  const read = await Promise.all(files.map((file) => readReleaseFile(file, trust)))
  const entries = read.flatMap(({ entries }) => entries)
  if (entries.length === 0)
    throw new ExpectationFault(
      'The list of releases accepts none.',
      'Give a list that has one, or a release.',
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
    'Take neither the file nor evidence of it, until you know why. Are the keys the right ones?',
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

/** Sets are apart by an empty line: one of them must be found in full. */
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
      throw new ExpectationFault(
        'A line of the measurements is none, or a register is there twice.',
        `Give lines such as PCR0=… with ${2 * PCR_BYTES} hex digits, each register once; an empty line between sets of which one must be found.`,
      )
    pcrs.set(Number(index), decodeHex(hex.toLowerCase()))
  }
  return pcrs
}

async function readConfigurations(given: Expectations): Promise<readonly Uint8Array[]> {
  const digests = linesOf(given.configurations).map((line) => {
    const hex = line.replace(/^0x/i, '').toLowerCase()
    if (!/^[0-9a-f]{64}$/.test(hex))
      throw new ExpectationFault(
        'A digest of a boot configuration is none.',
        'Give 64 hex digits on a line, or the configuration as a file.',
      )
    return decodeHex(hex)
  })
  const files = given.configurationFiles.map(async (blob) => {
    const bytes = await bytesOf(blob, FILE_BYTES_MAX, 'A boot configuration')
    return mending(
      () => readConfigurationDigest(bytes),
      'A boot configuration cannot be read',
      'Give it as JSON, as the enclave was booted with it.',
    )
  })
  return [...digests, ...(await Promise.all(files))]
}

async function readRoots({ roots, rootText }: Expectations): Promise<readonly Uint8Array[] | null> {
  const fingerprints = linesOf(rootText).filter((line) => FINGERPRINT.test(line))
  const pem = fingerprints.reduce((text, line) => text.replace(line, ''), rootText).trim()
  const texts = pem === '' ? [] : [new TextEncoder().encode(pem)]
  const files = await Promise.all(roots.map((blob) => bytesOf(blob, FILE_BYTES_MAX, 'A root')))
  const certificates = [...texts, ...files].flatMap((bytes) => {
    try {
      return [...parseRoots(bytes)]
    } catch (fault) {
      throw new ExpectationFault(
        `A root is no certificate: ${fault instanceof Error ? fault.message : 'unreadable'}`,
        'Give certificates in PEM (-----BEGIN CERTIFICATE-----) or DER, or the SHA-256 of one as 64 hex digits.',
      )
    }
  })
  const all = [...fingerprints.map((hex) => decodeHex(hex.toLowerCase())), ...certificates]
  return all.length === 0 ? null : all
}

const FINGERPRINT = /^[0-9a-f]{64}$/i

/** Null for a field that is empty. */
export function readCount(text: string, name: string, max: number): number | null {
  const trimmed = text.trim()
  if (trimmed === '') return null
  const count = /^\d{1,9}$/.test(trimmed) ? Number(trimmed) : 0
  if (count >= 1 && count <= max) return count
  throw new ExpectationFault(
    `${name}: expected a whole number from 1 to ${max}.`,
    'Change the number, or empty the field.',
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
      throw new ExpectationFault(`${message}: ${fault.message}`, advice)
    throw fault
  }
}
