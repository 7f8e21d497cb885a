import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { decodeBase64 } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { putEvidence } from '#attestation/report/evidence-page.ts'
import { buildPackages } from '#packages/build-packages.ts'
import { NODE_VERSION_MIN } from '#packages/contents.ts'
import { digestsOf } from '#packages/provenance.ts'
import { findMachineNode, type Place, runIn } from '../support/machine-node.ts'
import { needNo } from '../support/needs.ts'
import { startOtlpCollector } from '../support/otlp-collector.ts'
import { runCli } from '../support/run-cli.ts'
import { answerWith, startScriptedBackend } from '../support/scripted-backend.ts'
import { NODE_ID, NODE_KEY, startScriptedNodeGateway } from '../support/scripted-node-gateway.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const ROOT = join(import.meta.dirname, '../..')
const VECTORS = join(ROOT, 'test/vectors/evidence')
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

/** What installing must not exceed: the npm packages, ours included, and the bytes of their files. */
const PACKAGES_MAX = 25
const INSTALLED_BYTES_MAX = 15_000_000

const temporary = mkdtempSync(join(tmpdir(), 'affidavit-installed-'))
const tarballs = join(temporary, 'tarballs')
const machine = findMachineNode()

/** What is missing to install anything here; null when nothing is. */
let hindrance: string | null =
  machine === null
    ? 'Node.js with npm'
    : isBefore(machine.version, NODE_VERSION_MIN)
      ? `Node.js ${NODE_VERSION_MIN} or newer`
      : null

/** Of versions of three numbers. */
function isBefore(version: string, other: string): boolean {
  return version.localeCompare(other, 'en', { numeric: true }) < 0
}

/** A folder in which a package is installed, as a stranger does it; with others, when named. */
async function install(name: string, ...others: readonly string[]): Promise<Place> {
  const folder = join(temporary, [name, ...others].join('-with-'))
  mkdirSync(folder)
  const place = { folder, path: machine?.path ?? '' }
  if (hindrance !== null) return place
  const run = await runIn(
    place,
    'npm',
    'install',
    ...NPM_WORDS,
    join(tarballs, `${name}-${version}.tgz`),
    ...others,
  )
  const unreachable = /\b(ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENETUNREACH)\b/
  if (run.code !== 0 && unreachable.test(run.stderr)) hindrance = 'an npm registry in reach'
  else if (run.code !== 0) throw new Error(`npm install ${name}: ${run.stderr}`)
  // npm reports here a dependency that wants a newer Node.js.
  else expect(run.stderr).not.toContain('EBADENGINE')
  return { folder, path: `${join(folder, 'node_modules/.bin')}${delimiter}${place.path}` }
}

/** One try more, and soon: whether a registry can be reached must not take minutes to find out. */
const NPM_WORDS = [
  '--prefer-offline',
  '--no-audit',
  '--no-fund',
  '--loglevel=warn',
  '--fetch-retries=1',
  '--fetch-retry-mintimeout=1000',
  '--fetch-timeout=30000',
]

let checker: Place
let agent: Place

beforeAll(async () => {
  await buildPackages(ROOT, tarballs)
  checker = await install('affidavit')
  agent = await install('affidavit-node')
  if (hindrance === null) console.log(`installed with Node.js ${machine?.version}`)
})
afterAll(() => rmSync(temporary, { recursive: true, force: true }))
beforeEach((context) => {
  const { isMet, title } = needNo(hindrance)
  if (!isMet) context.skip(title('packages cannot be installed here'))
})

