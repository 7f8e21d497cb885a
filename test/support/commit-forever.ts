import { openDatabase } from '#src/storage/database.ts'
import { runCommitter } from '../src/verified/commits/run-committer.ts'
import { createScriptedLog } from './scripted-log.ts'

/*
 * A process that commits until it is killed: `node commit-forever.ts <data folder> <relayer>`. It
 * writes one line of JSON for each record, after the caller got the record.
 */
const [dataFolder = '', relayer = ''] = process.argv.slice(2)
const database = await openDatabase({ dataFolder })
const log = await createScriptedLog()
const { committer } = runCommitter(database, log, { relayer })
const never = new AbortController().signal

async function ask(): Promise<void> {
  for (;;) {
    const { notary, index } = log.seal({ content: 'x'.repeat(Math.floor(Math.random() * 5000)) })
    const { id, txHash } = await committer.waitFor(notary, index, never)
    process.stdout.write(`${JSON.stringify({ notary, index, id, txHash })}\n`)
  }
}

await Promise.all(Array.from({ length: 5 }, ask))
