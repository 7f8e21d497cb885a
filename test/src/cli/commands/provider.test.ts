import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { registerProvider } from '#src/cli/commands/provider.ts'
import { registerVerify } from '#src/cli/commands/verify.ts'
import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../../../attestation/evidence/build-attested.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import { standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { ROOT_HASH, TLS_KEY } from '../../../support/provider-builder/evidence-builder.ts'

const AT = String(MADE_AT.getTime() / 1000)
const attested = buildAttested()
const tdx = buildProvider()
const dstack = buildProvider('dstack')
const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

let folder: string
let policy: string
let evidence: string
let bundle: string
let root: string
let output: string
let server: Server
let gateway: string
/** What the gateway serves, by path. */
const served = new Map<string, string | Uint8Array>()

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-provider-'))
  policy = await save('policy.json', tdx.policyFile)
  evidence = await save('evidence.json', tdx.bytes)
  bundle = await save('bundle.json', JSON.stringify(attested.bundle))
  root = await save('root.der', standardChain.cabundle[0] ?? '')
  server = createServer(({ url = '' }, response) => {
    const body = served.get(url)
    response.writeHead(body === undefined ? 404 : 200).end(body)
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server.close()
  await rm(folder, { recursive: true })
})
beforeEach(() => {
  served.clear()
  served.set('/v1/providers', JSON.stringify(listOf(tdx.bytes)))
  served.set(`/v1/providers/evidence/${digestOf(tdx.bytes)}`, tdx.bytes)
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    output += String(text)
    return true
  })
})
afterEach(() => {
  vi.restoreAllMocks()
  process.exitCode = undefined
})

async function save(name: string, content: Uint8Array | string): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, content)
  return path
}

function stateOtherKey({ items: [item] }: { items: { data: string }[] }): void {
  if (item) item.data = 'ee'.repeat(32)
}

/** The gateway's list, with this evidence of the first of two providers. */
function listOf(bytes: Uint8Array): object {
  const digest = digestOf(bytes)
  return {
    object: 'list',
    data: [
      { id: 'sealed', origin: 'https://provider.example', kind: 'tinfoil', evidence: { digest } },
      { id: 'plain', origin: 'https://plain.example', kind: null, evidence: null },
    ],
  }
}

async function run(...args: readonly string[]): Promise<{ output: string; exitCode: unknown }> {
  output = ''
  const program = new Command('affidavit')
  registerProvider(program)
  registerVerify(program)
  for (const command of [program, ...program.commands])
    command.exitOverride().configureOutput({ writeErr: () => undefined })
  await program.parseAsync(args, { from: 'user' })
  return { output, exitCode: process.exitCode }
}

