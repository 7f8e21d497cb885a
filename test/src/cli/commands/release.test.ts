import { execFileSync } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildRelease } from '../../../support/build-release.ts'
import { needProgram } from '../../../support/needs.ts'
import {
  OPERATOR_KEY,
  OPERATOR_SECRET,
  openReleaseStage,
  type ReleaseStage,
  STRANGER_KEY,
} from '../../../support/release-stage.ts'
import { runCli } from '../../../support/run-cli.ts'
import { runCommand } from '../../../support/run-command.ts'
import { pemOf } from '../../../support/secret-key-pem.ts'

const OPENSSL = needProgram('openssl')

let stage: ReleaseStage
let key: string
beforeAll(async () => {
  stage = await openReleaseStage()
  key = stage.path('operator.key')
  await writeFile(key, pemOf(OPERATOR_SECRET), { mode: 0o600 })
})
afterAll(() => stage.close())

const readJson = async (path: string) => JSON.parse(await readFile(path, 'utf8'))
const modeOf = async (path: string) => (await stat(path)).mode & 0o777

describe('affidavit release key', () => {
  it('release key makes a key that only its owner can read, and prints the public one', async () => {
    const path = stage.path('new.key')
    const { code, stdout, stderr } = await runCommand('release', 'key', path)
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^[0-9a-f]{64}\n$/)])
    expect(stderr).toContain('do not keep it on any machine that serves')
    expect([await modeOf(path), await readFile(`${path}.pub`, 'utf8')]).toEqual([0o600, stdout])
    expect(await readFile(path, 'utf8')).toMatch(/^-----BEGIN PRIVATE KEY-----/)
  })

  it.runIf(OPENSSL.isMet)(
    OPENSSL.title('a private key of a release is read and written by OpenSSL'),
    async () => {
      const made = stage.path('made.key')
      const { stdout } = await runCommand('release', 'key', made)
      const der = execFileSync('openssl', ['pkey', '-in', made, '-pubout', '-outform', 'DER'])
      expect(der.subarray(-32).toString('hex')).toBe(stdout.trim())
      const foreign = stage.path('foreign.key')
      execFileSync('openssl', ['genpkey', '-algorithm', 'ed25519', '-out', foreign])
      await chmod(foreign, 0o600)
      const file = await stage.save('foreign.json', buildRelease())
      expect((await runCommand('release', 'sign', file, '--key', foreign)).code).toBe(0)
    },
  )
})

describe('affidavit release sign', () => {
  it('release sign signs what the image builder wrote, in place, for everybody to read', async () => {
    const file = await stage.save('measurements.json', buildRelease())
    const { code, stderr } = await runCommand('release', 'sign', file, '--key', key)
    expect([code, stderr]).toEqual([0, expect.stringContaining('release 1.4.0')])
    const signed = await readJson(file)
    expect(signed).toMatchObject({ format: 'affidavit-release/v1', release: buildRelease() })
    expect(signed.signatures.map((entry: { public_key: string }) => entry.public_key)).toEqual([
      OPERATOR_KEY,
    ])
    expect(await modeOf(file)).toBe(0o644)
  })

  it('release sign reads the key from standard input, and writes to standard output', async () => {
    const file = await stage.save('piped.json', buildRelease())
    const words = ['release', 'sign', file, '--key', '-', '--output', '-']
    const { code, stdout } = await runCli(words, { input: pemOf(OPERATOR_SECRET) })
    expect([code, JSON.parse(stdout).signatures]).toMatchObject([0, [{ public_key: OPERATOR_KEY }]])
  })

  it('release sign adds no signature to a file that was changed after it was signed', async () => {
    const file = await stage.saveRelease('changed.json', buildRelease())
    const signed = await readJson(file)
    await stage.save('changed.json', {
      ...signed,
      release: { ...signed.release, version: '6.6.6' },
    })
    const { code, stderr } = await runCommand('release', 'sign', file, '--key', key)
    expect([code, stderr]).toEqual([1, expect.stringContaining('changed after it was signed')])
  })

  it.each([
    [
      'that others can read',
      async () => stage.save('open.key', pemOf(OPERATOR_SECRET)),
      'chmod 600',
    ],
    ['that is not there', async () => stage.path('nothing'), 'ENOENT'],
    [
      'that is no key',
      async () => saved('text.key', 'secret words'),
      'expected an Ed25519 private key',
    ],
    [
      'of another kind',
      async () => saved('other.key', otherKey()),
      'expected an Ed25519 private key',
    ],
  ])(
    'release sign refuses a private key %s, and repeats nothing from it',
    async (_, make, reason) => {
      const file = await stage.save('plain.json', buildRelease())
      const { code, stderr } = await runCommand('release', 'sign', file, '--key', await make())
      const exitCode = reason === 'ENOENT' ? 3 : 2
      expect([code, stderr]).toEqual([exitCode, expect.stringContaining(reason)])
      expect(stderr).not.toContain('secret words')
    },
  )

  async function saved(name: string, text: string): Promise<string> {
    const path = await stage.save(name, text)
    await chmod(path, 0o600)
    return path
  }

  const otherKey = () =>
    generateKeyPairSync('x25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
})

describe('affidavit release show', () => {
  it('release show shows a release, and that its signatures hold, whosever they are', async () => {
    const file = await stage.saveRelease('shown.json', buildRelease())
    const { code, stdout } = await runCommand('release', 'show', file)
    expect(code).toBe(3)
    expect(stdout).toContain('release 1.4.0')
    expect(stdout).toMatch(/INCOMPLETE: .*The owners of the keys were not checked/)
  })

  it('a shown release is valid when a trusted key signed, and invalid when none did', async () => {
    const file = await stage.saveRelease('shown.json', buildRelease())
    const valid = await runCommand('release', 'show', file, '--release-key', OPERATOR_KEY, '--json')
    expect([valid.code, JSON.parse(valid.stdout)]).toMatchObject([
      0,
      { ok: true, signatures: [{ public_key: OPERATOR_KEY, holds: true, trusted: true }] },
    ])
    const strange = await runCommand(
      'release',
      'show',
      file,
      '--release-key',
      STRANGER_KEY,
      '--json',
    )
    expect([strange.code, JSON.parse(strange.stdout)]).toMatchObject([
      1,
      { ok: false, signatures: [{ holds: true, trusted: false }] },
    ])
  })
})
