import { decodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { type AttestationPolicy, parseRoots } from '#attestation/nitro/policy.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { ownMembers } from '#attestation/own-members.ts'
import { bundlePolicyOf, type ExpectedEvidence } from '#attestation/report/judge-evidence.ts'
import { printable } from '#attestation/report/printable.ts'
import { readConfigurationDigest } from '#attestation/report/release-file.ts'
import type { ListingVerifier } from '#attestation/revocation/listing-verifier.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { readSource, refuseUrl } from './files.ts'
import { type AttestationOptions, type BundleOptions, isHash } from './options.ts'
import { type OpenedPolicy, openPolicy, requirePart } from './policy-file.ts'
import { openExpectedReleases } from './release/accepted-releases.ts'

export function demandsAttestation(options: AttestationOptions): boolean {
  const { pcr, anyMeasurement, allowDebug, root, release, crl } = ownMembers(options)
  return [pcr, anyMeasurement, allowDebug, root, release, crl].some(
    (option) => option !== undefined,
  )
}

/**
 * If no option states the accepted measurements, the policy refuses every document. Throws CliError
 * for files without certificates, for unsigned releases, and for a policy without enclaves.
 */
export async function readAttestationPolicy(given: AttestationOptions): Promise<AttestationPolicy> {
  const opened = await openPolicyOption(given)
  if (opened === null) return await readOptions(given)
  const { policy = '' } = ownMembers(given)
  return attestationPolicyOf(requirePart(opened.enclaves, 'enclaves', policy))
}

async function readOptions(given: AttestationOptions): Promise<AttestationPolicy> {
  const options = ownMembers(given)
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

function attestationPolicyOf(enclaves: BundlePolicy): AttestationPolicy {
  const { measurements = [], releases, roots, allowDebug = false } = enclaves
  return {
    measurements,
    allowDebug,
    ...(releases === undefined ? {} : { releases }),
    ...(roots === undefined ? {} : { roots }),
  }
}

/**
 * Null without `--policy`. Beside `enclaves`, refuses other options about enclaves, because they
 * could contradict the file. Throws CliError.
 */
async function openPolicyOption(options: AttestationOptions): Promise<OpenedPolicy | null> {
  const { policy: file, allowDebug = false, ...own } = ownMembers(options)
  if (file === undefined) return null
  const opened = await openPolicy(file, { allowDebug })
  const { pcr, anyMeasurement, root, release, releaseKey, releaseSigners } = own
  const others = [pcr, anyMeasurement, root, release, releaseKey, releaseSigners]
  if (opened.enclaves !== null && others.some((value) => value !== undefined))
    throw new CliError(
      'expected --policy alone: its enclaves replace --pcr, --release, --release-key, --root and --any-measurement',
      EXIT_CODES.usage,
    )
  return opened
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
 * The policy of an audit. What no option states is not checked. With `--any-measurement`, the code
 * is not checked. Throws CliError for files with wrong content, and for a policy without enclaves.
 */
export async function readBundlePolicy(options: BundleOptions): Promise<BundlePolicy> {
  const opened = await openPolicyOption(options)
  if (opened !== null) requirePart(opened.enclaves, 'enclaves', options.policy ?? '')
  return bundlePolicyOf(await readParts(options, opened))
}

/** The policy for any kind of evidence. A policy of providers alone leaves the enclaves open. */
export async function readExpectedEvidence(options: BundleOptions): Promise<ExpectedEvidence> {
  return await readParts(options, await openPolicyOption(options))
}

async function readParts(
  options: BundleOptions,
  opened: OpenedPolicy | null,
): Promise<ExpectedEvidence> {
  const enclaves = opened?.enclaves ?? null
  const { configuration = [], confirmations, allowOutcome } = ownMembers(options)
  return {
    attestation: enclaves === null ? await readOptions(options) : attestationPolicyOf(enclaves),
    isAttestationDemanded: enclaves !== null || demandsAttestation(options),
    configurations: [
      ...(enclaves?.configurations ?? []),
      ...(await Promise.all(configuration.map(openConfigurationDigest))),
    ],
    confirmationsMin: confirmations ?? null,
    outcomes: allowOutcome ?? null,
    providers: opened?.providers ?? null,
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
