import { decodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { type AttestationPolicy, parseRoots } from '#attestation/nitro/policy.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { ownMembers } from '#attestation/own-members.ts'
import { readConfigurationDigest } from '#attestation/report/expectation-files.ts'
import { bundlePolicyOf, type ExpectedEvidence } from '#attestation/report/judge-evidence.ts'
import { printable } from '#attestation/report/printable.ts'
import type { ListingVerifier } from '#attestation/revocation/listing-verifier.ts'
import { openExpectations, readExpectedPolicy } from './expectations-file.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { readSource, refuseUrl } from './files.ts'
import { type AttestationOptions, type BundleOptions, isHash } from './options.ts'
import { openProviderPolicy } from './provider-policy-file.ts'
import { openExpectedReleases } from './release/accepted-releases.ts'

export function demandsAttestation(options: AttestationOptions): boolean {
  const { expect, pcr, anyMeasurement, allowDebug, root, release, crl } = ownMembers(options)
  return [expect, pcr, anyMeasurement, allowDebug, root, release, crl].some(
    (option) => option !== undefined,
  )
}

/**
 * If no option states the accepted measurements, the policy refuses every document. Throws CliError
 * for files without certificates, and for unsigned releases.
 */
export async function readAttestationPolicy(given: AttestationOptions): Promise<AttestationPolicy> {
  const options = ownMembers(given)
  if (options.expect !== undefined) {
    const { measurements = [], releases, roots, allowDebug } = await readExpectFile(options)
    return {
      measurements,
      allowDebug: allowDebug ?? false,
      ...(releases === undefined ? {} : { releases }),
      ...(roots === undefined ? {} : { roots }),
    }
  }
  const said = [options.pcr, options.anyMeasurement, options.release].filter(
    (option) => option !== undefined,
  )
  if (said.length > 1)
    throw new CliError('expected one of --pcr, --release and --any-measurement', EXIT_CODES.usage)
  const releases = await openExpectedReleases(options)
  const roots = await Promise.all((options.root ?? []).map(readRoots))
  return {
    measurements: options.anyMeasurement ? 'any' : options.pcr === undefined ? [] : [options.pcr],
    ...(releases === undefined ? {} : { releases }),
    allowDebug: options.allowDebug ?? false,
    ...(roots.length > 0 ? { roots: roots.flat() } : {}),
  }
}

/** Refuses other policy options, because they could contradict the file. Throws CliError. */
async function readExpectFile(options: AttestationOptions): Promise<BundlePolicy> {
  const { expect = '', allowDebug = false, ...own } = ownMembers(options)
  const { pcr, anyMeasurement, root, release, releaseKey, releaseSigners } = own
  const others = { pcr, anyMeasurement, root, release, releaseKey, releaseSigners }
  if (Object.values(others).some((value) => value !== undefined))
    throw new CliError(
      'expected --expect alone: it replaces --pcr, --release, --release-key, --root and --any-measurement',
      EXIT_CODES.usage,
    )
  return readExpectedPolicy(await openExpectations(expect), expect, { allowDebug })
}

const ROOT_FILE_BYTES_MAX = 1024 * 1024

/**
 * Returns the fingerprints of the certificates in a file. Throws CliError if there is no
 * certificate, and for a URL.
 */
export async function readRoots(path: string): Promise<readonly Uint8Array[]> {
  refuseUrl(path, '--root: expected a file')
  const bytes = await readSource(path, { bytesMax: ROOT_FILE_BYTES_MAX })
  try {
    return parseRoots(bytes)
  } catch (fault) {
    const reason = fault instanceof Error ? fault.message : 'unreadable'
    throw new CliError(`--root ${path}: ${reason}`, EXIT_CODES.usage)
  }
}

/**
 * A part without an expectation is not checked. With `--any-measurement`, the code is not checked.
 * Throws CliError for files with wrong content.
 */
export async function readBundlePolicy(options: BundleOptions): Promise<BundlePolicy> {
  return bundlePolicyOf(await readExpectedEvidence(options))
}

/** Does the same as readBundlePolicy, for any kind of evidence. */
export async function readExpectedEvidence(options: BundleOptions): Promise<ExpectedEvidence> {
  const attestation = await readAttestationPolicy(options)
  const {
    expect,
    configuration = [],
    confirmations,
    allowOutcome,
    providerPolicy,
  } = ownMembers(options)
  const expected = expect === undefined ? null : await readExpectFile(options)
  return {
    attestation,
    isAttestationDemanded: demandsAttestation(options),
    configurations: [
      ...(expected?.configurations ?? []),
      ...(await Promise.all(configuration.map(openConfigurationDigest))),
    ],
    confirmationsMin: confirmations ?? null,
    outcomes: allowOutcome ?? null,
    providerPolicy: providerPolicy === undefined ? null : await openProviderPolicy(providerPolicy),
  }
}

const CONFIGURATION_BYTES_MAX = 1024 * 1024

/**
 * Returns the digest (32 bytes) of an expected boot configuration. The text is the digest as 64 hex
 * digits, or the name of a JSON file with the configuration. A file name of 64 hex digits needs
 * `./` before it. Throws CliError for any other text, such as a URL.
 */
export async function openConfigurationDigest(text: string): Promise<Uint8Array> {
  if (isHash(text)) return decodeHex(text)
  refuseUrl(text, '--configuration: expected a digest or a file')
  const bytes = await readSource(text, { bytesMax: CONFIGURATION_BYTES_MAX })
  const expected = `--configuration ${printable(text)}: expected a boot configuration as JSON`
  const toError = ({ message }: FormatError) =>
    new CliError(`${expected}: ${message}`, EXIT_CODES.usage)
  return convertFault(() => readConfigurationDigest(bytes), FormatError, toError)
}

/**
 * Reads the revocation lists in the options: files or http(s) URLs, not newer than `nowMs`. The
 * returned verifier refuses a document if a list names a certificate of the document. Throws
 * CliError and UnusableListError.
 */
export async function readRevocationLists(
  options: Pick<AttestationOptions, 'crl'>,
  nowMs: number,
): Promise<(given: { readonly isOfOne: boolean }) => ListingVerifier> {
  const { crl: sources = [] } = ownMembers(options)
  const verifier = createAttestationVerifier()
  if (sources.length === 0) return () => ({ verify: verifier.verify, unused: () => [] })
  const { openListingVerifier, readLists } = await import('./revocation/lists.ts')
  const lists = await readLists(sources, nowMs)
  return (given) => openListingVerifier(verifier, lists, given)
}
