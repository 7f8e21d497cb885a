import { type Command, InvalidArgumentError } from 'commander'
import { ERASURE_REASON_MAX, isErasureReason } from '#attestation/erasure.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, EXIT_CODES, inWords } from '../faults.ts'
import type { Operations } from '../operations.ts'
import { jsonText } from '../printable.ts'
import { parseNameArgument } from './keys.ts'
import { type JsonOption, operations } from './operator.ts'

type EraseOptions = JsonOption & { readonly account?: string; readonly reason: string }

/**
 * `found`: number of records with the hash; null for an account. `erased`: number of records whose
 * content this command erased.
 */
type Erased = { readonly found: number | null; readonly erased: number }

export function registerErase(program: Command): void {
  program
    .command('erase')
    .description(
      'erase request and response of one completion, or of all completions of an account; the proofs stay',
    )
    .argument('[hash]', 'hash of the completion, 64 hex digits', parseHash)
    .option('--account <name>', 'erase all questions and answers of the account', parseNameArgument)
    .requiredOption(
      '--reason <text>',
      'the reason; it is shown to all who may see the record',
      parseReason,
    )
    .option('--json', 'print one JSON object')
    .action(erase)
}

async function erase(
  hash: string | undefined,
  { account, reason, json }: EraseOptions,
): Promise<void> {
  if ((hash === undefined) === (account === undefined))
    throw new CliError('expected either a hash or --account', EXIT_CODES.usage)
  const { withOperations } = await operations()
  const done = await withOperations(({ erasures }) =>
    hash === undefined
      ? eraseAccount(erasures, account ?? '', reason)
      : eraseRecord(erasures, hash, reason),
  )
  process.stdout.write(json ? jsonText(done) : describe(done))
}

async function eraseRecord(
  erasures: Operations['erasures'],
  hash: string,
  reason: string,
): Promise<Erased> {
  const done = await erasures.record({ hash, reason })
  if (done.found === 0) throw new CliError(`no completion has the hash ${hash}`)
  return done
}

async function eraseAccount(
  erasures: Operations['erasures'],
  account: string,
  reason: string,
): Promise<Erased> {
  await inWords(erasures.account({ account, reason }), {
    not_found: `no account has the name ${printable(account)}`,
  })
  process.stderr.write(
    `Content of account ${printable(account)} is no longer served; it is being removed.\n`,
  )
  for (let erased = 0; ; ) {
    const { records, is_done: isDone } = await erasures.remove({ account })
    erased += records
    if (isDone) return { found: null, erased }
    // The running gateway erases records now, so this command waits.
    if (records === 0) await new Promise((resolve) => setTimeout(resolve, BUSY_PAUSE_MS))
  }
}

const BUSY_PAUSE_MS = 200

function describe({ found, erased }: Erased): string {
  const count = `${erased} record${erased === 1 ? '' : 's'}`
  const rest = (found ?? erased) - erased
  const others = rest === 0 ? '' : `; ${rest} had no content`
  return `Content of ${count} erased${others}. Backups and the server's log still have it.\n`
}

function parseHash(text: string): string {
  const [, digits] = /^(?:0x)?([0-9a-f]{64})$/i.exec(text) ?? []
  if (digits !== undefined) return digits.toLowerCase()
  throw new InvalidArgumentError('expected 64 hex digits')
}

function parseReason(text: string): string {
  if (isErasureReason(text)) return text
  throw new InvalidArgumentError(
    `expected 1 to ${ERASURE_REASON_MAX} characters without control characters and format characters`,
  )
}
