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
const read = (path: string) => readFileSync(join(project, path))
const real = parseDependencies(read('enclave/image/dependencies.json'), read('package-lock.json'))
const folder = mkdtempSync(join(tmpdir(), 'closure-'))
afterAll(() => rmSync(folder, { recursive: true }))

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
    timeout: 200_000,
    killSignal: 'SIGTERM',
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
