import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createCaller, type ProvenCompletion } from '../support/deployment/callers.ts'
import { DEBIAN_POSTGRES, DEBIAN_POSTGRES_PROGRAMS } from '../support/postgres.ts'
import { runCli } from '../support/run-cli.ts'
import { type Machine, startMachine } from './machine.ts'
import { readSection, walkPage, walkText } from './walk.ts'

const PARAMETERS = '?sslmode=disable&connect_timeout=9'

it('the hourly backup keeps the acts of the hour before while there is no database', async () => {
  const backups = await mkdtemp(join(tmpdir(), 'affidavit-backups-'))
  try {
    for (const name of ['admin-log.txt', 'admin-log.end'])
      await writeFile(join(backups, name), 'of the hour before')
    const commands = { affidavit: () => ({ code: 1 }) }
    const walked = walkText(
      await readSection('backup-and-restore', 'Every hour'),
      { commands, variables: { BACKUPS: backups } },
      async (walk) => void (await walk.rest()),
    )
    await expect(walked).rejects.toThrow('a step failed with 1')
    for (const name of ['admin-log.txt', 'admin-log.end'])
      expect(await readFile(join(backups, name), 'utf8')).toBe('of the hour before')
  } finally {
    await rm(backups, { recursive: true })
  }
})

it('the block that repeats revocations can run twice, and a key that the dump lacks does not end it', async () => {
  const section = await readSection('backup-and-restore', 'Do again what administrators did since')
  const titles = 'POSITION  AT  WHO  FROM  KIND  TARGET  OUTCOME  DETAILS\n'
  const lost = 'lostlostlostlost'
  const known = 'knownknownknownk'
  const acts = [
    `12  t  root  command line  key.revoke  ${lost}  revoked  {}\n`,
    '11  t  root  command line  account.disable  mallory  done  {}\n',
    `10  t  root  command line  key.revoke  ${known}  revoked  {}\n`,
  ].join('')
  const revoked: string[] = []
  let last = 9
  const affidavit = ([command, verb, id = '']: readonly string[]) => {
    if (command === 'admin-log') return { output: `${titles}${last}  t  root\n` }
    expect([command, verb]).toEqual(['keys', 'revoke'])
    // Each attempt is an act in the restored log.
    last++
    revoked.push(id)
    return id === lost ? { output: `no key has the id ${id}\n`, code: 1 } : {}
  }
  const backups = await mkdtemp(join(tmpdir(), 'affidavit-backups-'))
  try {
    await writeFile(join(backups, 'admin-log.txt'), `${titles}${acts}`)
    const variables = { BACKUPS: backups, RESTORED_URL: 'postgres://restored' }
    await walkText(section + section, { commands: { affidavit }, variables }, async (walk) => {
      const walked = await walk.rest()
      const output = `${acts}no key has the id ${lost}\n`
      expect(walked.map((step) => step.output)).toEqual([output, output])
    })
    expect(revoked).toEqual([lost, known, lost, known])
  } finally {
    await rm(backups, { recursive: true })
  }
})

