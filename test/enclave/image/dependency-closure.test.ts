import { execFile } from 'node:child_process'
import {
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { parseDependencies } from '#enclave/image/dependency-closure.ts'
import { readTrackedSources } from '#enclave/image/tracked-files.ts'
import { ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'

const project = join(import.meta.dirname, '../../..')
const list = readFileSync(join(project, 'enclave/image/dependencies.json'))
const lock = readFileSync(join(project, 'package-lock.json'))
const real = parseDependencies(list, lock)
const folder = mkdtempSync(join(tmpdir(), 'closure-'))
afterAll(() => rmSync(folder, { recursive: true }))

const change = (bytes: Uint8Array, edit: (value: never) => unknown) =>
  Buffer.from(JSON.stringify(edit(JSON.parse(Buffer.from(bytes).toString()) as never)))

/** Lays out the measured sources with only those files of the packages that the image takes. */
async function layOut(): Promise<void> {
  const { files } = await readTrackedSources(project)
  for (const path of files.keys()) cpSync(join(project, path), join(folder, path))
  for (const { name, take } of real.packages)
    for (const file of globSync([...take], { cwd: join(project, 'node_modules', name) })) {
      const target = join(folder, 'node_modules', name, file)
      mkdirSync(dirname(target), { recursive: true })
      cpSync(join(project, 'node_modules', name, file), target)
    }
  for (const [path, entry] of real.manifests)
    if (entry.kind === 'file') writeFileSync(join(folder, path), entry.data)
}

const run = (words: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  promisify(execFile)(process.execPath, [...words], {
    cwd: folder,
    env,
    timeout: 50_000,
    killSignal: 'SIGTERM',
  })

describe('parseDependencies', () => {
  it('parseDependencies gives each package of the list the version and the digest of the lock file', () => {
    const locked = JSON.parse(lock.toString()).packages
    expect(real.packages.length).toBeGreaterThan(4)
    for (const { name, version, integrity } of real.packages)
      expect(locked[`node_modules/${name}`]).toMatchObject({ version, integrity })
  })

  it('parseDependencies leaves out native add-ons, and every other platform of koffi', () => {
    const names = real.packages.map(({ name }) => name)
    expect(names.filter((name) => /extract|koffi-/.test(name))).toEqual([
      '@koromix/koffi-linux-x64',
    ])
  })

  it('parseDependencies refuses a list that lacks what a package depends on', () => {
    const short = change(list, (value: { packages: { name: string }[] }) => ({
      ...value,
      packages: value.packages.filter(({ name }) => name !== 'uint8array-tools'),
    }))
    expect(() => parseDependencies(short, lock)).toThrow(
      expect.objectContaining({
        code: 'closure_incomplete',
        message: expect.stringContaining('uint8array-tools'),
      }),
    )
  })

  it('parseDependencies refuses a Node.js other than the version that the project is tested with', () => {
    const other = change(list, (value: { runtime: object }) => ({
      ...value,
      runtime: { ...value.runtime, version: '24.0.0' },
    }))
    expect(() => parseDependencies(other, lock)).toThrow(
      expect.objectContaining({ code: 'pins_malformed' }),
    )
  })

  it('parseDependencies refuses a package that the lock file lacks', () => {
    const other = change(list, (value: { packages: object[] }) => ({
      ...value,
      packages: [...value.packages, { name: 'left-out', why: 'x', take: ['x'] }],
    }))
    expect(() => parseDependencies(other, lock)).toThrow('no version and SHA-512 of left-out')
  })
})

describe('the files of an image', () => {
  it('the files that are taken are all that an enclave starts, answers and calls koffi with', async () => {
    await layOut()
    const nsm = await serveSoftwareNsm({
      socketPath: join(folder, 'nsm.sock'),
      rootFile: join(folder, 'root.pem'),
    })
    const variables = {
      NSM_SOCKET: nsm.socketPath,
      ENCLAVE_SOCKET: join(folder, 'enclave.sock'),
      IDENTITY: ENCLAVE_PATHS.identity,
      CHAIN_ID: '1',
      CONTRACT_ADDRESS: `0x${'ab'.repeat(20)}`,
    }
    const watch = `
      const { request } = await import('node:http')
      await import('./enclave/main.ts')
      const answer = await new Promise((resolve, reject) => {
        const { ENCLAVE_SOCKET: socketPath, IDENTITY: path } = process.env
        request({ socketPath, path }, resolve).on('error', reject).end()
      })
      process.stdout.write('status ' + answer.statusCode)
      const { default: koffi } = await import('koffi')
      process.stdout.write(' native ' + (koffi.load(null).func('int getpid()')() === process.pid))
      process.kill(process.pid, 'SIGTERM')`
    const { stdout } = await run(['--input-type=module', '--eval', watch], variables)
    await nsm.close()
    expect(stdout).toContain('"event":"ready"')
    expect(stdout).toContain('status 200 native true')
  })
})