describe('affidavit provider', () => {
  it('provider prints what evidence proves under a policy, and what it does not show', async () => {
    const { output, exitCode } = await run('provider', evidence, '--policy', policy, '--at', AT)
    expect(exitCode).toBe(0)
    expect(output).toMatch(/^ATTESTED: .* for development\.\n/)
    for (const text of ['What is proved', 'TDX', 'UpToDate', TLS_KEY, 'example/model, v1.0.0'])
      expect(output).toContain(text)
    expect(output).toMatch(
      /weights +proven: example-31b is example\/model-31B@fb9ae262, root hash /,
    )
    expect(output).toContain(ROOT_HASH)
    expect(output).toMatch(/block +not before block 17 of chain 1/)
    for (const text of ['side channels', 'who operates', 'one machine', 'for development'])
      expect(output).toContain(text)
  })

  it('evidence that a policy refuses gives the code and exit code 1', async () => {
    const old = await run('provider', evidence, '--policy', policy, '--json')
    expect(old.exitCode).toBe(1)
    expect(JSON.parse(old.output)).toMatchObject({
      ok: false,
      providers: [{ accepted: false, code: 'evidence_too_old' }],
    })
    const other = await save('dstack.json', dstack.bytes)
    const { output } = await run('provider', other, '--policy', policy, '--at', AT)
    expect(output).toMatch(/^REFUSED {2}provider_kind: /)
  })

  it('a bundle has its evidence judged at the time of the receipt, with the weights of its model', async () => {
    const { output, exitCode } = await run('provider', bundle, '--policy', policy, '--json')
    expect(exitCode).toBe(0)
    expect(JSON.parse(output)).toMatchObject({
      ok: true,
      providers: [
        {
          name: 'demo',
          accepted: true,
          facts: { tlsKeys: [{ spkiSha256: TLS_KEY }], block: { hash: `0x${'b1'.repeat(32)}` } },
          weights: { weights: 'hardware_proven', measured: { rootHash: ROOT_HASH } },
        },
      ],
    })
  })

  it.each([
    ['another key', { bound: stateOtherKey }, 'provider_key'],
    ['another origin', { evidence: { origin: 'https://b.example', responses: [] } }, 'provider_'],
  ] as const)(
    'a bundle with evidence of %s than its receipt names is refused',
    async (_, changes, code) => {
      const other = withProvider(attested.bundle, buildProvider('tinfoil v3 TDX', changes).bytes)
      const file = await save('other-call.json', JSON.stringify(other))
      const { output, exitCode } = await run('provider', file, '--policy', policy)
      expect(exitCode).toBe(1)
      expect(output).toMatch(/^demo\nREFUSED {2}other_call: /)
      expect(output).toContain(code)
      expect(output).not.toContain('What is proved')
    },
  )

  it('a gateway that lists the evidence of another origin is refused', async () => {
    const origins = ['https://provider.example', 'https://other.example']
    const { policyFile } = buildProvider('tinfoil v3 TDX', { policy: { origins } })
    const wide = await save('wide.json', policyFile)
    const list = JSON.stringify(listOf(tdx.bytes)).replace('provider.example', 'other.example')
    served.set('/v1/providers', list)
    await expect(run('provider', gateway, '--policy', wide, '--at', AT)).rejects.toThrow(
      'lists evidence of https://provider.example for https://other.example',
    )
  })

  it('a gateway has each evidence judged that its list names and the policy is for', async () => {
    for (const url of [gateway, `${gateway}/v1`, `${gateway}/v1/`]) {
      const { output, exitCode } = await run('provider', url, '--policy', policy, '--at', AT)
      expect(exitCode).toBe(0)
      expect(output).toMatch(/^sealed\nATTESTED/)
    }
    const url = `${gateway}/v1/providers/evidence/${digestOf(tdx.bytes)}`
    expect((await run('provider', url, '--policy', policy, '--at', AT)).exitCode).toBe(0)
  })

  it('a gateway without evidence of the provider is refused with exit code 3', async () => {
    for (const name of ['plain', 'nobody'])
      await expect(run('provider', gateway, '--provider', name)).rejects.toMatchObject({
        exitCode: 3,
      })
    await expect(run('provider', evidence, '--provider', 'plain')).rejects.toMatchObject({
      exitCode: 2,
    })
  })

  it.each(['https://gateway.example/policy.json', 'evidence'])(
    'a policy from %s is refused as usage',
    async (from) => {
      const file = from === 'evidence' ? evidence : from
      await expect(run('provider', evidence, '--policy', file)).rejects.toMatchObject({
        exitCode: 2,
      })
    },
  )
})

describe('affidavit verify --provider-policy', () => {
  it('verify fails by name for evidence of another provider, also for programs', async () => {
    const swapped = {
      ...attested.bundle,
      provider_evidence: Buffer.from(dstack.bytes).toString('base64'),
    }
    const file = await save('swapped.json', JSON.stringify(swapped))
    const words = ['verify', file, '--root', root, '--provider-policy', policy]
    const { output, exitCode } = await run(...words)
    expect(exitCode).toBe(1)
    expect(output).toMatch(/INVALID: failed at provider attested\./)
    expect(output).toContain('provider_kind: ')
    const { bundle: report } = JSON.parse((await run(...words, '--json')).output)
    expect(report.facts).toBeNull()
    expect(report.provider_checks).toContainEqual(
      expect.objectContaining({ name: 'provider', code: 'provider_kind' }),
    )
  })
})
