import { ProofError } from '#attestation/errors.ts'
import { ownMembers } from '#attestation/own-members.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import type { ReleaseTrust } from '#attestation/release/release-signatures.ts'
import { printable } from '#attestation/report/printable.ts'
import { type ReleaseFile, readExpectedReleases } from '#attestation/report/release-file.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import type { ReleaseOptions } from '../options.ts'
import { readReleaseFile, readReleaseKey } from './release-files.ts'

/** Null without a key. Throws CliError for malformed keys. */
export async function readReleaseTrust(options: ReleaseOptions): Promise<ReleaseTrust | null> {
  const { releaseKey = [], releaseSigners } = ownMembers(options)
  if (releaseKey.length === 0) {
    if (releaseSigners === undefined) return null
    throw new CliError('expected --release-key with --release-signers', EXIT_CODES.usage)
  }
  const keys = await Promise.all(releaseKey.map(readReleaseKey))
  const different = new Set(keys.map(String)).size
  if (releaseSigners !== undefined && releaseSigners > different)
    throw new CliError(
      `expected at least ${releaseSigners} different keys with --release-signers ` +
        `${releaseSigners}, got ${different}`,
      EXIT_CODES.usage,
    )
  return { keys, ...(releaseSigners === undefined ? {} : { signersMin: releaseSigners }) }
}

/**
 * Verifies the signatures of each file. Undefined if the options expect no releases. Prints the
 * files and their age on standard error. Throws CliError. Exit code 2: a file cannot be read or is
 * malformed. Exit code 1: a file is not signed correctly or accepts no release.
 */
export async function openExpectedReleases(
  options: ReleaseOptions,
): Promise<readonly ReleaseEntry[] | undefined> {
  return (await openSignedReleases(options))?.flatMap(({ entries }) => entries)
}

/** Does the same as openExpectedReleases, but returns the entries of each file separately. */
export async function openSignedReleases(
  options: ReleaseOptions,
): Promise<
  readonly { readonly file: ReleaseFile; readonly entries: readonly ReleaseEntry[] }[] | undefined
> {
  const { release: sources = [] } = ownMembers(options)
  const trust = await readReleaseTrust(options)
  if (sources.length === 0) {
    if (trust === null) return undefined
    throw new CliError(
      'expected --release with --release-key: a key alone accepts no release',
      EXIT_CODES.usage,
    )
  }
  if (trust === null)
    throw new CliError(
      'expected --release-key with --release: anyone can write such a file',
      EXIT_CODES.usage,
    )
  const opened = await Promise.all(sources.map((source) => readEntries(source, trust)))
  if (opened.some(({ entries }) => entries.length > 0)) return opened
  throw new CliError('expected at least one release: the list has no accepted release')
}

async function readEntries(source: string, trust: ReleaseTrust) {
  const file = await readReleaseFile(source)
  const refuse = ({ code, message }: ProofError) =>
    new CliError(`--release ${printable(source)}: ${code}: ${message}`)
  const { entries, signers } = convertFault(
    () => readExpectedReleases(file, trust),
    ProofError,
    refuse,
  )
  const signed = `signed by ${signers.join(', ')}`
  printAccepted(
    source,
    file.kind === 'release'
      ? `${nameRelease(file.signed.release)}, ${signed}; whether it was revoked is not known`
      : `${entries.length} releases, issued ${file.signed.list.issued_at}, ${signed}`,
  )
  return { file, entries }
}

function printAccepted(source: string, text: string): void {
  process.stderr.write(`Expecting ${printable(source)}: ${printable(text)}\n`)
}
