import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterEach, describe, expect, it } from 'vitest'
import { type FaultyProxy, startFaultyProxy } from '../support/faulty-proxy.ts'
import {
  DEBIAN_POSTGRES,
  DEBIAN_POSTGRES_PROGRAMS,
  type PostgresServer,
  startPostgres,
} from '../support/postgres.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { readSection, walkText } from './walk.ts'

const programs = DEBIAN_POSTGRES_PROGRAMS
const SETTINGS = { max_connections: '200' }

const DO_AGAIN = 'Do again what administrators did since'

/** The page, with the section of the other page where it leads to that section. */
async function readPage(): Promise<string> {
  const file = join(import.meta.dirname, '../../deploy/runbooks/failover-with-lost-commits.md')
  const section = await readSection('backup-and-restore', DO_AGAIN)
  const [before, after] = (await readFile(file, 'utf8')).split('\nPoint the gateways')
  if (after === undefined) throw new Error('expected a step after the acts')
  return `${before}\n${section}\nPoint the gateways${after}`
}

async function runAffidavit(
  { url }: Pick<PostgresServer, 'url'>,
  ...words: readonly string[]
): Promise<string> {
  const { code, stdout, stderr } = await runCli(words, { variables: { DATABASE_URL: url } })
  if (code !== 0) throw new Error(stderr)
  return stdout
}

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

/** A machine whose database has an asynchronous standby, behind a proxy that can be cut. */
async function startReplicated(): Promise<{
  readonly machine: Machine
  readonly link: FaultyProxy
  readonly standby: PostgresServer
}> {
  const machine = await startMachine({ database: { programs } })
  ends.push(machine.stop)
  const link = await startFaultyProxy(Number(new URL(machine.postgres.url).port))
  ends.push(link.stop)
  const standbyOf = `postgres://postgres@127.0.0.1:${link.port}/affidavit`
  const standby = await startPostgres(SETTINGS, { programs, standbyOf })
  ends.push(standby.stop)
  return { machine, link, standby }
}

/** Resolves once the standby has replayed all that the primary has written. */
async function catchUp({ machine, standby }: { machine: Machine; standby: PostgresServer }) {
  const [[written] = []] = await query(machine.postgres, 'select pg_current_wal_lsn()::text')
  const isThere = `select pg_last_wal_replay_lsn() >= '${written}'`
  await until('the standby has caught up', async () => {
    const [[isSo] = []] = await query(standby, isThere)
    return isSo === true
  })
}

type Answered = { readonly text: string }

function readAnswer({ text }: Answered) {
  return JSON.parse(text) as { readonly tx_hash: string; readonly public_key: string }
}

async function areAnchored({ callChain }: Machine, answers: readonly Answered[]): Promise<boolean> {
  const receipts = answers.map((answer) =>
    callChain('eth_getTransactionReceipt', [readAnswer(answer).tx_hash]),
  )
  return !(await Promise.all(receipts)).includes(null)
}

async function query(
  { url }: Pick<PostgresServer, 'url'>,
  text: string,
): Promise<readonly unknown[][]> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return (await client.query({ text, rowMode: 'array' })).rows
  } finally {
    await client.end()
  }
}

describe.runIf(DEBIAN_POSTGRES.isMet)(DEBIAN_POSTGRES.title('a failover with lost commits'), () => {
  it('a failover goes on with a new log, and only what the replica lacked is lost, as every part tells', async () => {
    const { machine, link, standby } = await startReplicated()
    const kept = await machine.complete()
    const made = await runAffidavit(
      machine.postgres,
      ...['keys', 'create', '--account', 'someone', '--json'],
    )
    const stolen = JSON.parse(made) as { readonly id: string; readonly key: string }
    await catchUp({ machine, standby })
    const places = {
      ...machine.walking.places,
      'postgres://postgres@replica.internal:5432/affidavit': standby.url,
    }
    const audit = (...words: readonly string[]) => machine.audit('--any-measurement', ...words)
    await walkText(
      await readPage(),
      { ...machine.walking, places, programs: [programs] },
      async (walk) => {
        await link.behave('hang')
        const lost = [await machine.complete(), await machine.complete()]
        await until('their anchors are in blocks', () => areAnchored(machine, lost))
        await audit('--state', join(walk.folder, 'audit.json'))
        await runAffidavit(machine.postgres, 'keys', 'revoke', stolen.id)
        await writeFile(
          join(walk.place('/var/backups/affidavit'), 'admin-log.txt'),
          await runAffidavit(machine.postgres, 'admin-log', '--limit', '1000'),
        )
        await machine.postgres.kill()

        await walk.section('Before you begin')
        await walk.section('Promote the replica')
        const [acts] = await walk.section(DO_AGAIN)
        expect(acts?.output).toContain(`Key ${stolen.id} is revoked.`)
        await expect(machine.complete({ key: stolen.key })).rejects.toThrow(/^401/)
        await expect(machine.complete()).rejects.toThrow(/^503: .*not_ready/)
        await walk.section('Decide: get the old primary back, or begin new logs')
        const next = await machine.complete()
        const worked = await walk.section('How to know that it worked')
        expect(worked.at(-1)?.output).toMatch(/^ +2 hidden_anchor\nFOUND: 2 contradictory/)
        for (const { hash } of [kept, next]) await machine.readRecord(hash)
        for (const { hash } of lost) await expect(machine.readRecord(hash)).rejects.toThrow(/^404/)
        const { stdout } = await audit('--state', join(walk.folder, 'audit.json'))
        expect(stdout).toMatch(/^ +! history_rewritten/m)
        expect(readAnswer(next).public_key).not.toBe(readAnswer(kept).public_key)
      },
    )
  })
})
