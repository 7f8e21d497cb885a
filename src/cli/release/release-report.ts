import { encodeHex } from '../../../attestation/bytes.ts'
import type { Release } from '../../../attestation/release/release.ts'
import {
  acceptedMeasurements,
  type ReleaseEntry,
} from '../../../attestation/release/release-list.ts'
import { formatTime, type ReleaseTrust } from '../../../attestation/release/release-signatures.ts'
import { EXIT_CODES } from '../faults.ts'
import type { ReleaseOptions } from '../options.ts'
import { jsonText, printable } from '../printable.ts'
import { readReleaseTrust } from './accepted-releases.ts'
import { holds, type ReleaseFile, readReleaseFile } from './release-files.ts'
import { parseListTime } from './release-list.ts'

/** What the options say, as commander gives it. */
export type ShowOptions = Omit<ReleaseOptions, 'release'> & {
  readonly at?: string
  readonly json?: boolean
}

/** Prints what is in a signed file, and whether its signatures hold. Throws CliError. */
export async function showFile(source: string, options: ShowOptions): Promise<void> {
  const trust = await readReleaseTrust(options)
  const atMs = Date.parse(parseListTime(options.at ?? 'now', Date.now()))
  const report = judgeReleaseFile(await readReleaseFile(source), { trust, atMs })
  process.stdout.write(options.json ? printReleaseJson(report) : printReleaseText(report))
  process.exitCode = report.isOk ? EXIT_CODES.done : EXIT_CODES.failed
}

/** One signature of a file. `isTrusted`: null when nobody said whom they trust. */
type SignerFacts = {
  readonly public_key: string
  readonly holds: boolean
  readonly isTrusted: boolean | null
}

/** What is shown of a signed file. */
type ReleaseReport = {
  readonly file: ReleaseFile
  readonly signers: readonly SignerFacts[]
  /** Every signature holds and, when keys are trusted, enough of them signed. */
  readonly isOk: boolean
  readonly conclusion: string
  /** What becomes of a list's releases in a document made at `atMs`. */
  readonly atMs: number
}

/**
 * Judges the signatures of a file. Whoever trusts nobody learns whether they hold, not whose they
 * are.
 */
function judgeReleaseFile(
  file: ReleaseFile,
  { trust, atMs }: { readonly trust: ReleaseTrust | null; readonly atMs: number },
): ReleaseReport {
  const trusted = trust === null ? null : new Set(trust.keys.map(encodeHex))
  const signers = file.signed.signatures.map((signature) => ({
    public_key: signature.public_key,
    holds: holds(file, signature),
    isTrusted: trusted?.has(signature.public_key) ?? null,
  }))
  return { file, signers, atMs, ...conclude(signers, trust) }
}

/** Gives the report for people. */
function printReleaseText(report: ReleaseReport): string {
  const { file, signers, atMs, conclusion } = report
  const lines =
    file.kind === 'release'
      ? describeRelease(file.signed.release)
      : [
          `list of ${file.signed.list.releases.length} releases, issued ${file.signed.list.issued_at}`,
          ...file.signed.list.releases.flatMap((entry) =>
            describeEntry(entry, file.signed.list.releases, atMs),
          ),
        ]
  const signed = signers.map(
    ({ public_key, holds, isTrusted }) =>
      `  ${holds ? 'holds ' : 'FAILED'}  ${public_key}${isTrusted === null ? '' : isTrusted ? '  trusted' : '  not trusted'}`,
  )
  return `${[...lines, '', 'Signatures', ...signed, '', conclusion].map(printable).join('\n')}\n`
}

/** Gives the report as one JSON object, for programs. */
function printReleaseJson({ file, signers, isOk, conclusion, atMs }: ReleaseReport): string {
  const told = signers.map(({ isTrusted, ...rest }) => ({ ...rest, trusted: isTrusted }))
  const common = { ok: isOk, conclusion, kind: file.kind, signatures: told }
  if (file.kind === 'release') return jsonText({ ...common, release: file.signed.release })
  const { issued_at, releases } = file.signed.list
  const judged = releases.map((entry) => ({
    ...entry,
    status: statusOf(entry, releases, atMs).status,
  }))
  const list = { issued_at, at: formatTime(atMs), releases: judged }
  return jsonText({ ...common, list })
}

function conclude(
  signers: readonly SignerFacts[],
  trust: ReleaseTrust | null,
): Pick<ReleaseReport, 'isOk' | 'conclusion'> {
  const needed = trust?.signersMin ?? 1
  const trusted = signers.filter(({ isTrusted }) => isTrusted)
  if (
    trusted.some((signer) => !signer.holds) ||
    (trust === null && signers.some((signer) => !signer.holds))
  )
    return { isOk: false, conclusion: 'INVALID: a signature does not hold.' }
  if (trust === null)
    return {
      isOk: true,
      conclusion:
        'CONSISTENT: the signatures hold. Whose keys these are was not checked: say whom you trust (--release-key).',
    }
  if (trusted.length < needed)
    return {
      isOk: false,
      conclusion: `INVALID: signed by ${trusted.length} of the trusted keys, and ${needed} must have.`,
    }
  return { isOk: true, conclusion: `VALID: signed by ${trusted.length} of the trusted keys.` }
}

/** Of releases that were signed before there was the member. */
const CONFIGURATION_UNKNOWN = 'not named by this release: give --configuration to expect one'

function describeRelease({
  version,
  git_commit,
  created_at,
  architecture,
  configuration,
  ...rest
}: Release): readonly string[] {
  return [
    `release ${version}`,
    `  commit        ${git_commit}`,
    `  created       ${created_at}`,
    `  architecture  ${architecture}`,
    `  configuration ${configuration ?? CONFIGURATION_UNKNOWN}`,
    ...Object.entries(rest.measurements).map(([name, value]) => `  ${name.padEnd(12)}  ${value}`),
    '',
    `Inputs of the builder (SHA-256): ${Object.keys(rest.inputs).length}`,
    ...Object.entries(rest.inputs).map(([name, digest]) => `  ${digest}  ${name}`),
  ]
}

function describeEntry(
  entry: ReleaseEntry,
  all: readonly ReleaseEntry[],
  atMs: number,
): readonly string[] {
  const { release, accepted_from: from, accepted_until: until } = entry
  const { status, message } = statusOf(entry, all, atMs)
  return [
    '',
    `release ${release.version} (commit ${release.git_commit}, ${release.architecture})`,
    `  accepted      from ${from ?? 'ever'} until ${until ?? 'revoked'}`,
    `  at ${formatTime(atMs)}: ${status}${message === '' ? '' : `: ${message}`}`,
    ...Object.entries(release.measurements).map(([name, value]) => `  ${name}  ${value}`),
    `  configuration ${release.configuration ?? CONFIGURATION_UNKNOWN}`,
  ]
}

function statusOf(
  { release }: ReleaseEntry,
  all: readonly ReleaseEntry[],
  atMs: number,
): { readonly status: string; readonly message: string } {
  const refused = acceptedMeasurements(all, atMs).refused.find((entry) => entry.release === release)
  return refused
    ? { status: refused.reason, message: refused.message }
    : { status: 'accepted', message: '' }
}
