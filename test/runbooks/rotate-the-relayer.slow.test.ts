import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { relayerAddress } from '#src/chain/sign-anchor.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { readSection, walkPage, walkText } from './walk.ts'

const HOME_ACCOUNT = `0x${'42'.repeat(20)}`

let machine: Machine

beforeAll(async () => {
  machine = await startMachine()
})
afterAll(() => machine.stop())

const balanceOf = async (address: string) =>
  BigInt(String(await machine.callChain('eth_getBalance', [address, 'latest'])))

/** What `affidavit relayer` says of one account. */
async function relayerAt(address: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const { stdout } = await runCli(['relayer', '--json'], {
    variables: { CONTROL_SOCKET: machine.gateways[0].controlSocket },
  })
  return (JSON.parse(stdout) as { readonly address: string }[]).find(
    (one) => one.address === address,
  )
}

it('the runbook for the relayer is followed with anchors that wait, on a chain that mines late', async () => {
  const old = relayerAddress(machine.chain.relayerKey)
  const records = [await machine.complete(), await machine.complete()]
  await until('they are confirmed', async () => (await relayerAt(old))?.unconfirmed === 0, 30_000)

  await machine.callChain('evm_setAutomine', [false])
  records.push(await machine.complete(), await machine.complete(), await machine.complete())
  await until('some wait', async () => Number((await relayerAt(old))?.waiting) > 0)

  await walkPage(
    'rotate-the-relayer',
    { ...machine.walking, variables: { ...machine.walking.variables, HOME_ACCOUNT } },
    async (walk) => {
      await walk.section('Before you begin')
      const made = walk.section('Make the new account')
      const file = join(machine.etc, 'relayer.key.new')
      const readKey = async () => (await readFile(file, 'utf8').catch(() => '')).trim()
      await until('there is a whole key', async () => /^0x[0-9a-f]{64}$/.test(await readKey()))
      const fresh = relayerAddress(await readKey())
      // The wallet.
      await machine.callChain('anvil_setBalance', [fresh, `0x${(10n ** 18n).toString(16)}`])
      await made
      await walk.section('Change over')
      expect(await relayerAt(old)).toMatchObject({ current: false })
      expect(Number((await relayerAt(old))?.waiting)).toBeGreaterThan(0)
      records.push(await machine.complete(), await machine.complete())

      // The pool forgets what it was sent. No gateway has the old key, but all is mined even so.
      await machine.callChain('anvil_dropAllTransactions', [])
      const home = walk.section('Wait, and bring the rest home')
      const [, reported] = await Promise.all([mineLate(() => relayerAt(old)), home])
      expect(reported.at(-1)?.output).toMatch(
        /anchors of this account not confirmed, \d+ of these in no block/,
      )
      expect(await balanceOf(HOME_ACCOUNT)).toBeGreaterThan(9_000n * 10n ** 18n)
      expect(await balanceOf(old)).toBeLessThan(10n ** 16n)
      await walk.section('How to know that it worked')
    },
  )

  await machine.callChain('evm_setAutomine', [true])
  await until(
    'nothing waits',
    async () => {
      const { stdout } = await runCli(['relayer', '--json'], {
        variables: { CONTROL_SOCKET: machine.gateways[0].controlSocket },
      })
      return (JSON.parse(stdout) as { unconfirmed: number }[]).every((one) => one.unconfirmed === 0)
    },
    60_000,
  )
  for (const { hash } of records)
    expect(await machine.readRecord(hash)).not.toHaveProperty('reanchored')
  const audit = await machine.audit()
  expect(audit.stdout).toMatch(/CLEAN/)
  expect(audit.code).toBe(0)
})

it('relayer withdraw refuses the key that signs, an unknown key and a mistyped address', async () => {
  const withdraw = (key: string, to: string) =>
    runCli(['relayer', 'withdraw', '--rpc', machine.chain.rpcUrl, '--to', to], {
      variables: {
        CONTROL_SOCKET: machine.gateways[0].controlSocket,
        RELAYER_PRIVATE_KEY: key,
      },
    })
  const settings = await readFile(join(machine.etc, 'gateway.env'), 'utf8')
  const current = /^RELAYER_PRIVATE_KEY=(.*)$/m.exec(settings)?.[1] ?? ''
  const before = await balanceOf(relayerAddress(current))
  expect(await withdraw(current, HOME_ACCOUNT)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/the gateway signs with 0x/),
  })
  expect(await withdraw(`0x${'d5'.repeat(32)}`, HOME_ACCOUNT)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/the database has no anchors of 0x/),
  })
  const mistyped = '0x23618e81E3f5cdF7f54C3d65f7FBc0aBf5B21E8F'.replace('E8F', 'e8F')
  expect(await withdraw(current, mistyped)).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/its checksum is wrong/),
  })
  expect(await balanceOf(relayerAddress(current))).toBe(before)
})

/** Blocks come, one transaction's worth at a time, until no anchor is unconfirmed. */
async function mineLate(look: () => Promise<Readonly<Record<string, unknown>> | undefined>) {
  for (let count = 0; count < 200; count++) {
    if ((await look())?.unconfirmed === 0) break
    await machine.callChain('evm_mine', [])
  }
  // And for the transfer itself.
  await machine.callChain('evm_setAutomine', [true])
}

it('the old key is kept when the change over is done twice', async () => {
  const section = await readSection('rotate-the-relayer', 'Change over')
  const [block = ''] = /```sh\n[\s\S]*?```/.exec(section) ?? []
  const commands = { systemctl: () => undefined, curl: () => undefined, affidavit: () => undefined }
  await walkText(
    `## Twice\n\n${block}\n\n${block}\n`,
    { commands, variables: { GATEWAY: '' } },
    async (walk) => {
      const file = walk.place('/etc/affidavit/gateway.env')
      await writeFile(file, 'A=1\nRELAYER_PRIVATE_KEY=old\nB=2\n')
      await writeFile(`${walk.place('/etc/affidavit')}/relayer.key.new`, 'new\n')
      await walk.rest()
      expect(await readFile(`${file}.before`, 'utf8')).toContain('RELAYER_PRIVATE_KEY=old')
      expect(await readFile(file, 'utf8')).toBe('A=1\nB=2\nRELAYER_PRIVATE_KEY=new\n')
    },
  )
})
