import { type ChildProcess, fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { providerNonce } from '#attestation/providers/evidence/evidence-document.ts'
import { judgeByPolicies } from '#attestation/providers/evidence/judge-by-policies.ts'
import { requireChecks } from '#attestation/providers/provider-checks.ts'
import { parsePolicy, readProviderPolicies } from '#attestation/report/policy-file.ts'
import type { AttestedDemo, DemoReady } from '#src/local/demo/config.ts'
import { fetchTinfoilEvidence, getOverTls } from '../../../support/fetch-evidence.ts'

const MAIN = join(import.meta.dirname, '../../../../src/local/demo/main.ts')
const BLOCK = { chainId: 31_337, number: 1, hash: new Uint8Array(32).fill(0xb1) }
const DAY_MS = 24 * 3_600_000
const started: ChildProcess[] = []
const folders: string[] = []

afterEach(async () => {
  for (const child of started.splice(0)) child.kill('SIGKILL')
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true })
})

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-tee-'))
  folders.push(folder)
  return folder
}

/** Starts the demo provider's process with a simulated TEE. */
async function start(folder: string): Promise<AttestedDemo & { readonly child: ChildProcess }> {
  const child = launch({ DEMO_TEE_FOLDER: folder })
  const [{ attested }] = (await once(child, 'message')) as [DemoReady]
  if (attested === null) throw new Error('expected a simulated TEE')
  return { ...attested, child }
}

function launch(variables: Readonly<Record<string, string>>): ChildProcess {
  const env = { PATH: process.env.PATH ?? '', ...variables }
  const child = fork(MAIN, [], { env, stdio: ['ignore', 'ignore', 'pipe', 'ipc'] })
  started.push(child)
  return child
}

async function end(child: ChildProcess): Promise<void> {
  child.kill('SIGTERM')
  await once(child, 'exit')
}

async function fetchFrom(provider: AttestedDemo) {
  const nonce = providerNonce(BLOCK.hash, provider.origin)
  return fetchTinfoilEvidence(provider, { nonce, block: BLOCK })
}

async function judge(bytes: Uint8Array, policyFile: string, at = new Date()) {
  const providers = await readProviderPolicies(parsePolicy(await readFile(policyFile)))
  return judgeByPolicies(bytes, providers, at)
}

it('the simulated TEE’s evidence passes every check of its policy, and states the key of the connection', async () => {
  const provider = await start(await makeFolder())
  const { bytes, key } = await fetchFrom(provider)
  const { facts, checks } = await judge(bytes, provider.policyFile)
  requireChecks(checks)
  const waived = checks.filter(({ outcome }) => outcome !== 'passed').map(({ name }) => name)
  expect(waived).toEqual(['age', 'GPU', 'TDX: evaluation numbers', 'TDX: FMSPC'])
  expect(facts?.tlsKeys).toEqual([{ spkiSha256: key, domain: null }])
  expect(facts).toMatchObject({ tee: 'TDX', hasReplacedRoots: true })
  expect(facts?.model).toMatchObject({
    weights: 'hardware_proven',
    models: [{ name: 'demo/sealed' }],
  })
  const endsAtMs = facts?.endsAtMs ?? 0
  expect(endsAtMs).toBeGreaterThan(Date.now() + 29 * DAY_MS)
  const late = await judge(bytes, provider.policyFile, new Date(endsAtMs + 1_000))
  expect(() => requireChecks(late.checks)).toThrow()
})

it('a restart keeps the simulated TEE’s key, origin and policy, so that old evidence passes', async () => {
  const folder = await makeFolder()
  const first = await start(folder)
  const old = await fetchFrom(first)
  await end(first.child)
  const second = await start(folder)
  expect(second.origin).toBe(first.origin)
  const fresh = await fetchFrom(second)
  expect(fresh.key).toBe(old.key)
  for (const { bytes } of [old, fresh])
    requireChecks((await judge(bytes, second.policyFile)).checks)
  expect((await stat(join(folder, 'tee', 'keys.json'))).mode & 0o777).toBe(0o600)
})

it('the policy of another data folder refuses the evidence of a simulated TEE', async () => {
  const [one, other] = await Promise.all([start(await makeFolder()), start(await makeFolder())])
  const policy = JSON.parse(await readFile(other.policyFile, 'utf8'))
  await writeFile(
    other.policyFile,
    JSON.stringify({ providers: { ...policy.providers[0], origins: [one.origin] } }),
  )
  const { bytes } = await fetchFrom(one)
  const { checks } = await judge(bytes, other.policyFile)
  const codes = checks.map(({ code }) => code)
  expect(codes).toEqual(expect.arrayContaining(['root_untrusted', 'log_unknown']))
  expect(() => requireChecks(checks)).toThrow()
})

it('the simulated TEE refuses a nonce of another form with status 400, which says what it expects', async () => {
  const { origin, caFile } = await start(await makeFolder())
  const [short, upper, one] = ['a'.repeat(62), 'A'.repeat(64), 'a'.repeat(64)]
  for (const query of ['', `?nonce=${short}`, `?nonce=${upper}`, `?nonce=${one}&nonce=${one}`]) {
    const url = `${origin}/.well-known/tinfoil-attestation${query}`
    const { status, body } = await getOverTls(url, caFile)
    expect([query, status]).toEqual([query, 400])
    expect(JSON.parse(Buffer.from(body).toString()).error.message).toContain('64 lower-case hex')
  }
})

it('the simulated TEE answers a random nonce too, and serves its two models alone', async () => {
  const provider = await start(await makeFolder())
  const { bytes } = await fetchTinfoilEvidence(provider, { nonce: randomBytes(32), block: null })
  requireChecks((await judge(bytes, provider.policyFile)).checks)
  const { body } = await getOverTls(`${provider.origin}/v1/models`, provider.caFile)
  const { data } = JSON.parse(Buffer.from(body).toString())
  expect(data.map(({ id }: { id: string }) => id)).toEqual(['demo/sealed', 'demo/unsealed'])
})

it('the demo provider refuses a simulated TEE in production', async () => {
  const child = launch({ NODE_ENV: 'production', DEMO_TEE_FOLDER: await makeFolder() })
  let text = ''
  child.stderr?.on('data', (part) => {
    text += part
  })
  const [code] = await once(child, 'close')
  expect(code).toBe(1)
  expect(text).toContain('DEMO_TEE_FOLDER: no simulated TEE in production')
})

it('a simulated TEE with unreadable keys does not start, and says which file to remove', async () => {
  const folder = await makeFolder()
  const first = await start(folder)
  await end(first.child)
  await writeFile(join(folder, 'tee', 'keys.json'), '{}')
  const child = launch({ DEMO_TEE_FOLDER: folder })
  let text = ''
  child.stderr?.on('data', (part) => {
    text += part
  })
  const [code] = await once(child, 'close')
  expect(code).toBe(1)
  expect(text).toContain(`${join(folder, 'tee', 'keys.json')} cannot be read; remove it`)
})
