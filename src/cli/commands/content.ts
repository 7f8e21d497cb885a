import { randomBytes } from 'node:crypto'
import type { Command } from 'commander'
import { CliError, inWords } from '../faults.ts'
import { timeCell } from '../printable.ts'
import { type JsonOption, operations, printList } from './operator.ts'

export function registerContent(program: Command): void {
  const content = program
    .command('content')
    .description('the keys that encrypt requests and answers in the database')
    .helpCommand(false)
  content
    .command('key')
    .description('print a new key, as a line for CONTENT_KEY_FILE')
    .action(() => void process.stdout.write(`${randomBytes(32).toString('base64')}\n`))
  content
    .command('keys')
    .description('list the ids of the keys that content was encrypted with')
    .option('--json', 'print one JSON array')
    .action(listKeys)
  content
    .command('encrypt')
    .description(
      'encrypt stored content with the newest key; content that already has that key is skipped',
    )
    .action(encryptContent)
}

async function listKeys(options: JsonOption): Promise<void> {
  const { withOperations } = await operations()
  const { keys } = await withOperations(({ content }) => content.keys({}), {
    needsContentKeys: true,
  })
  printList(keys, options, {
    titles: ['ID', 'FIRST USED', 'RETIRED', 'STATE'],
    toRow: ({ id, first_used_at: first, retired_at: retired, ...key }) => [
      id,
      timeCell(first),
      timeCell(retired),
      key.is_newest ? 'encrypts' : key.is_known ? 'decrypts' : 'missing',
    ],
  })
}

async function encryptContent(): Promise<void> {
  const { withOperations } = await operations()
  const counts = { encrypted: 0, unreadable: 0 }
  await withOperations(
    async ({ content }) => {
      for (let after: number | null = 0; after !== null; ) {
        const batch: Awaited<ReturnType<typeof content.encrypt>> = await inWords(
          content.encrypt({ after }),
          { content_key_missing: NO_KEY },
        )
        counts.encrypted += batch.encrypted
        counts.unreadable += batch.unreadable
        after = batch.next
      }
      if (counts.unreadable === 0) await content.retire({})
    },
    { needsContentKeys: true },
  )
  const { encrypted, unreadable } = counts
  process.stdout.write(`Content of ${encrypted} record${encrypted === 1 ? '' : 's'} encrypted.\n`)
  if (unreadable > 0)
    throw new CliError(
      `content of ${unreadable} records cannot be decrypted: their keys are missing, or the ` +
        'records were changed',
    )
}

const NO_KEY =
  'there is no key: set CONTENT_KEY_FILE or CONTENT_KEY_COMMAND as the gateway has them'
