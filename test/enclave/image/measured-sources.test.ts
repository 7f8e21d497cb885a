import { execFileSync, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { layOutApplication } from '#enclave/image/boot-parts.ts'
import { encodeCpio, packRamdisk } from '#enclave/image/cpio.ts'
import { measureParts } from '#enclave/image/eif.ts'
import { type FileTree, type TreeEntry, textFile } from '#enclave/image/file-tree.ts'
import { writeSettings } from '#enclave/image/settings.ts'
import { readTrackedSources } from '#enclave/image/tracked-files.ts'
import { CALL_HEADER, ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { listLoadedFiles } from '../../house/import-rules.ts'
import { completionOf, send, wholeAnswer } from '../../support/hostile-answers.ts'
import { startHostileProvider } from '../../support/hostile-provider.ts'
import { readAnswer } from '../support/test-enclave.ts'

const root = join(import.meta.dirname, '../../..')
const sources = await readTrackedSources(root)
const place = mkdtempSync(join(tmpdir(), 'measured-'))
afterAll(() => rmSync(place, { recursive: true, force: true }))

/**
 * Files of the project that Node.js read as modules, as its own hooks report them in a process of
 * enclave/main.ts.
 */
async function listLoaded(): Promise<readonly string[]> {
  const provider = await startHostileProvider({
    answer: () => [send(wholeAnswer({ body: JSON.stringify(completionOf('hello')) }))],
  })
  const nsm = await serveSoftwareNsm({
    socketPath: join(place, 'n'),
    rootFile: join(place, 'root.pem'),
  })
  const hooks = join(place, 'hooks.mjs')
  const list = join(place, 'loaded')
  writeFileSync(hooks, hooksThatWrite(list))
  const socketPath = join(place, 's')
  const verifier = spawn(process.execPath, ['--import', hooks, join(root, 'enclave/main.ts')], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      PATH: process.env.PATH,
      ENCLAVE_SOCKET: socketPath,
      NSM_SOCKET: nsm.socketPath,
      CHAIN_ID: '31337',
      CONTRACT_ADDRESS: SETTINGS.contract,
      DEMO_PROVIDER_ORIGIN: provider.origin,
    },
  })
  try {
    await once(verifier.stdout, 'data')
    const call = { context: '', provider: 'demo', credential: 'none' }
    const request = http.request({
      socketPath,
      method: 'POST',
      path: ENCLAVE_PATHS.completions,
      headers: { [CALL_HEADER]: Buffer.from(JSON.stringify(call)).toString('base64url') },
    })
    request.end('{"model":"demo/echo","messages":[{"role":"user","content":"hello"}]}')
    expect((await readAnswer(request)).status).toBe(200)
  } finally {
    verifier.kill('SIGKILL')
    await nsm.close()
    await provider.close()
  }
  const files = readFileSync(list, 'utf8')
    .trim()
    .split('\n')
    .map((url) => relative(root, fileURLToPath(url)))
  return [...new Set(files)]
    .filter((file) => !file.startsWith('node_modules') && !file.startsWith('..'))
    .toSorted()
}

/** A module that notes each file that Node.js loads. */
function hooksThatWrite(list: string): string {
  return `import { appendFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
registerHooks({
  load(url, context, next) {
    if (url.startsWith('file:')) appendFileSync(${JSON.stringify(list)}, url + '\\n')
    return next(url, context)
  },
})
`
}

/** A clone of the project, with what is not committed in it too. */
function copyProject(): string {
  const copy = mkdtempSync(join(place, 'copy-'))
  execFileSync('git', ['clone', '--quiet', '--shared', '--no-checkout', root, copy])
  for (const folder of [
    'attestation',
    'enclave',
    'src',
    'test/README.md',
    'package.json',
    'package-lock.json',
  ])
    cpSync(join(root, folder), join(copy, folder), { recursive: true })
  return copy
}

const SETTINGS = {
  chainId: 1,
  contract: `0x${'ab'.repeat(20)}`,
  isDevelopment: false,
  providers: [],
  cas: new Uint8Array(),
}

