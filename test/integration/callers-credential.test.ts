import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { ENCAPSULATED_KEY_HEADER } from '#attestation/ehbp.ts'
import { sealCredential } from '#client/encryption.ts'
import { type Affidavit, connect } from '#client/index.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { saying } from '../support/gateway-attacks/attack-case.ts'
import {
  type HostileGateway,
  type PassingCall,
  startHostileGateway,
} from '../support/hostile-gateway.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let hostile: HostileGateway
let encrypting: Affidavit
let clear: Affidavit

beforeAll(async () => {
  service = await useAffidavit()
  hostile = await startHostileGateway(service.url)
  const { connect: expected } = await readExpectedService(service)
  const options = { url: hostile.url, apiKey: service.apiKey, ...expected }
  encrypting = await connect({ ...options, encrypt: true })
  clear = await connect({ ...options, encrypt: false })
})
afterEach(() => hostile.set(null))
afterAll(() => hostile.stop())

let prompts = 0

type Reply = {
  readonly status: number
  readonly error?: { readonly code: string }
  readonly receipt?: { readonly credential: object }
}

async function ask(client: Affidavit, { isOwn = true, more = {} } = {}): Promise<Reply> {
  const messages = [{ role: 'user', content: `A question ${++prompts}` }]
  const reply = await client.fetch(`${client.baseURL}/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${service.apiKey}`,
      ...(isOwn ? { 'fine-tune-authorization': 'Bearer sk-of-the-caller' } : {}),
    },
    body: JSON.stringify({ model: 'demo/echo', messages, ...more }),
  })
  return { status: reply.status, ...((await reply.json()) as object) }
}

/** Passes the call on with another header; without the header when it is empty. */
const sending = (header: (call: PassingCall) => string | Promise<string>) =>
  saying(async (call) => call.ask(call.body, { 'fine-tune-authorization': await header(call) }))

type Listed = {
  readonly notaries: readonly {
    readonly encryption_keys: readonly { readonly public_key: string }[]
  }[]
}

/** A credential of the attacker in between, sealed in the caller's form. */
async function sealedOwn({ headers }: PassingCall): Promise<string> {
  const listed = await (await fetch(`${service.url}/v1/notaries`)).json()
  const [key] = (listed as Listed).notaries[0]?.encryption_keys ?? []
  const target = { notary: '', publicKey: decodeHex(key?.public_key ?? '') }
  const enc = decodeHex(headers[ENCAPSULATED_KEY_HEADER] ?? '')
  return sealCredential(target, { credential: 'sk-of-somebody-else', enc })
}

describe("a caller's credential", () => {
  it.each([
    ['an encrypted call', () => encrypting],
    ['a call in the clear', () => clear],
  ])('%s is made with the credential of its caller, and its receipt says so', async (_, client) => {
    expect(await ask(client())).toMatchObject({
      status: 200,
      receipt: { credential: { from: 'caller', demanded: true } },
    })
    const { receipt } = await ask(client(), { isOwn: false })
    expect(receipt?.credential).toMatchObject({ demanded: true })
    expect(receipt?.credential).not.toMatchObject({ from: 'caller' })
  })

  it.each<[string, () => Affidavit, { readonly isOwn: boolean }, Parameters<typeof sending>[0]]>([
    ['drops from an encrypted call', () => encrypting, { isOwn: true }, () => ''],
    ['replaces in an encrypted call', () => encrypting, { isOwn: true }, sealedOwn],
    ['adds to an encrypted call', () => encrypting, { isOwn: false }, sealedOwn],
    ['drops from a call in the clear', () => clear, { isOwn: true }, () => ''],
    ['replaces in a call in the clear', () => clear, { isOwn: true }, () => 'Bearer sk-of-another'],
    ['adds to a call in the clear', () => clear, { isOwn: false }, () => 'Bearer sk-of-another'],
  ])(
    'a credential that an attacker in between %s makes no completion',
    async (_, client, options, header) => {
      hostile.set(sending(header))
      expect(await ask(client(), options)).toMatchObject({
        status: 422,
        error: { code: 'credential_mismatch', param: 'affidavit' },
      })
      expect(hostile.counts().met).toBe(1)
    },
  )
})