const installedIn = ({ folder }: Place): readonly string[] => {
  const lock = JSON.parse(readFileSync(join(folder, 'package-lock.json'), 'utf8'))
  return Object.keys(lock.packages)
    .filter((path) => path !== '' && existsSync(join(folder, path)))
    .map((path) => path.replace(/^.*node_modules\//, ''))
}

function sizeOf(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce(
    (sum, entry) => sum + (entry.isFile() ? statSync(join(entry.parentPath, entry.name)).size : 0),
    0,
  )
}

/** Certificate of the root that the vectors' documents are under, as a file. */
function writeRoot(folder: string): string {
  const { record } = JSON.parse(readFileSync(join(VECTORS, 'bundle.json'), 'utf8'))
  const [root] = decodeAttestationPayload(decodeBase64(record.attestation)).cabundle
  const file = join(folder, 'root.der')
  writeFileSync(file, root ?? new Uint8Array())
  return file
}

const { measurements, configurations, roots } = JSON.parse(
  readFileSync(join(VECTORS, 'expected.json'), 'utf8'),
)

/** What the vectors are expected to be, as `affidavit policy --pcr` writes it. */
const policyFile = {
  enclaves: {
    measurements: [
      Object.fromEntries(Object.entries(measurements).map(([at, hex]) => [`PCR${at}`, hex])),
    ],
    configurations,
    roots,
  },
}

/** What the vectors are expected to be, as options. */
const expected = (folder: string): readonly string[] => [
  '--root',
  writeRoot(folder),
  '--configuration',
  configurations[0],
  ...Object.entries(measurements).flatMap(([index, hex]) => ['--pcr', `${index}=${hex}`]),
]

describe('affidavit, installed in an empty folder', () => {
  const affidavit = (...words: readonly string[]) => runIn(checker, 'affidavit', ...words)

  it('the installed affidavit brings few packages, and no server, database or chain client', () => {
    const names = installedIn(checker)
    expect(names).toContain('affidavit')
    expect(names.length).toBeLessThanOrEqual(PACKAGES_MAX)
    for (const name of [
      'koa',
      'kysely',
      'pg',
      '@electric-sql/pglite',
      'ethers',
      'zod',
      'commander',
      'undici',
    ])
      expect(names).not.toContain(name)
    expect(sizeOf(join(checker.folder, 'node_modules'))).toBeLessThanOrEqual(INSTALLED_BYTES_MAX)
  })

  it.each([
    ['what is expected', () => expected(checker.folder), 0],
    ['nothing that is expected', () => [], 1],
    [
      'another configuration',
      () => [...expected(checker.folder), '--configuration', '00'.repeat(32)].toSpliced(2, 2),
      1,
    ],
  ])(
    'the installed affidavit gives the same verdict as the checkout under %s',
    async (_, options, code) => {
      const words = ['verify', join(VECTORS, 'bundle.json'), ...options()]
      for (const form of [[], ['--json']]) {
        const [installed, inCheckout] = await Promise.all([
          affidavit(...words, ...form),
          runCli([...words, ...form]),
        ])
        expect(installed).toEqual(inCheckout)
        expect(installed.code).toBe(code)
      }
    },
  )

  it('the installed affidavit runs its other commands as the checkout does', async () => {
    const bundle = join(VECTORS, 'bundle.json')
    const { record } = JSON.parse(readFileSync(bundle, 'utf8'))
    const document = join(checker.folder, 'document.b64')
    writeFileSync(document, record.attestation)
    const eif = join(ROOT, 'test/vectors/eif')
    const images = readdirSync(eif).filter((name) => name.endsWith('.eif'))
    const root = ['--root', writeRoot(checker.folder)]
    for (const words of [
      ['redact', bundle, '--request'],
      ['attestation', document, ...root, '--historical', '--any-measurement', '--json'],
      ...images.map((image) => ['measure', join(eif, image), '--json']),
      ['release', 'show', join(ROOT, 'test/vectors/releases/measurements.json'), '--json'],
      ['verify', bundle, ...root, '--crl', document],
    ])
      expect([words, await affidavit(...words)]).toEqual([words, await runCli(words)])
  })

  it('the installed affidavit saves the page that it brings, and checks a page with evidence', async () => {
    const file = join(checker.folder, 'page.html')
    const named = await affidavit('verifier', '--json', '--output', file)
    expect([named.code, named.stderr]).toEqual([0, ''])
    const own = JSON.parse((await runCli(['verifier', '--json'])).stdout)
    const { gitHead } = JSON.parse(
      readFileSync(join(checker.folder, 'node_modules/affidavit/package.json'), 'utf8'),
    )
    expect(JSON.parse(named.stdout)).toEqual({ ...own, commit: gitHead ?? null })
    const verifier = readFileSync(join(checker.folder, 'node_modules/affidavit/verify.html'))
    expect(digestsOf(verifier).sha256).toBe(own.verifier_sha256)
    const bundle = JSON.parse(readFileSync(join(VECTORS, 'bundle.json'), 'utf8'))
    writeFileSync(file, putEvidence(readFileSync(file, 'utf8'), bundle))
    const run = await affidavit('verify', file, ...expected(checker.folder))
    expect(run.code).toBe(0)
    expect(run.stderr).toContain(`The SHA-256 of its verifier is ${own.verifier_sha256}`)
  })

  it('the installed affidavit ends quietly when its output is no longer read', async () => {
    const verify = `affidavit verify ${join(VECTORS, 'bundle.json')} ${expected(checker.folder).join(' ')}`
    for (const call of [
      'affidavit --help | head -1',
      `${verify} --json | head -c 10`,
      `${verify} | true`,
    ]) {
      const run = await runIn(checker, 'bash', '-c', `set -o pipefail; ${call}`)
      expect([call, run.code, run.stderr]).toEqual([call, 0, ''])
    }
  })

  it('the program in the package’s README verifies a bundle', async () => {
    const [, snippet = ''] = snippetsOf(checker)
    cpSync(join(VECTORS, 'bundle.json'), join(checker.folder, 'evidence.json'))
    writeFileSync(join(checker.folder, 'policy.json'), JSON.stringify(policyFile))
    writeFileSync(join(checker.folder, 'check.mjs'), snippet)
    const run = await runIn(checker, 'node', 'check.mjs')
    expect([run.code, run.stderr]).toEqual([0, ''])
    const [verdict, ...checks] = run.stdout.trim().split('\n')
    expect(verdict).toBe('verified')
    expect(checks.filter((line) => line.startsWith('passed ')).length).toBeGreaterThan(10)
    expect(checks.filter((line) => line.startsWith('failed '))).toEqual([])
  })

  it.each([
    ['browsers, by way of a bundler', { module: 'esnext', moduleResolution: 'bundler', types: [] }],
    ['Node.js without the DOM', { ...NODENEXT, ...NODE_TYPES, lib: ['es2022'] }],
    ['Node.js with the DOM', { ...NODENEXT, types: [] }],
  ])('the installed library has types for %s', async (place, options) => {
    const folder = join(checker.folder, place)
    mkdirSync(folder)
    writeFileSync(join(folder, 'consumer.mts'), CONSUMER)
    const compilerOptions = {
      ...options,
      target: 'es2022',
      noEmit: true,
      strict: true,
      skipLibCheck: false,
      exactOptionalPropertyTypes: true,
    }
    writeFileSync(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, include: ['*.mts'] }),
    )
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc')
    const run = await runIn({ ...checker, folder }, process.execPath, tsc, '-p', folder)
    expect(run).toEqual({ code: 0, stdout: '', stderr: '' })
  })
})