/** An application with all of our files; Node.js and the packages do not matter here. */
const application = (files: FileTree, settings = SETTINGS): FileTree =>
  layOutApplication({
    sources: files,
    dependencies: new Map([['package.json', textFile('{}')]]),
    node: textFile('node', 0o755),
    system: new Map([['bin/busybox', textFile('busybox', 0o755)]]),
    settings: writeSettings(settings),
    init: textFile('init', 0o755),
  })
/**
 * What PCR2 is over, before it is compressed: gunzip gives it back, so that other bytes cannot be
 * compressed to the same.
 */
const digest = (files: FileTree) =>
  createHash('sha384')
    .update(encodeCpio(application(files)))
    .digest('hex')
const measure = (tree: FileTree) => {
  const ramdisks = [Uint8Array.of(1), packRamdisk(tree).bytes]
  return Buffer.from(
    measureParts({ kernel: Uint8Array.of(2), cmdline: 'c', ramdisks }).pcr2,
  ).toString('hex')
}
const flip = (entry: TreeEntry): TreeEntry => {
  if (entry.kind !== 'file') throw new Error('expected a file')
  const data =
    entry.data.length === 0
      ? Uint8Array.of(0)
      : entry.data.map((byte, at) => (at === 0 ? byte ^ 1 : byte))
  return { ...entry, data }
}

describe('the measured sources', () => {
  it('the measured sources are what the verifier imports, read by a parser', () => {
    expect([...sources.files.keys()]).toEqual(listLoadedFiles(root, 'enclave/main.ts'))
    expect(sources.commit).toMatch(/^[0-9a-f]{40}$/)
  })

  it('the measured sources are what a running verifier loaded when it had served a call', async () => {
    expect([...sources.files.keys()]).toEqual(await listLoaded())
  })

  it('the measured sources are all code of enclave/ except the image builder', () => {
    const code = readdirSync(join(root, 'enclave'), { recursive: true, encoding: 'utf8' })
      .map((path) => `enclave/${path}`)
      .filter((path) => path.endsWith('.ts') && !path.startsWith('enclave/image/'))
    expect([...sources.files.keys()].filter((path) => path.startsWith('enclave/'))).toEqual(
      code.toSorted(),
    )
  })

  it.each([
    'enclave/README.md',
    'attestation/index.ts',
    'enclave/image/build-image.ts',
    'src/main.ts',
    'test/README.md',
  ])('the measured sources do not change with another %s', async (path) => {
    const copy = copyProject()
    appendFileSync(join(copy, path), '\n// another\n')
    const { files } = await readTrackedSources(copy)
    expect(digest(files)).toBe(digest(sources.files))
    appendFileSync(join(copy, 'enclave/log/seal.ts'), '\n// another\n')
    expect(digest((await readTrackedSources(copy)).files)).not.toBe(digest(sources.files))
  })

  it('the bytes that PCR2 covers change with any one byte of any one measured source', {
    timeout: 120_000,
  }, () => {
    const before = digest(sources.files)
    for (const [path, entry] of sources.files)
      expect(digest(new Map(sources.files).set(path, flip(entry))), path).not.toBe(before)
  })

  it('PCR2 itself changes with a byte, a name, a mode, a new file and a setting', {
    timeout: 120_000,
  }, () => {
    const [path = '', entry] = [...sources.files].find(([name]) => name === 'enclave/main.ts') ?? []
    if (entry?.kind !== 'file') throw new Error('expected enclave/main.ts')
    const without = new Map([...sources.files].filter(([name]) => name !== path))
    const trees = [
      application(sources.files),
      application(new Map(sources.files).set(path, flip(entry))),
      application(new Map(without).set('enclave/moon.ts', entry)),
      application(new Map(without).set(path, { ...entry, mode: 0o755 })),
      application(new Map(sources.files).set('enclave/new.ts', textFile(''))),
      application(sources.files, { ...SETTINGS, chainId: 2 }),
      application(sources.files, { ...SETTINGS, isDevelopment: true }),
    ]
    expect(new Set(trees.map(measure)).size).toBe(trees.length)
  })
})
