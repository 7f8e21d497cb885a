import { createHash } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { writeProviderEvidence } from '#attestation/providers/evidence/evidence-document.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import { AffidavitError } from '#client/errors.ts'
import { createProviders } from '#client/providers.ts'
import { PROVIDERS_MAX } from '#enclave/providers/parse-table.ts'
import { ENCLAVES_MAX } from '#src/enclaves/settings.ts'
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
const fetched = () => client.asked.filter((path) => path.includes('/evidence/')).length

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

  it('the client reads the longest list of a gateway, with a table for each of its enclaves', async () => {
    const others = Array.from({ length: ENCLAVES_MAX * PROVIDERS_MAX - 1 }, (_, index) => ({
      ...entryOf(honest.bytes),
      id: `other-${index}`,
      origin: `https://other-${index}.example`,
      kind: null,
      evidence: null,
    }))
    const data = [...others, entryOf(honest.bytes)]
    client.attack = { providers: serving(data, honest.bytes) }
    expect((await ask()).code).toBe('given')
    expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY])
  })

  it('the client reads the list and a document once, for many calls', async () => {
    for (let call = 0; call < 3; call += 1) expect((await ask()).code).toBe('given')
    expect([listed(), fetched()]).toEqual([1, 1])
  })

  it('an encrypted call has the keys inside the seal', async () => {
    client = openMemoryClient(client.attack, { policies: [honest.policy], encrypt: true })
    expect((await ask()).code).toBe('given')
    expect(demandedIn(client.opened[0]?.body)).toEqual([SHOWN_KEY])
    expect(client.sent[0]?.body.includes(SHOWN_KEY)).toBe(false)
  })

  it('the keys of several providers are demanded, and those of a refused one are not', async () => {
    const other = 'https://other.example'
    const second = evidenceOf('nitro', { key: OTHER_KEY })
    const data = [
      entryOf(honest.bytes),
      entryOf(second.bytes, 'nitro'),
      entryOf(honest.bytes, 'dstack', { id: 'plain', origin: other }),
    ]
    client = openMemoryClient(
      { providers: serving(data, honest.bytes, second.bytes) },
      { policies: [honest.policy, second.policy] },
    )
    expect((await ask()).code).toBe('given')
    expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY, OTHER_KEY].sort())
    expect(client.providers?.list().refused).toMatchObject([
      { provider: 'plain', origin: other, reason: { code: 'no_attested_provider' } },
    ])
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

  it('a key that the evidence states for another host is not demanded', async () => {
    const { bytes, policy } = evidenceOf('aci', {
      bound: (keyset) => {
        keyset.tls_public_keys = [
          { spki_sha256: OTHER_KEY, domain: 'other.example' },
          { spki_sha256: SHOWN_KEY, domain: null },
        ]
      },
    })
    client = openMemoryClient(
      { providers: serving([entryOf(bytes, 'aci')], bytes) },
      { policies: [policy] },
    )
    expect((await ask()).code).toBe('given')
    expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY])
  })

  it('more keys than a call can demand are refused before the call', async () => {
    const { bytes, policy } = evidenceOf('aci', {
      bound: (keyset) => {
        const [first] = keyset.tls_public_keys
        keyset.tls_public_keys = Array.from({ length: 33 }, (_, index) => ({
          ...first,
          spki_sha256: index.toString(16).padStart(64, '0'),
        }))
      },
    })
    const keys = Array.from({ length: 40 }, (_, index) => String(index).padStart(64, 'a'))
    const others = evidenceOf('nitro', {
      bound: (configuration) => {
        configuration.tls_public_keys = keys
      },
      policy: { configurations: [digestOf(Buffer.from(canonicalizeJson(bootOf(keys))))] },
    })
    const data = [entryOf(bytes, 'aci'), entryOf(others.bytes, 'nitro')]
    client = openMemoryClient(
      { providers: serving(data, bytes, others.bytes) },
      { policies: [policy, others.policy] },
    )
    const refused = await ask()
    expect(refused.message).toContain('at most 64 keys')
    expect(refused.code).toBe('no_attested_provider')
    expect(client.bodies).toEqual([])
  })
})

