import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { writeProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import { AffidavitError } from '#client/errors.ts'
import { createRpc, type Rpc, toQuantity } from '#client/rpc.ts'
import { MADE_AT } from '../support/nitro-builder/development-pki.ts'
import {
  BOOT_CONFIGURATION,
  type BuiltKind,
  buildProviderEvidence,
  type EvidenceChanges,
  ORIGIN,
} from '../support/provider-builder/evidence-builder.ts'
import { type MemoryClient, openMemoryClient } from './memory-gateway.ts'

const MINUTE_MS = 60_000
const REQUEST = { model: 'demo/echo', messages: [{ role: 'user', content: 'Pay?' }] }
/** The key of the provider that the memory gateway's enclave asked. */
const SHOWN_KEY = createHash('sha256').update('spki').digest('hex')
const OTHER_KEY = 'e0'.repeat(32)

/** Makes the provider of the evidence state this TLS key. */
const KEYS: Readonly<Record<'aci' | 'dstack' | 'nitro' | 'tinfoil v3 TDX', Bound>> = {
  aci: (key) => (keyset) => {
    keyset.tls_public_keys[0].spki_sha256 = key
  },
  dstack: (key) => (answer) => {
    answer.tls_cert_fingerprint = key
  },
  nitro: (key) => (configuration) => {
    configuration.tls_public_keys = [key]
  },
  'tinfoil v3 TDX': (key) => (keys) => {
    keys.items[0].data = key
  },
}
type Bound = (key: string) => NonNullable<EvidenceChanges['bound']>

const bootOf = (keys: readonly string[]) => ({ ...BOOT_CONFIGURATION, tls_public_keys: keys })

function evidenceOf(
  kind: keyof typeof KEYS & BuiltKind,
  { key = SHOWN_KEY, ...changes }: EvidenceChanges & { readonly key?: string } = {},
) {
  const configuration = digestOf(Buffer.from(canonicalizeJson(bootOf([key]))))
  const { evidence, policy } = buildProviderEvidence(kind, {
    bound: KEYS[kind](key),
    ...(kind === 'nitro' ? { policy: { configurations: [configuration] } } : {}),
    ...changes,
  })
  return { bytes: Buffer.from(writeProviderEvidence(evidence)), policy }
}

const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** A provider as the gateway lists it. */
const entryOf = (bytes: Uint8Array, kind = 'dstack', more: object = {}) => ({
  id: 'sealed',
  origin: ORIGIN,
  kind,
  models: ['*'],
  evidence: { digest: digestOf(bytes), url: '/', fetched_at: 1, ends_at: null, block: null },
  keys: [],
  ...more,
})

/** Answers as a gateway with this list and these documents. */
const serving =
  (data: unknown, ...documents: readonly Uint8Array[]) =>
  (path: string): Response => {
    if (path === '/v1/providers') return new Response(JSON.stringify({ object: 'list', data }))
    const found = documents.find((bytes) => path.endsWith(`/evidence/${digestOf(bytes)}`))
    return new Response(found === undefined ? '{}' : new Uint8Array(found), {
      status: found === undefined ? 404 : 200,
    })
  }

const honest = evidenceOf('dstack')
/** Valid for 59 minutes from MADE_AT on. */
const shortPolicy = { ...honest.policy, max_age_hours: 1 }

let client: MemoryClient
beforeEach(() => {
  client = openMemoryClient(
    { providers: serving([entryOf(honest.bytes)], honest.bytes) },
    { policies: [shortPolicy] },
  )
})
afterEach(() => {
  // A prompt never leaves in a call without the demand.
  for (const body of client.bodies) expect(JSON.parse(body).affidavit.provider_keys).toBeDefined()
})

async function ask(demands: object = {}) {
  const body = JSON.stringify({ ...REQUEST, ...demands })
  const read = async () => await (await client.fetch(client.url, { method: 'POST', body })).text()
  return await read().then(
    (text) => ({ code: 'given', text, message: '' }),
    (fault) => ({
      code: fault instanceof AffidavitError ? fault.code : String(fault),
      text: '',
      message: String(fault.message),
    }),
  )
}

const demandedIn = (body: string | undefined) => JSON.parse(body ?? '{}').affidavit.provider_keys
const listed = () => client.asked.filter((path) => path === '/v1/providers').length

describe('a client with policies of providers', () => {
  it.each(Object.keys(KEYS) as (keyof typeof KEYS)[])(
    'the client demands the key of a provider of kind %s, and checks it in the receipt',
    async (kind) => {
      const { bytes, policy } = evidenceOf(kind)
      const data = [entryOf(bytes, kind.split(' ')[0])]
      client = openMemoryClient({ providers: serving(data, bytes) }, { policies: [policy] })
      expect((await ask()).code).toBe('given')
      expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY])
      const [proof] = client.proofs
      expect(proof?.checks).toContainEqual({
        name: 'provider key',
        outcome: 'passed',
        detail: SHOWN_KEY,
      })
      expect(client.providers?.list()).toMatchObject({
        attested: [{ provider: 'sealed', origin: ORIGIN, keys: [SHOWN_KEY], facts: { code: {} } }],
        refused: [],
      })
    },
  )

  it('an encrypted call has the keys inside the seal', async () => {
    client = openMemoryClient(client.attack, { policies: [honest.policy], encrypt: true })
    expect((await ask()).code).toBe('given')
    expect(demandedIn(client.opened[0]?.body)).toEqual([SHOWN_KEY])
    expect(client.sent[0]?.body.includes(SHOWN_KEY)).toBe(false)
  })

  it('an answer of a provider with another key is refused', async () => {
    const { bytes, policy } = evidenceOf('dstack', { key: OTHER_KEY })
    client = openMemoryClient(
      { providers: serving([entryOf(bytes)], bytes) },
      { policies: [policy] },
    )
    expect(await ask()).toMatchObject({
      code: 'wrong_provider_key',
      message: expect.stringContaining(SHOWN_KEY),
    })
  })
})

