import { access } from 'node:fs/promises'
import { FormatError, ProofError } from '#attestation/errors.ts'
import {
  entryOf,
  parseReleaseList,
  type ReleaseEntry,
  type ReleaseList,
} from '#attestation/release/release-list.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import {
  formatTime,
  millisecondsOf,
  type ReleaseTrust,
  releaseKeyOf,
  timeOf,
} from '#attestation/release/release-signatures.ts'
import {
  signReleaseList,
  verifyRelease,
  verifyReleaseList,
} from '#attestation/release/verify-release.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import type { ReleaseOptions } from '../options.ts'
import { readReleaseTrust } from './accepted-releases.ts'
import {
  checkSignaturesHold,
  readReleaseFile,
  readSecretKey,
  readUnsignedList,
  writeReleaseFile,
} from './release-files.ts'

type EditOptions = Omit<ReleaseOptions, 'release'> & { readonly key: string }
export type RenewOptions = EditOptions
export type AddOptions = EditOptions & { readonly from?: string; readonly until?: string }
export type EndOptions = EditOptions & { readonly at: string }
export type RevokeOptions = EditOptions & { readonly reason: string }

/** Adds a release. Creates a missing list. Throws CliError. */
export async function addToList(
  path: string,
  releasePath: string,
  options: AddOptions,
): Promise<void> {
  const nowMs = Date.now()
  const timeOrNull = (text: string | undefined) =>
    text === undefined ? null : parseListTime(text, nowMs)
  const window = {
    accepted_from: timeOrNull(options.from),
    accepted_until: timeOrNull(options.until),
  }
  const file = await readReleaseFile(releasePath)
  if (file.kind !== 'release')
    throw new CliError(
      `${printable(releasePath)}: expected one signed release, got a list`,
      EXIT_CODES.usage,
    )
  await editList(path, options, {
    nowMs,
    ifMissing: EMPTY_LIST,
    change: (list, trust) => {
      const { release } = verifying(releasePath, () => verifyRelease(file.signed, trust))
      return addRelease(list, { ...entryOf(release), ...window })
    },
  })
}

/** Ends a release. Then only documents from before the end are accepted. */
export async function endInList(path: string, name: string, options: EndOptions): Promise<void> {
  const nowMs = Date.now()
  const until = parseListTime(options.at, nowMs)
  await editList(path, options, {
    nowMs,
    change: (list) => changeRelease(list, name, (entry) => ({ ...entry, accepted_until: until })),
  })
}

/** Revokes a release forever. Throws CliError. */
export async function revokeInList(
  path: string,
  name: string,
  options: RevokeOptions,
): Promise<void> {
  const nowMs = Date.now()
  const revoked = { at: parseListTime('now', nowMs), reason: options.reason }
  await editList(path, options, {
    nowMs,
    change: (list) =>
      changeRelease(list, name, (entry) => {
        if (entry.revoked)
          throw new CliError(`${printable(name)} was revoked at ${entry.revoked.at} already`)
        return { ...entry, revoked }
      }),
  })
}

/** Issues the list again, signed by one key only. Throws CliError. */
export async function renewList(path: string, options: RenewOptions): Promise<void> {
  await editList(path, options, { nowMs: Date.now(), change: (list) => list })
}

/** Signs a handwritten list, or adds a signature to a signed list. Throws CliError. */
export async function signList(path: string, { key }: { readonly key: string }): Promise<void> {
  const given = await readUnsignedList(path)
  const [list, others] =
    given.format === null ? [given.payload, []] : [given.list, given.signatures]
  if (given.format !== null) checkSignaturesHold({ kind: 'list', signed: given }, path)
  const signed = signReleaseList(list, await readSecretKey(key), others)
  await writeReleaseFile(path, signed)
  printWritten(path, signed.list, signed.signatures.length)
}

/**
 * Changes a list in place. A trusted key, or without one the signing key, must have signed the
 * current content. Otherwise the key would sign text that another user wrote to the file.
 */
async function editList(
  path: string,
  options: EditOptions,
  given: {
    readonly nowMs: number
    readonly ifMissing?: ReleaseList
    readonly change: (list: ReleaseList, trust: ReleaseTrust) => ReleaseList
  },
): Promise<void> {
  const secretKey = await readSecretKey(options.key)
  const named = await readReleaseTrust(options)
  const trust: ReleaseTrust = named ?? { keys: [releaseKeyOf(secretKey)] }
  const isMissing = given.ifMissing !== undefined && !(await exists(path))
  const before =
    isMissing && given.ifMissing
      ? { list: given.ifMissing, signers: [] }
      : await readVerifiedList(path, trust)
  const list = checked(() =>
    issueList(parseReleaseList(given.change(before.list, trust)), given.nowMs),
  )
  const signed = signReleaseList(list, secretKey)
  await writeReleaseFile(path, signed)
  printWritten(path, list, signed.signatures.length)
  for (const key of before.signers.filter((one) => one !== signed.signatures[0]?.public_key))
    process.stderr.write(`It also had a signature of ${key}: sign it with that key again.\n`)
}

