import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { signRelease, signReleaseList } from '#attestation/release/verify-release.ts'
import { entryNamed, releaseNamed } from '../support/enclave-fleet.ts'
import {
  OPERATOR_KEY,
  OPERATOR_SECRET,
  STRANGER_KEY,
  STRANGER_SECRET,
} from '../support/release-stage.ts'
import { runCli } from '../support/run-cli.ts'
import { pemOf } from '../support/secret-key-pem.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

/** Two sign: the operator, who leaves, and a colleague, who stays. */
const COLLEAGUE_KEY = STRANGER_KEY
const list = { issued_at: '2026-01-01T00:00:00Z', releases: [entryNamed('a1')] }
const signedByBoth = JSON.stringify(
  signReleaseList(list, STRANGER_SECRET, signReleaseList(list, OPERATOR_SECRET).signatures),
)

let machine: Machine

beforeAll(async () => {
  machine = await startMachine({
    settings: (folder) => ({
      ENCLAVE_RELEASES_FILE: join(folder, 'etc/public/releases.json'),
      RELEASE_KEY: `${OPERATOR_KEY},${COLLEAGUE_KEY}`,
    }),
    async prepare(folder) {
      await mkdir(join(folder, 'etc/public'))
      await writeFile(join(folder, 'etc/public/releases.json'), signedByBoth)
    },
  })
})
afterAll(() => machine.stop())

/** The keys that the gateway's settings trust. */
async function readGatewayKeys(): Promise<readonly string[] | undefined> {
  const settings = await readFile(join(machine.etc, 'gateway.env'), 'utf8')
  return /^RELEASE_KEY=(.*)$/m.exec(settings)?.[1]?.split(',')
}

it('the runbook for release keys is followed, and readers are refused exactly when they were told', async () => {
  const { hash } = await machine.complete()
  const { origin } = machine.gateways[0]
  const variables = {
    ...machine.walking.variables,
    OLD_KEY: 'operator.key',
    OTHER_KEYS: 'colleague.key',
    MEASUREMENTS: 'measurements.json',
  }
  await walkPage('rotate-release-keys', { ...machine.walking, variables }, async (walk) => {
    const file = (name: string) => join(walk.folder, name)
    await writeFile(file('releases.json'), signedByBoth)
    const release = signRelease(releaseNamed('a1'), OPERATOR_SECRET)
    await writeFile(file('measurements.json'), JSON.stringify(release))
    await writeFile(file('operator.key'), pemOf(OPERATOR_SECRET), { mode: 0o600 })
    await writeFile(file('operator.key.pub'), OPERATOR_KEY)
    await writeFile(file('colleague.key'), pemOf(STRANGER_SECRET), { mode: 0o600 })
    /** How a reader's check of the record ends, by the list as it is published. */
    const verify = async (keys: readonly string[], signers = 1, source = 'releases.json') => {
      const trust = keys.flatMap((key) => ['--release-key', key])
      const words = ['--release', file(source), ...trust, '--release-signers', String(signers)]
      const { code, stdout, stderr } = await runCli(
        ['verify', hash, '--root', machine.rootFile, ...words],
        { variables: { AFFIDAVIT_URL: origin, AFFIDAVIT_API_KEY: machine.key } },
      )
      return code !== 1 && /passed +measurements/.test(stdout) ? 'passed' : stdout + stderr
    }

    await walk.section('Before you begin')
    await walk.section('Create the new key')
    const fresh = (await readFile(file('release-new.key.pub'), 'utf8')).trim()
    await walk.section('Sign with both')
    expect(await verify([OPERATOR_KEY])).toBe('passed')
    expect(await verify([fresh])).toBe('passed')
    expect(await verify([OPERATOR_KEY, COLLEAGUE_KEY], 2)).toBe('passed')
    expect(await verify([fresh], 1, 'measurements.json')).toBe('passed')
    await walk.section('Have readers trust both')
    expect(await readGatewayKeys()).toEqual([OPERATOR_KEY, fresh, COLLEAGUE_KEY])
    await walk.section('Sign with the new key alone')
    expect(await readGatewayKeys()).toEqual([fresh, COLLEAGUE_KEY])
    expect(await verify([fresh])).toBe('passed')
    expect(await verify([fresh, COLLEAGUE_KEY], 2)).toBe('passed')
    expect(await verify([OPERATOR_KEY, fresh])).toBe('passed')
    expect(await verify([OPERATOR_KEY])).toMatch(/release_not_signed/)
    await walk.section('How to know that it worked')
    await machine.complete()
  })

  // A gateway that was forgotten says at its start what is wrong.
  const { program, etc } = machine.gateways[0]
  const settings = await readFile(join(etc, 'gateway.env'), 'utf8')
  await program.end('SIGTERM')
  await writeFile(
    join(etc, 'gateway.env'),
    settings.replace(/^RELEASE_KEY=.*$/m, `RELEASE_KEY=${OPERATOR_KEY}`),
  )
  await machine.gateways[0].start()
  await expect
    .poll(() => program.output)
    .toMatch(/ENCLAVE_RELEASES_FILE .*: .*expected signatures of 1 of the trusted keys, got 0/)
})