describe('a chain that shows how old evidence is', () => {
  const HASH = `0x${'b1'.repeat(32)}`
  const seconds = MADE_AT.getTime() / 1000
  const chainOf = (block: object | null): Rpc => {
    const results: Readonly<Record<string, unknown>> = {
      eth_chainId: '0x1',
      eth_blockNumber: '0x20',
      eth_getBlockByNumber: block,
    }
    return createRpc({
      url: 'https://chain.example',
      fetch: async (_, init) => {
        const { method } = JSON.parse(String(init?.body))
        return Response.json({ jsonrpc: '2.0', id: 0, result: results[method] })
      },
    })
  }
  const blockAt = (timestamp: number) => ({ hash: HASH, timestamp: toQuantity(timestamp) })
  const { bytes, policy } = evidenceOf('dstack', {
    policy: { needs_block: true, max_age_hours: 1 },
  })
  const open = (rpc: Rpc | null) =>
    openMemoryClient({ providers: serving([entryOf(bytes)], bytes) }, { policies: [policy], rpc })

  it('evidence counts from the time of its block on', async () => {
    client = open(chainOf(blockAt(seconds - 600)))
    expect((await ask()).code).toBe('given')
    const [provider] = client.providers?.list().attested ?? []
    expect(provider?.validUntil.getTime()).toBe((seconds + 3_000) * 1000)
    expect(provider?.facts.blockTimeMs).toBe((seconds - 600) * 1000)
  })

  it.each([
    ['whose block is older than the policy accepts', blockAt(seconds - 3_700), 'evidence_too_old'],
    ['whose block the chain does not have', null, 'block_not_on_chain'],
    [
      'whose block has another hash',
      { ...blockAt(seconds), hash: `0x${'b2'.repeat(32)}` },
      'block_not',
    ],
    ['of a chain that gives no time', { hash: HASH }, "the chain's endpoint: "],
  ])('no call is sent to a provider with evidence %s', async (_, block, reason) => {
    client = open(chainOf(block))
    const refused = await ask()
    expect(refused.code).toBe('no_attested_provider')
    expect(refused.message).toContain(reason)
    expect(client.bodies).toEqual([])
  })

  it('a policy that needs a block refuses evidence if no chain is given', async () => {
    client = open(null)
    expect((await ask()).message).toContain('not_checked: age, not checked')
  })
})

