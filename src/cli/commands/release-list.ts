import { access } from 'node:fs/promises'
import type { Command } from 'commander'
import { FormatError, ProofError } from '../../../attestation/errors.ts'
import { releaseKeyOf } from '../../../attestation/release/release-key.ts'
import { entryOf, parseReleaseList, type ReleaseList } from '../../../attestation/release/release-list.ts'
import type { ReleaseTrust } from '../../../attestation/release/release-signatures.ts'
import {
  signReleaseList,
  verifyRelease,
  verifyReleaseList,
} from '../../../attestation/release/verify-release.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { printable } from '../printable.ts'
import {
  addReleaseTrustOptions,
  type ReleaseOptions,
  readReleaseTrust,
} from '../release/accepted-releases.ts'
import {
  readReleaseFile,
  readSecretKey,
  readUnsignedList,
  writeReleaseFile,
} from '../release/release-files.ts'
import { addRelease, changeRelease, EMPTY_LIST, issueList, parseListTime } from '../release/release-list.ts'
import { checkSignaturesHold } from '../release/release-report.ts'

type EditOptions = Omit<ReleaseOptions, 'release'> & { readonly key: string }
type AddOptions = EditOptions & { readonly from?: string; readonly until?: string }
type EndOptions = EditOptions & { readonly at: string }
type RevokeOptions = EditOptions & { readonly reason: string }

/** Adds `release list add | end | revoke | sign`: the list of the releases that an operator runs. */
export function registerReleaseList(release: Command): void {
  const list = release
    .command('list')
    .summary('keep the signed list of accepted releases')
    .description(
      'Keep the signed list of the releases that are accepted, and when. Each change signs it anew, under a later time of issue; what others signed must be signed by them again (sign).',
    )
    .helpCommand(false)
  editing(
    list.command('add').description('accept a signed release, in a list that is made when there is none'),
  )
    .argument('<list>', 'releases.json')
    .argument('<release>', 'measurements.json, signed by --key or a --release-key')
    .option('--from <time>', 'accepted in documents made from then on: now, or 2026-11-21T14:00:00Z')
    .option('--until <time>', 'and before then')
    .action(addToList)
  editing(list.command('end').description('accept a release only in documents made before a time'))
    .argument('<list>', 'releases.json')
    .argument('<release>', NAME)
    .requiredOption('--at <time>', 'now, or 2026-11-21T14:00:00Z')
    .action(endInList)
  editing(list.command('revoke').description('never accept a release again, whenever a document was made'))
    .argument('<list>', 'releases.json')
    .argument('<release>', NAME)
    .requiredOption('--reason <text>', 'why, for those whose records fail')
    .action(revokeInList)
  list
    .command('sign')
    .description('sign a list that was written by hand, or add a signature to a signed one')
    .argument('<list>', 'releases.json; written by hand it is {"issued_at": …, "releases": […]}')
    .requiredOption('--key <file>', 'private release key, or - for standard input')
    .action(signList)
}

const NAME = 'its version, or 7 digits or more of its commit or PCR0'

function editing(command: Command): Command {
  return addReleaseTrustOptions(
    command.requiredOption('--key <file>', 'private release key, or - for standard input'),
  )
}

async function addToList(path: string, releasePath: string, options: AddOptions): Promise<void> {
  const nowMs = Date.now()
  const timeOrNull = (text: string | undefined) => (text === undefined ? null : parseListTime(text, nowMs))
  const window = { accepted_from: timeOrNull(options.from), accepted_until: timeOrNull(options.until) }
  const file = await readReleaseFile(releasePath)
  if (file.kind !== 'release')
    throw new CliError(`${printable(releasePath)}: expected one signed release, got a list`, EXIT_CODES.usage)
  await editList(path, options, {
    nowMs,
    ifMissing: EMPTY_LIST,
    change: (list, trust) => {
      const { release } = verifying(releasePath, () => verifyRelease(file.signed, trust))
      return addRelease(list, { ...entryOf(release), ...window })
    },
  })
}

async function endInList(path: string, name: string, options: EndOptions): Promise<void> {
  const nowMs = Date.now()
  const until = parseListTime(options.at, nowMs)
  await editList(path, options, {
    nowMs,
    change: (list) => changeRelease(list, name, (entry) => ({ ...entry, accepted_until: until })),
  })
}

async function revokeInList(path: string, name: string, options: RevokeOptions): Promise<void> {
  const nowMs = Date.now()
  const revoked = { at: parseListTime('now', nowMs), reason: options.reason }
  await editList(path, options, {
    nowMs,
    change: (list) =>
      changeRelease(list, name, (entry) => {
        if (entry.revoked) throw new CliError(`${printable(name)} was revoked at ${entry.revoked.at} already`)
        return { ...entry, revoked }
      }),
  })
}

async function signList(path: string, { key }: { readonly key: string }): Promise<void> {
  const given = await readUnsignedList(path)
  const [list, others] = given.format === null ? [given.payload, []] : [given.list, given.signatures]
  if (given.format !== null) checkSignaturesHold({ kind: 'list', signed: given }, path)
  const signed = signReleaseList(list, await readSecretKey(key), others)
  await writeReleaseFile(path, signed)
  tell(path, signed.list, signed.signatures.length)
}

/**
 * Changes a list in place. What it says so far must be signed by the key that signs it now, or by one that is trusted:
 * otherwise a change would vouch for whatever somebody put into the file.
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
  const before = isMissing && given.ifMissing ? given.ifMissing : await readVerifiedList(path, trust)
  const list = checked(() => issueList(parseReleaseList(given.change(before, trust)), given.nowMs))
  const signed = signReleaseList(list, secretKey)
  await writeReleaseFile(path, signed)
  tell(path, list, signed.signatures.length)
}

async function readVerifiedList(path: string, trust: ReleaseTrust): Promise<ReleaseList> {
  const file = await readReleaseFile(path)
  if (file.kind !== 'list')
    throw new CliError(`${printable(path)}: expected a signed list, got one release`, EXIT_CODES.usage)
  return verifying(path, () => verifyReleaseList(file.signed, trust)).list
}

function verifying<Value>(path: string, verify: () => Value): Value {
  try {
    return verify()
  } catch (fault) {
    if (!(fault instanceof ProofError)) throw fault
    throw new CliError(`${printable(path)}: ${fault.code}: ${fault.message}`)
  }
}

/** A change that makes no list: an end before its beginning, a reason of two lines. */
function checked<Value>(make: () => Value): Value {
  try {
    return make()
  } catch (fault) {
    if (!(fault instanceof FormatError)) throw fault
    throw new CliError(fault.message, EXIT_CODES.usage)
  }
}

function tell(path: string, { issued_at, releases }: ReleaseList, signatures: number): void {
  process.stderr.write(
    `${printable(path)}: ${releases.length} release(s), issued ${issued_at}, ${signatures} signature(s).\n`,
  )
}

/** Standard input is always there. */
async function exists(path: string): Promise<boolean> {
  if (path === '-') return true
  return access(path).then(
    () => true,
    () => false,
  )
}