async function readVerifiedList(
  path: string,
  trust: ReleaseTrust,
): Promise<{ readonly list: ReleaseList; readonly signers: readonly string[] }> {
  const file = await readReleaseFile(path)
  if (file.kind !== 'list')
    throw new CliError(
      `${printable(path)}: expected a signed list, got one release`,
      EXIT_CODES.usage,
    )
  const { list } = verifying(path, () => verifyReleaseList(file.signed, trust))
  return { list, signers: file.signed.signatures.map(({ public_key: key }) => key) }
}

function verifying<Value>(path: string, verify: () => Value): Value {
  const toError = ({ code, message }: ProofError) =>
    new CliError(`${printable(path)}: ${code}: ${message}`)
  return convertFault(verify, ProofError, toError)
}

/** Throws CliError if a change makes the list invalid, such as an end before the start. */
function checked<Value>(make: () => Value): Value {
  return convertFault(make, FormatError, ({ message }) => new CliError(message, EXIT_CODES.usage))
}

function printWritten(
  path: string,
  { issued_at, releases }: ReleaseList,
  signatures: number,
): void {
  process.stderr.write(
    `${printable(path)}: ${releases.length} release(s), issued ${issued_at}, ${signatures} signature(s).\n`,
  )
}

/** True also for standard input, `-`. */
async function exists(path: string): Promise<boolean> {
  if (path === '-') return true
  return access(path).then(
    () => true,
    () => false,
  )
}

/** Milliseconds. If a list's time is further in the future, a clock is wrong. */
export const LIST_SKEW_MS_MAX = 5 * 60_000

/** Minimum digits of a commit or an image in a name. Fewer digits could match by accident. */
const ABBREVIATION_MIN = 7

/** Adds a release. Throws CliError if its image is already in the list. */
export function addRelease(list: ReleaseList, entry: ReleaseEntry): ReleaseList {
  const { PCR0 } = entry.release.measurements
  const known = list.releases.find(({ release }) => release.measurements.PCR0 === PCR0)
  if (known)
    throw new CliError(
      `${printable(nameRelease(known.release))} of this image (PCR0) is already in the list`,
    )
  return { ...list, releases: [...list.releases, entry] }
}

/**
 * `name`: the release's version, commit or PCR0, or the first ABBREVIATION_MIN digits of commit or
 * PCR0. Throws CliError if `name` matches no release or several.
 */
export function changeRelease(
  list: ReleaseList,
  name: string,
  change: (entry: ReleaseEntry) => ReleaseEntry,
): ReleaseList {
  const found = list.releases.filter((entry) => isNamed(entry, name))
  if (found.length === 0) throw new CliError(`no release of the list is called ${printable(name)}`)
  if (found.length > 1) {
    const images = found.map(({ release }) => release.measurements.PCR0).join(', ')
    throw new CliError(
      `${printable(name)} names several releases: give the PCR0 of one, from ${images}`,
    )
  }
  return {
    ...list,
    releases: list.releases.map((entry) => (found.includes(entry) ? change(entry) : entry)),
  }
}

/**
 * Sets the list's time to `nowMs`, but at least one second after the list's last issue. Throws
 * CliError if the list's time is in the future: a clock is wrong. Throws FormatError if the result
 * is not a valid list.
 */
export function issueList({ releases, issued_at }: ReleaseList, nowMs: number): ReleaseList {
  const lastMs = millisecondsOf(issued_at)
  if (lastMs > nowMs + LIST_SKEW_MS_MAX)
    throw new CliError(
      `the list is dated ${issued_at}, which is in the future: is the clock of this machine right?`,
    )
  return parseReleaseList({ issued_at: formatTime(Math.max(nowMs, lastMs + 1_000)), releases })
}

/** Older than any other list. */
export const EMPTY_LIST: ReleaseList = { issued_at: formatTime(0), releases: [] }

/** Accepts `now`, or the form 2026-11-21T14:00:00Z. Throws CliError. */
export function parseListTime(text: string, nowMs: number): string {
  if (text === 'now') return formatTime(nowMs)
  const message = `expected a time such as 2026-11-21T14:00:00Z, or now, got ${printable(text)}`
  const toError = () => new CliError(message, EXIT_CODES.usage)
  return convertFault(() => timeOf(text, 'the time'), FormatError, toError)
}

function isNamed({ release }: ReleaseEntry, name: string): boolean {
  if (release.version === name) return true
  if (name.length < ABBREVIATION_MIN) return false
  return release.git_commit.startsWith(name) || release.measurements.PCR0.startsWith(name)
}