describe.runIf(DEBIAN_POSTGRES.isMet)(DEBIAN_POSTGRES.title('backup and restore'), () => {
  const programs = DEBIAN_POSTGRES_PROGRAMS
  let machine: Machine
  beforeAll(async () => {
    machine = await startMachine({ database: { programs } })
    // As many have it: what stands for all that was matched, in sed.
    const file = join(machine.etc, 'gateway.env')
    const settings = await readFile(file, 'utf8')
    await writeFile(file, settings.replace(/^DATABASE_URL=.*$/m, `$&${PARAMETERS}`))
  })
  afterAll(() => machine?.stop())

  it('last night’s dump is restored under a chain that went on, and only what came after it is lost', async () => {
    const { key: ownKey, postgres, chain, rootFile, etc, walking } = machine
    const [{ origin }] = machine.gateways
    const caller = createCaller(
      { key: ownKey, nodeModel: '', readPolicy: () => expect.unreachable() },
      origin,
    )
    const complete = async (text: string): Promise<ProvenCompletion> =>
      (await caller.call('verified', text, 30_000)).proven ??
      expect.unreachable(`no proof of ${text}`)
    const get = (path: string, key = ownKey) =>
      fetch(`${origin}${path}`, { headers: { authorization: `Bearer ${key}` } })
    const database = { DATABASE_URL: postgres.url }
    const keys = async (...words: readonly string[]) => {
      const { code, stdout, stderr } = await runCli(['keys', ...words], { variables: database })
      if (code !== 0) throw new Error(stderr)
      return stdout
    }
    await walkPage('backup-and-restore', { ...walking, programs: [programs] }, async (walk) => {
      await walk.section('Before you begin')
      const kept = await complete('before the dump')
      const made = await keys('create', '--account', 'someone', '--name', 'stolen', '--json')
      const stolen = JSON.parse(made) as { readonly id: string; readonly key: string }
      const bystander = JSON.parse(
        await keys('create', '--account', 'bystander', '--name', 'honest', '--json'),
      ) as { readonly id: string; readonly key: string }
      await walk.section('Every night')
      const lost: ProvenCompletion[] = []
      for (const text of ['after 1', 'after 2', 'after 3']) lost.push(await complete(text))
      await keys('revoke', stolen.id)
      const later = JSON.parse(
        await keys('create', '--account', 'someone', '--name', 'made after the dump', '--json'),
      ) as { readonly id: string }
      await keys('revoke', later.id)
      // Names are customers' texts, and in the list of acts.
      const forged = `a key.revoke ${bystander.id}  key.revoke  ${bystander.id} b`
      await keys('create', '--account', 'someone', '--name', forged)
      await walk.section('Every hour')
      await anchored(machine, lost)
      const bundle = await fetchBundle(`${origin}/v1/evidence/${lost[0]?.hash}`)

      await walk.section("Restore last night's dump")
      const acts = await walk.section('Do again what administrators did since')
      expect(acts[0]?.output).toContain('key.revoke')
      expect(acts[0]?.output).toContain(`no key has the id ${later.id}`)
      await walk.section('Start')
      expect((await get('/v1/verified/chat/completions', stolen.key)).status).toBe(401)
      expect((await get('/v1/dashboard/me', bystander.key)).status).toBe(200)
      expect((await get(`/v1/verified/chat/completions/${kept.hash}`)).status).toBe(200)
      expect(await caller.call('verified', 'refused', 30_000)).toMatchObject({
        status: 503,
        code: 'not_ready',
      })
      await walk.section('Decide: get the old database back, or begin new logs')
      const next = await complete('after the restore')
      await anchored(machine, [next])
      const worked = await walk.section('How to know that it worked')
      expect(worked.at(-1)?.output).toMatch(/^ +3 hidden_anchor\nFOUND: 3 contradictory/)

      for (const { hash } of lost)
        expect((await get(`/v1/verified/chat/completions/${hash}`)).status).toBe(404)
      const trust = ['--any-measurement', '--root', rootFile]
      const onChain = ['--rpc', chain.rpcUrl]
      expect(await runCli(['verify', '-', ...trust, ...onChain], { input: bundle })).toMatchObject({
        code: 3,
        stdout: expect.stringMatching(/^ +passed +block on chain/m),
      })
      for (const completion of [kept, ...lost, next]) {
        const request = join(walk.folder, 'request.json')
        await writeFile(request, completion.request)
        const report = await runCli(['verify', '-', '--request', request, ...trust], {
          input: completion.answer,
        })
        expect(report).toMatchObject({ code: 3 })
      }
      expect(await readFile(join(etc, 'gateway.env'), 'utf8')).toMatch(
        /^DATABASE_URL=postgres:.*\/affidavit_restored\?sslmode=disable&connect_timeout=9$/m,
      )
    })
  })
})

/** The evidence of a completion, once its anchor's block is in it. */
async function fetchBundle(url: string): Promise<string> {
  let bundle = ''
  await expect
    .poll(async () => {
      bundle = await (await fetch(url)).text()
      return (JSON.parse(bundle) as { readonly block: unknown }).block
    })
    .not.toBeNull()
  return bundle
}

/** Resolves once the anchors of all of these are in blocks. */
async function anchored(
  { callChain }: Machine,
  completions: readonly ProvenCompletion[],
): Promise<void> {
  await expect
    .poll(() =>
      Promise.all(
        completions.map(({ txHash }) => callChain('eth_getTransactionReceipt', [txHash])),
      ),
    )
    .not.toContain(null)
}
