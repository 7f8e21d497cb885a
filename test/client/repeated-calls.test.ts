import { Wallet } from 'ethers'
import { beforeEach, describe, expect, it } from 'vitest'
import { encodeHex, sha256 } from '#attestation/bytes.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { refusalDigest } from '#attestation/refusal.ts'
import { NOTARY } from '../attestation/build-record.ts'
import { ADDRESS, type Attack, type MemoryClient, openMemoryClient } from './memory-gateway.ts'

const REQUEST = { model: 'demo/echo', messages: [{ role: 'user', content: 'Pay?' }] }
const OTHER = `0x${'ab'.repeat(20)}`

let client: MemoryClient
beforeEach(() => {
  client = openMemoryClient()
})

async function ask(body: object = REQUEST) {
  const response = await client.fetch(client.url, { method: 'POST', body: JSON.stringify(body) })
  const text = await response.text().catch(() => 'refused')
  return { status: response.status, retry: response.headers.get('x-should-retry'), text }
}

const demandsOf = (at: number) => JSON.parse(client.bodies.at(at) ?? '{}').affidavit
const nonces = () => client.bodies.map((_, at) => demandsOf(at).nonce)
const attempt = () => client.proofs.latest?.checks.find(({ name }) => name === 'attempt')

/** The gateway answers with an error, and asks for a repeat. `refusalOf` gets the request's hash. */
const failing = (status: number, refusalOf?: (requestHash: string) => object): Attack => ({
  respond: () => {
    const sent = canonicalizeJson(parseExactJson(Buffer.from(client.bodies.at(-1) ?? '')))
    const refusal = refusalOf?.(encodeHex(sha256(Buffer.from(sent))))
    const error = { code: 'provider_error', message: 'no', ...(refusal && { refusal }) }
    const headers = { 'content-type': 'application/json', 'x-should-retry': 'true' }
    return new Response(JSON.stringify({ error }), { status, headers })
  },
})

const signed =
  (more: object = {}, signer: Pick<typeof NOTARY, 'signingKey'> = NOTARY) =>
  (requestHash: string) => {
    const statement = {
      request_hash: requestHash,
      notary: ADDRESS,
      attempt: 1,
      code: 'provider_error',
      at: 1_760_000_000_000,
      ...more,
    }
    const { serialized } = signer.signingKey.sign(refusalDigest(statement))
    return { ...statement, signature: serialized }
  }

/** The enclave answers as its attempt number `count`. */
const answering = (count: number): Attack => ({ receipt: { attempt: count } })

describe('a call whose answer did not come', () => {
  it('an error without a signed refusal invites no repeat, and the same call keeps its nonce', async () => {
    client.attack = failing(500)
    expect(await ask()).toMatchObject({ status: 500, retry: 'false' })
    client.attack = answering(1)
    await ask()
    await ask()
    const [first, second, third] = nonces()
    expect([second === first, third === first]).toEqual([true, false])
  })

  it('an enclave that was asked once proves that a gateway asked once', async () => {
    client.attack = failing(503)
    await ask()
    await ask()
    client.attack = answering(1)
    await ask()
    expect(attempt()).toMatchObject({ outcome: 'passed', detail: 'asked 1 times, sent 3 times' })
    expect(client.proofs.latest?.unanswered).toEqual([])
  })

  it('a gateway that could choose among answers passes no check, and the proof says so', async () => {
    client.attack = failing(500)
    await ask()
    client.attack = {
      respond: () => {
        throw new TypeError('the connection broke')
      },
    }
    await ask().catch(() => undefined)
    client.attack = answering(3)
    expect((await ask()).status).toBe(200)
    expect(attempt()).toMatchObject({
      outcome: 'not checked',
      detail: 'asked 3 times, sent 3 times; 2 without an answer, which may have been made',
    })
    const unanswered = [{ notary: ADDRESS, times: 2 }]
    const saved = client.proofs.latest?.save() ?? ''
    expect(parseExactJson(Buffer.from(saved))).toMatchObject({ unanswered })
  })

  it('an altered answer counts as no answer', async () => {
    client.attack = { answer: (answer) => ({ ...answer, id: 'c9' }) }
    expect((await ask()).text).toBe('refused')
    client.attack = answering(2)
    await ask()
    expect(attempt()).toMatchObject({ outcome: 'not checked' })
  })

  it('an enclave that was asked more often than the call was sent is refused', async () => {
    client.attack = failing(500)
    await ask()
    client.attack = answering(3)
    expect((await ask()).text).toBe('refused')
  })

  it.each([
    [429, 'true'],
    [404, 'true'],
    [502, 'false'],
    [529, 'false'],
  ])('an error %i without a signed refusal says %s to a repeat', async (status, retry) => {
    client.attack = failing(status)
    expect(await ask()).toMatchObject({ status, retry })
  })
})

describe('a signed refusal', () => {
  it('a signed refusal covers its attempt, and its error keeps the advice to repeat', async () => {
    client.attack = failing(502, signed())
    expect(await ask()).toMatchObject({ status: 502, retry: 'true' })
    client.attack = answering(2)
    await ask()
    expect(attempt()).toMatchObject({ outcome: 'passed', detail: 'asked 2 times, sent 2 times' })
  })

  it('a refusal that is given twice covers one attempt', async () => {
    client.attack = failing(502, signed())
    await ask()
    await ask()
    client.attack = answering(3)
    await ask()
    expect(attempt()).toMatchObject({ outcome: 'not checked' })
  })

  it.each([
    ['of another signer', signed({}, Wallet.createRandom())],
    ['of another request', signed({ request_hash: 'ab'.repeat(32) })],
    ['of another enclave', signed({ notary: OTHER })],
    ['with another code', (hash: string) => ({ ...signed()(hash), code: 'log_full' })],
    ['with another attempt', (hash: string) => ({ ...signed({ attempt: 2 })(hash), attempt: 1 })],
    ['with one more member', (hash: string) => ({ ...signed()(hash), more: 1 })],
    ['without a signature', (hash: string) => ({ ...signed()(hash), signature: undefined })],
  ])('a refusal %s counts as none', async (_, refusalOf) => {
    client.attack = failing(502, refusalOf)
    expect(await ask()).toMatchObject({ retry: 'false' })
    client.attack = answering(2)
    await ask()
    expect(attempt()).toMatchObject({ outcome: 'not checked' })
  })
})

describe('what is the same call', () => {
  it('another body, and the same body ten minutes later, is another call', async () => {
    client.attack = failing(500)
    await ask()
    await ask({ ...REQUEST, seed: 1 })
    client.nowMs += 10 * 60_000
    await ask()
    expect(new Set(nonces()).size).toBe(3)
  })

  it('two calls with one body at once are two, and each keeps its nonce', async () => {
    client.attack = failing(500)
    await Promise.all([ask(), ask()])
    await Promise.all([ask(), ask()])
    const [a, b, c, d] = nonces()
    expect(new Set([a, b, c, d])).toEqual(new Set([a, b]))
    expect(a).not.toBe(b)
    expect(c).not.toBe(d)
  })

  it('each call names its enclave in what is hashed and in the header that it is routed by', async () => {
    await ask()
    expect(demandsOf(0).notary).toBe(ADDRESS)
    expect(client.proofs.latest?.request).toMatchObject({ affidavit: { notary: ADDRESS } })
  })

  it('a call that demands an enclave that is not attested is not sent', async () => {
    await ask({ ...REQUEST, affidavit: { notary: OTHER } })
    expect(client.bodies).toEqual([])
  })
})