describe('keys that the caller demands', () => {
  it('only keys that the caller accepts too are demanded', async () => {
    const provider_keys = [OTHER_KEY, SHOWN_KEY]
    expect((await ask({ affidavit: { provider_keys } })).code).toBe('given')
    expect(demandedIn(client.bodies[0])).toEqual([SHOWN_KEY])
  })

  it('a call whose caller accepts no key of an attested provider is not sent', async () => {
    const refused = await ask({ affidavit: { provider_keys: [OTHER_KEY] } })
    expect(refused.code).toBe('no_attested_provider')
    expect(client.bodies).toEqual([])
  })

  it('the receipt is compared with keys that the caller demands alone', async () => {
    client = openMemoryClient()
    expect((await ask({ affidavit: { provider_keys: [SHOWN_KEY] } })).code).toBe('given')
    expect((await ask({ affidavit: { provider_keys: [OTHER_KEY] } })).code).toBe(
      'wrong_provider_key',
    )
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
  const otherCode = evidenceOf('dstack', { policy: { compose_hashes: ['00'.repeat(32)] } })
  const digest = digestOf(honest.bytes)

  it.each<[string, unknown, readonly Uint8Array[], string]>([
    ['no provider', [], [], 'the gateway does not list this provider'],
    [
      'no evidence',
      [entryOf(honest.bytes, 'dstack', { evidence: null })],
      [],
      'has no evidence for this provider',
    ],
    ['a document that is not there', [entryOf(honest.bytes)], [], 'status 404'],
    [
      'evidence of another kind under this kind',
      [entryOf(swapped.bytes)],
      [swapped.bytes],
      'provider_kind',
    ],
    ['another kind', [entryOf(honest.bytes, 'nitro')], [honest.bytes], 'no policy is for its kind'],
    [
      'evidence of another origin',
      [entryOf(elsewhere.bytes)],
      [elsewhere.bytes],
      'provider_origin',
    ],
    ['old evidence', [entryOf(old.bytes)], [old.bytes], 'evidence_too_old'],
    ['bytes that are no evidence', [entryOf(Buffer.from('{}'))], [Buffer.from('{}')], 'malformed'],
    ['no list', { length: 1 }, [], 'expected data to be an array'],
    ['a list without end', Array.from({ length: 2_049 }, () => 1), [], 'at most 2048'],
    [
      'a digest that is a path',
      [entryOf(honest.bytes, 'dstack', { evidence: { digest: '../../../v1/models' } })],
      [],
      'valid digest',
    ],
    ['an origin that is no text', [{ ...entryOf(honest.bytes), origin: {} }], [], 'valid origin'],
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

  it('no call is sent when evidence of a second accepted origin is given for the first', async () => {
    const origins = [ORIGIN, 'https://second.example']
    const data = [entryOf(honest.bytes, 'dstack', { origin: origins[1] })]
    client = openMemoryClient(
      { providers: serving(data, honest.bytes) },
      { policies: [{ ...honest.policy, origins }] },
    )
    expect((await ask()).message).toContain('expected evidence of https://second.example')
    expect(client.bodies).toEqual([])
  })

  it('no call is sent when no policy accepts the code', async () => {
    client = openMemoryClient(
      { providers: serving([entryOf(otherCode.bytes)], otherCode.bytes) },
      { policies: [otherCode.policy] },
    )
    const refused = await ask()
    expect(refused.message).toContain(`sealed (${ORIGIN})`)
    expect(refused.message).toContain('compose_not_accepted: dstack: compose hash, failed')
    expect(client.bodies).toEqual([])
  })
})

describe('evidence that ends', () => {
  const newer = evidenceOf('dstack', {
    evidence: { fetchedAtMs: MADE_AT.getTime() + 30 * MINUTE_MS },
  })

  it('newer evidence is read before the old one ends, without a call that waits for it', async () => {
    await ask()
    client.nowMs += 40 * MINUTE_MS
    client.attack = { providers: serving([entryOf(newer.bytes)], newer.bytes) }
    expect((await ask()).code).toBe('given')
    await expect
      .poll(() => client.providers?.list().attested[0]?.facts.digest)
      .toBe(digestOf(newer.bytes))
    client.nowMs += 30 * MINUTE_MS
    expect((await ask()).code).toBe('given')
  })

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

  it('a gateway without accepted evidence is not asked for it at every call', async () => {
    client.attack = { providers: serving([]) }
    for (let call = 0; call < 3; call += 1) expect((await ask()).code).toBe('no_attested_provider')
    expect(listed()).toBe(1)
    client.nowMs += 11_000
    client.attack = { providers: serving([entryOf(honest.bytes)], honest.bytes) }
    expect((await ask()).code).toBe('given')
  })

  it('evidence that seemed too old is judged again at once after a fast clock was set right', async () => {
    client.nowMs += 86_400_000
    expect((await ask()).code).toBe('no_attested_provider')
    expect(listed()).toBe(1)
    client.nowMs -= 86_400_000
    expect((await ask()).code).toBe('given')
  })
})

describe('policies as options', () => {
  const gateway = { url: 'https://gateway.example', apiKey: null, fetch, timeoutMs: 1_000 }
  const open = (policies: unknown) => () =>
    createProviders(gateway, { policies: policies as object[], now: Date.now })
  const text = JSON.stringify(honest.policy)

  it('a policy is given as text, as bytes, as an object, or parsed', () => {
    const bytes = Buffer.from(text)
    const forms = [text, bytes, honest.policy, parseProviderPolicy(bytes)]
    expect(open(forms)).not.toThrow()
  })

  it.each<[string, unknown]>([
    ['none', undefined],
    ['no policies', []],
    ['a text', text],
    ['too many', Array.from({ length: 65 }, () => text)],
    ['what is no policy', ['{}']],
    ['what is no JSON', [undefined]],
    ['a policy with an unknown member', [{ ...honest.policy, more: 1 }]],
  ])('the option is refused with %s', (_, policies) => {
    expect(open(policies)).toThrow(expect.objectContaining({ code: 'invalid_options' }))
  })

  it('a copy of a parsed policy is refused: a member could be missing', () => {
    const copy = { ...parseProviderPolicy(Buffer.from(text)) }
    expect(open([copy])).toThrow(expect.objectContaining({ code: 'invalid_options' }))
  })
})