/** The programs in the README of the package as it is installed. */
const snippetsOf = ({ folder }: Place): readonly string[] => {
  const readme = readFileSync(join(folder, 'node_modules/affidavit/README.md'), 'utf8')
  return [...readme.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(([, snippet = '']) => snippet)
}

describe('affidavit, installed beside openai', () => {
  it('the README’s program beside openai asks and checks, and saves evidence that affidavit verifies', async () => {
    // The newest whose engines name Node.js 20.
    const place = await install('affidavit', 'openai@^6.49.0')
    const service: SharedAffidavit = await useAffidavit()
    const policy = readFileSync(join(service.dataFolder, 'policy.json'), 'utf8')
    writeFileSync(join(place.folder, 'policy.json'), policy)
    const [snippet = ''] = snippetsOf(place)
    const question = 'Hello from test/packages/install.slow.test.ts'
    writeFileSync(join(place.folder, 'ask.mjs'), snippet.replace("'Hello'", `'${question}'`))
    const variables = { AFFIDAVIT_URL: service.url, AFFIDAVIT_API_KEY: service.apiKey }
    const run = await runIn({ ...place, variables }, 'node', 'ask.mjs')
    expect(run).toEqual({ code: 0, stdout: expect.stringContaining(question), stderr: '' })

    const { enclaves } = JSON.parse(policy)
    const words = [
      '--root',
      service.rootFile,
      ...Object.entries(enclaves.measurements[0]).flatMap(([name, hex]) => [
        '--pcr',
        `${name.replace('PCR', '')}=${hex}`,
      ]),
    ]
    const verdict = await runIn(place, 'affidavit', 'verify', 'evidence.json', '--json', ...words)
    expect([verdict.stderr, verdict.code]).toEqual(['', 3])
    expect(JSON.parse(verdict.stdout)).toMatchObject({ ok: false, verdict: 'incomplete' })

    const others = JSON.stringify({
      enclaves: { ...enclaves, configurations: ['00'.repeat(32)] },
    })
    writeFileSync(join(place.folder, 'policy.json'), others)
    const refused = await runIn({ ...place, variables }, 'node', 'ask.mjs')
    expect([refused.code, refused.stdout]).toEqual([1, ''])
    expect(refused.stderr).toContain('AffidavitError')
  })
})

const NODENEXT = { module: 'nodenext', moduleResolution: 'nodenext' }
const NODE_TYPES = { types: ['node'], typeRoots: [join(ROOT, 'node_modules/@types')] }

const CONSUMER = `
import { AffidavitError, connect, type AffidavitErrorCode, type Proof } from 'affidavit'
import { decodeHex, FormatError, parseExactJson, verifyBundle, type BundleReport } from 'affidavit/attestation'
const report: BundleReport = await verifyBundle(parseExactJson(new TextEncoder().encode('{}')), { configurations: [decodeHex('00')] })
const verdict: 'verified' | 'incomplete' | 'not_accepted' | 'invalid' = report.verdict
// @ts-expect-error: a verdict is none of these
const other: 'passed' = report.verdict
new FormatError('invalid_hash', other.concat(verdict)).code satisfies string
const affidavit = await connect({ url: '', policy: { enclaves: { measurements: [{ PCR0: '00' }], configurations: [] } } })
const proof: Proof | undefined = affidavit.proofs.get('')
const fetchLike: typeof globalThis.fetch = affidavit.fetch
const code: AffidavitErrorCode | null = fetchLike instanceof AffidavitError ? fetchLike.code : null
export { code, proof }
// @ts-expect-error: a client that expects nothing would pass everything
void connect({ url: '' })
// @ts-expect-error: there is nothing else to import
import 'affidavit/lib/attestation.js'
`

describe('affidavit-node, installed in an empty folder', () => {
  it('the installed affidavit-node makes its node, serves a backend, sends traces and ends in good order', async () => {
    const gateway = await startScriptedNodeGateway()
    const backend = await startScriptedBackend(answerWith('a', 'b'))
    const collector = await startOtlpCollector()
    const variables = {
      AFFIDAVIT_URL: gateway.url,
      AFFIDAVIT_API_KEY: NODE_KEY,
      BACKEND_URL: backend.url,
      NODES_FILE: join(agent.folder, 'nodes.json'),
      NODE_NAME: 'installed',
      BENCHMARK_MS: '100',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    }
    const child = spawn('affidavit-node', ['run'], {
      cwd: agent.folder,
      env: { PATH: agent.path, ...variables },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text
      })
    const ended = once(child, 'close')
    try {
      await expect.poll(() => gateway.nodes.length).toBe(1)
      expect(gateway.nodes[0]?.headers['node-id']).toBe(NODE_ID)
      expect(readFileSync(variables.NODES_FILE, 'utf8')).toContain(NODE_ID)
      const request = { model: 'model-a', messages: [{ role: 'user', content: 'hello' }] }
      const traceparent = `00-${'ab'.repeat(16)}-${'cd'.repeat(8)}-01`
      gateway.nodes[0]?.send({ id: 'r1', model: 'model-a', traceparent, chat_request: request })
      await expect.poll(() => gateway.nodes[0]?.frames.at(-1)?.status).toBe(2)
      child.kill('SIGTERM')
      expect(await ended).toEqual([0, null])
      expect(output).toContain('connected')
      expect(collector.spans()).toMatchObject([{ name: 'chat model-a', traceId: 'ab'.repeat(16) }])
    } finally {
      child.kill('SIGKILL')
      await Promise.all([gateway.stop(), backend.stop(), collector.close()])
    }
  })
})
