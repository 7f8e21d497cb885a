import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { signReleaseList } from '#attestation/release/verify-release.ts'
import { entryNamed, releaseNamed } from '../support/enclave-fleet.ts'
import { OPERATOR_KEY, OPERATOR_SECRET } from '../support/release-stage.ts'
import { runCli } from '../support/run-cli.ts'
import { pemOf } from '../support/secret-key-pem.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

let machine: Machine

beforeAll(async () => {
  machine = await startMachine({
    enclaves: { 16: 'a1', 17: 'a2' },
    settings: (folder) => ({
      ENCLAVE_RELEASES_FILE: join(folder, 'etc/public/releases.json'),
      RELEASE_KEY: OPERATOR_KEY,
    }),
    async prepare(folder) {
      const list = {
        issued_at: '2026-01-01T00:00:00Z',
        releases: [entryNamed('a1'), entryNamed('a2')],
      }
      const text = JSON.stringify(signReleaseList(list, OPERATOR_SECRET))
      await mkdir(join(folder, 'etc/public'))
      await writeFile(join(folder, 'etc/public/releases.json'), text)
      // The machine that signs.
      await writeFile(join(folder, 'releases.json'), text)
      await writeFile(join(folder, 'release.key'), pemOf(OPERATOR_SECRET), { mode: 0o600 })
      await writeFile(join(folder, 'release.key.pub'), OPERATOR_KEY)
    },
  })
})
afterAll(() => machine.stop())

type Enclave = {
  readonly url: string
  readonly state: string
  readonly notary: string
  readonly calls: number
}

async function listEnclaves(): Promise<readonly Enclave[]> {
  const { stdout } = await runCli(['enclaves', 'list', '--json'], {
    variables: { CONTROL_SOCKET: machine.gateways[0].controlSocket },
  })
  return JSON.parse(stdout) as readonly Enclave[]
}

it('the runbook for retiring an enclave is followed during calls, and what it signed verifies afterwards', async () => {
  const old = (await listEnclaves()).find(({ url }) => url.includes('enclave-16'))
  const before = await Promise.all(Array.from({ length: 6 }, () => machine.complete()))
  const theirs = before.filter(({ notary }) => notary === old?.notary)
  expect(theirs).not.toEqual([])

  // Calls that both enclaves have while the provider does not answer.
  await machine.provider.way.behave('hang')
  const calls = Array.from({ length: 4 }, () => machine.complete())
  await until('both have calls', async () => (await listEnclaves()).every((one) => one.calls > 0))

  const variables = {
    ...machine.walking.variables,
    CID: '16',
    RELEASE: releaseNamed('a1').version,
    RELEASE_KEY_FILE: join(machine.folder, 'release.key'),
    RELEASES: join(machine.folder, 'releases.json'),
    AUDIT_OPTIONS: `--root ${machine.rootFile} --key ${machine.key}`,
  }
  await walkPage('retire-an-enclave', { ...machine.walking, variables }, async (walk) => {
    await walk.section('Before you begin')
    let isDrained = false
    const draining = walk.section('Drain it').then(() => {
      isDrained = true
    })
    await until('it drains', async () => (await listEnclaves())[0]?.state === 'draining')
    expect((await listEnclaves())[0]).toMatchObject({ url: old?.url })
    expect(isDrained).toBe(false)
    await machine.provider.way.behave('pass')
    await draining
    await walk.rest()
  })

  // Those that were under way when it was drained are answered, some of them by it.
  const answered = await Promise.all(calls)
  theirs.push(...answered.filter(({ notary }) => notary === old?.notary))
  expect(theirs.length).toBeLessThan(before.length + calls.length)
  expect(machine.enclaves.get('16')?.isRunning).toBe(false)
  const after = await machine.complete()
  expect(after.notary).not.toBe(old?.notary)
  for (const { hash } of theirs) {
    const words = ['--root', machine.rootFile, '--rpc', machine.chain.rpcUrl]
    const list = ['--release', join(machine.folder, 'releases.json'), '--release-key', OPERATOR_KEY]
    const verified = await runCli(['verify', hash, ...words, ...list], {
      variables: { AFFIDAVIT_URL: machine.gateways[0].origin, AFFIDAVIT_API_KEY: machine.key },
    })
    expect(verified.stdout).toMatch(/^(VERIFIED|INCOMPLETE): .*passed +measurements/s)
  }
})