describe('keys that the caller demands', () => {
  it('only keys that the caller accepts too are demanded', async () => {
    const provider_keys = [OTHER_KEY, SHOWN_KEY]
    expect((await ask({ affidavit: { provider_keys } })).code).toBe('given')
    expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY])
  })
})

describe('a gateway that lies about providers', () => {
  const swapped = evidenceOf('nitro')
  const elsewhere = evidenceOf('dstack', {
    evidence: { origin: 'https://other.example', responses: [] },
  })
  const old = evidenceOf('dstack', {
    evidence: { fetchedAtMs: MADE_AT.getTime() - 61 * MINUTE_MS },
  })
  const digest = digestOf(honest.bytes)
  const without = entryOf(honest.bytes, 'dstack', { evidence: null })
  const withPath = entryOf(honest.bytes, 'dstack', { evidence: { digest: '../../v1/models' } })
  /** A list with one provider, and its document. */
  const listedOf = (bytes: Uint8Array) => [[entryOf(bytes)], [bytes]] as const

  it.each<[string, unknown, readonly Uint8Array[], string]>([
    ['no provider', [], [], 'the gateway does not list this provider'],
    ['no evidence', [without], [], 'has no evidence for this provider'],
    ['a document that is not there', [entryOf(honest.bytes)], [], 'status 404'],
    ['evidence of another origin', ...listedOf(elsewhere.bytes), 'provider_origin'],
    ['old evidence', ...listedOf(old.bytes), 'evidence_too_old'],
    ['bytes that are no evidence', ...listedOf(Buffer.from('{}')), 'malformed'],
    ['a list without end', Array.from({ length: 2_049 }, () => 1), [], 'at most 2048'],
    ['a digest that is a path', [withPath], [], 'valid digest'],
  ])('no call is sent to a gateway that gives %s', async (_, data, documents, reason) => {
    client.attack = { providers: serving(data, ...documents) }
    const refused = await ask()
    expect(['no_attested_provider', 'invalid_reply']).toContain(refused.code)
    expect(refused.message).toContain(reason)
    expect(client.bodies).toEqual([])
  })

  it('no call is sent when the document has another digest', async () => {
    client.attack = {
      providers: (path) =>
        path.endsWith(digest)
          ? new Response(new Uint8Array(swapped.bytes))
          : serving([entryOf(honest.bytes)])(path),
    }
    expect((await ask()).message).toContain('the stated digest')
    expect(client.bodies).toEqual([])
  })
})

describe('evidence that ends', () => {
  it('evidence that a gateway does not renew counts until its end, and not after', async () => {
    await ask()
    client.attack = {}
    client.nowMs += 58 * MINUTE_MS
    expect((await ask()).code).toBe('given')
    client.nowMs += 2 * MINUTE_MS
    expect((await ask()).code).toBe('gateway_error')
    client.attack = { providers: serving([entryOf(honest.bytes)], honest.bytes) }
    expect((await ask()).message).toContain('evidence_too_old')
    expect(client.bodies).toHaveLength(2)
  })

  it('a provider that changed its key is judged again at the next call, and not at each one', async () => {
    const changed = evidenceOf('dstack', { key: OTHER_KEY })
    await ask()
    const mismatch = { error: { message: 'another key', code: 'provider_key_mismatch' } }
    client.attack = {
      providers: serving([entryOf(changed.bytes)], changed.bytes),
      respond: () => new Response(JSON.stringify(mismatch), { status: 502 }),
    }
    for (let call = 0; call < 3; call += 1)
      expect((await ask()).text).toContain('provider_key_mismatch')
    expect(listed()).toBe(1)
    client.nowMs += 11_000
    await ask()
    expect(listed()).toBe(2)
    expect(client.bodies.map(demandedIn).map(String)).toEqual([
      ...Array.from({ length: 4 }, () => SHOWN_KEY),
      OTHER_KEY,
    ])
    await ask()
    expect(listed()).toBe(2)
  })
})
