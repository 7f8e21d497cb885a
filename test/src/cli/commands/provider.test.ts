import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  buildAttested,
  buildProvider,
  providerPart,
  withProvider,
} from '../../../attestation/evidence/build-attested.ts'
import { startChainEndpoint } from '../../../conformance/chain-endpoint.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import { standardChain } from '../../../support/nitro-builder/document-builder.ts'
import { ROOT_HASH, TLS_KEY } from '../../../support/provider-builder/evidence-builder.ts'
import { runCommand } from '../../../support/run-command.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../../../support/scripted-endpoint.ts'

const AT = String(MADE_AT.getTime() / 1000)
const attested = buildAttested()
const tdx = buildProvider()
const dstack = buildProvider('dstack')
const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

const policyOf = (providerPolicy: Uint8Array) => `{"providers":${Buffer.from(providerPolicy)}}`

const folder = folderOfFile()
const save = saverIn(folder)
let policy: string
let evidence: string
let bundle: string
let root: string
let server: ScriptedEndpoint
let gateway: string
/** What the gateway serves, by path. */
const served = new Map<string, string | Uint8Array>()

beforeAll(async () => {
  policy = await save('policy.json', policyOf(tdx.policyFile))
  evidence = await save('evidence.json', tdx.bytes)
  bundle = await save('bundle.json', JSON.stringify(attested.bundle))
  root = await save('root.der', standardChain.cabundle[0] ?? '')
  server = await startScriptedEndpoint(({ url }, response) => {
    const body = served.get(url)
    response.writeHead(body === undefined ? 404 : 200).end(body)
  })
  gateway = server.origin
})
afterAll(() => server.stop())
beforeEach(() => {
  served.clear()
  served.set('/v1/providers', JSON.stringify(listOf(tdx.bytes)))
  served.set(`/v1/providers/evidence/${digestOf(tdx.bytes)}`, tdx.bytes)
})

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

async function run(...args: readonly string[]) {
  const { code, stdout, stderr } = await runCommand(...args)
  return { output: stdout, exitCode: code, stderr }
}

describe('affidavit provider', () => {
  it('provider prints what evidence proves under a policy, and what it does not show', async () => {
    const { output, exitCode } = await run('provider', evidence, '--policy', policy, '--at', AT)
    expect(exitCode).toBe(0)
    expect(output).toMatch(/^ATTESTED: .* for development; its age is not checked\.\n/)
    for (const text of ['What is proved', 'TDX', 'UpToDate', TLS_KEY, 'example/model, v1.0.0'])
      expect(output).toContain(text)
    expect(output).toMatch(
      /weights +proven: example-31b is example\/model-31B@fb9ae262, root hash /,
    )
    expect(output).toContain(ROOT_HASH)
    expect(output).toMatch(/block +not before block 0x(?:b1){32}, which was not looked up/)
    for (const text of ['side channels', 'who operates', 'one machine', 'for development'])
      expect(output).toContain(text)
  })

  it.each([
    ['a minute before', 60, 0, /^ATTESTED: .* for development\.\n/],
    ['of 20 days before', 20 * 86_400, 1, /^REFUSED {2}evidence_too_old: age, failed/],
  ])(
    'provider --rpc counts the age from the block of the nonce, %s',
    async (_, age, code, headline) => {
      const chain = await startChainEndpoint({
        chain_id: 1,
        newest_block: 20,
        blocks: { 17: `0x${'b1'.repeat(32)}` },
        times: { 17: Number(AT) - age },
      })
      const words = ['provider', evidence, '--policy', policy, '--at', AT, '--rpc', chain.url]
      const { output, exitCode } = await run(...words)
      await chain.close()
      expect(exitCode).toBe(code)
      expect(output).toMatch(headline)
    },
  )

  it('provider --rpc ends with exit code 3 if the chain cannot be reached', async () => {
    const { exitCode, stderr } = await run('provider', evidence, '--rpc', 'http://127.0.0.1:9')
    expect(exitCode).toBe(3)
    expect(stderr).toContain('the chain cannot be reached')
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
    const wide = await save('wide.json', policyOf(policyFile))
    const list = JSON.stringify(listOf(tdx.bytes)).replace('provider.example', 'other.example')
    served.set('/v1/providers', list)
    const { stderr } = await run('provider', gateway, '--policy', wide, '--at', AT)
    expect(stderr).toContain('lists evidence of https://provider.example for https://other.example')
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
      expect((await run('provider', gateway, '--provider', name)).exitCode).toBe(3)
    expect((await run('provider', evidence, '--provider', 'plain')).exitCode).toBe(2)
  })

  it.each(['https://gateway.example/policy.json', 'evidence'])(
    'a policy from %s is refused as usage',
    async (from) => {
      const file = from === 'evidence' ? evidence : from
      expect((await run('provider', evidence, '--policy', file)).exitCode).toBe(2)
    },
  )
})

describe('affidavit verify --policy with providers', () => {
  it('verify fails by name for evidence of another provider, also for programs', async () => {
    const swapped = {
      ...attested.bundle,
      provider_evidence: providerPart(dstack.bytes),
    }
    const file = await save('swapped.json', JSON.stringify(swapped))
    const words = ['verify', file, '--root', root, '--policy', policy]
    const { output, exitCode } = await run(...words)
    expect(exitCode).toBe(1)
    expect(output).toMatch(/NOT ACCEPTED by your policy: provider attested: provider_kind: /)
    expect(output).toContain('provider_kind: ')
    const { bundle: report } = JSON.parse((await run(...words, '--json')).output)
    expect(report.facts).toBeNull()
    expect(report.provider_checks).toContainEqual(
      expect.objectContaining({ name: 'provider', code: 'provider_kind' }),
    )
  })
})
