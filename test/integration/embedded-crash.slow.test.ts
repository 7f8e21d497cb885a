import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openDatabase } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { OPENING } from '../src/verified/commits/build-commit.ts'
import { randomRelayer } from '../src/verified/commits/run-committer.ts'
import { type DatabaseSource, startDatabases } from '../support/databases.ts'

const KILLS = 6

type Given = {
  readonly notary: string
  readonly index: number
  readonly id: string
  readonly txHash: string
}

describe('the embedded database', () => {
  let source: DatabaseSource
  beforeAll(async () => {
    source = await startDatabases('embedded')
  })
  afterAll(() => source.stop())

  it(`the embedded database keeps every record that was given to a caller through ${KILLS} kills of its process`, async () => {
    const location = await source.locate()
    if (!('dataFolder' in location)) throw new Error('expected a folder')
    const relayer = randomRelayer()
    const given: Given[] = []
    for (let kill = 0; kill < KILLS; kill++)
      given.push(...(await commitUntilKilled(location.dataFolder, relayer)))
    expect(given.length).toBeGreaterThan(KILLS)

    const database = await openDatabase(location)
    const records = createRecordsStore(database, OPENING.domain.chainId)
    for (const { notary, index, ...facts } of given)
      expect(await records.findByIndex(notary, index)).toMatchObject(facts)

    const anchors = await database.queries
      .selectFrom('anchors')
      .select('nonce')
      .orderBy('nonce')
      .execute()
    expect(anchors.map(({ nonce }) => nonce)).toEqual(anchors.map((_, at) => at))
    // Opening a log recomputes its root from the stored leaves.
    const commits = createCommitsStore(database)
    for (const { notary } of await database.queries.selectFrom('logs').select('notary').execute())
      await commits.openLog({ notary, publicKey: `0x${'00'.repeat(65)}`, ...OPENING })
    await database.close()
  })
})

/**
 * Gives the records that callers got until the process was killed, at some moment after the first.
 */
async function commitUntilKilled(dataFolder: string, relayer: string): Promise<readonly Given[]> {
  const program = path.join(import.meta.dirname, '..', 'support', 'commit-forever.ts')
  const child = spawn(process.execPath, [program, dataFolder, relayer], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const given: Given[] = []
  const first = Promise.withResolvers<void>()
  const lines = createInterface({ input: child.stdout }).on('line', (line) => {
    // The kill may cut off the last line: then no caller got that record.
    if (line.endsWith('}')) given.push(JSON.parse(line))
    first.resolve()
  })
  const closed = Promise.all([once(lines, 'close'), once(child, 'exit')])
  await Promise.race([first.promise, closed])
  await sleep(Math.random() * 800)
  child.kill('SIGKILL')
  await closed
  expect(child.signalCode).toBe('SIGKILL')
  return given
}
