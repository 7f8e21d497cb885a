import type { Release } from '#attestation/release/release.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'
import { formatTime } from '#attestation/release/release-signatures.ts'
import {
  judgeReleaseFile,
  type ReleaseJudgement,
  statusOf,
} from '#attestation/report/judge-releases.ts'
import { printable } from '#attestation/report/printable.ts'
import type { ReleaseFile } from '#attestation/report/release-file.ts'
import { exitCodeOf } from '../faults.ts'
import type { ReleaseOptions } from '../options.ts'
import { jsonText } from '../printable.ts'
import { readReleaseTrust } from './accepted-releases.ts'
import { readReleaseFile } from './release-files.ts'
import { parseListTime } from './release-list.ts'

export type ShowOptions = Omit<ReleaseOptions, 'release'> & {
  readonly at?: string
  readonly json?: boolean
}

/** Prints the content of a signed file and the validity of its signatures. Throws CliError. */
export async function showFile(source: string, options: ShowOptions): Promise<void> {
  const trust = await readReleaseTrust(options)
  const atMs = Date.parse(parseListTime(options.at ?? 'now', Date.now()))
  const file = await readReleaseFile(source)
  const report = { file, judgement: judgeReleaseFile(file, trust), atMs }
  process.stdout.write(options.json ? printReleaseJson(report) : printReleaseText(report))
  process.exitCode = exitCodeOf(report.judgement.verdict)
}

type ReleaseReport = {
  readonly file: ReleaseFile
  readonly judgement: ReleaseJudgement
  /** Time of a document. The report shows which releases are accepted at this time. */
  readonly atMs: number
}

function printReleaseText(report: ReleaseReport): string {
  const { file, judgement, atMs } = report
  const lines =
    file.kind === 'release'
      ? describeRelease(file.signed.release)
      : [
          `list of ${file.signed.list.releases.length} releases, issued ${file.signed.list.issued_at}`,
          ...file.signed.list.releases.flatMap((entry) =>
            describeEntry(entry, file.signed.list.releases, atMs),
          ),
        ]
  const signed = judgement.signers.map(
    ({ public_key, holds, isTrusted }) =>
      `  ${holds ? 'holds ' : 'FAILED'}  ` +
      `${public_key}${isTrusted === null ? '' : isTrusted ? '  trusted' : '  not trusted'}`,
  )
  return `${[...lines, '', 'Signatures', ...signed, '', conclude(judgement)].map(printable).join('\n')}\n`
}

function printReleaseJson({ file, judgement, atMs }: ReleaseReport): string {
  const signatures = judgement.signers.map(({ isTrusted, ...rest }) => ({
    ...rest,
    trusted: isTrusted,
  }))
  const common = {
    ok: judgement.verdict === 'verified',
    verdict: judgement.verdict,
    conclusion: conclude(judgement),
    kind: file.kind,
    signatures,
  }
  if (file.kind === 'release') return jsonText({ ...common, release: file.signed.release })
  const { issued_at, releases } = file.signed.list
  const judged = releases.map((entry) => ({
    ...entry,
    status: statusOf(entry, releases, atMs).status,
  }))
  const list = { issued_at, at: formatTime(atMs), releases: judged }
  return jsonText({ ...common, list })
}

function conclude({ verdict, fault, trusted, needed }: ReleaseJudgement): string {
  if (fault === 'signature') return 'INVALID: a signature does not hold.'
  if (fault !== null)
    return `NOT ACCEPTED: ${trusted} of the keys that you trust signed it, but ${needed} must sign it.`
  if (verdict === 'verified') return `VALID: signed by ${trusted} of the trusted keys.`
  return (
    'INCOMPLETE: the signatures hold. The owners of the keys were not checked: give the keys ' +
    'that you trust (--release-key).'
  )
}

/** Text for a release without a boot configuration, as in older files. */
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
