import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { encodeHex, sha256 } from '#attestation/bytes.ts'
import { stripUnsetMembers } from '#attestation/completion-hash.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { verifyRefusal } from '#attestation/verify-refusal.ts'
import { send, wholeAnswer } from '../../support/hostile-answers.ts'
import {
  type HostileProvider,
  type Step,
  startHostileProvider,
} from '../../support/hostile-provider.ts'
import { callEncrypted, sealParts } from '../support/encrypted-calls.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

const NONCE = '5e'.repeat(16)
const NEARLY = (notary: string) => notary.slice(0, -1) + (notary.endsWith('0') ? '1' : '0')

let provider: HostileProvider
let enclave: TestEnclave
let notary: string
let answer: () => readonly Step[]

beforeAll(async () => {
  provider = await startHostileProvider({ answer: () => answer() })
  enclave = await startTestEnclave({
    providers: [{ name: 'hostile', origin: provider.origin, path: '/v1', models: ['hostile'] }],
  })
  notary = (await enclave.identity()).notary
})
afterAll(async () => {
  await enclave.stop()
  await provider.close()
})
beforeEach(() => {
  answer = () => [send('HTTP/1.1 529 Overloaded\r\ncontent-length: 2\r\n\r\n{}')]
})

let questions = 0
const requestWith = (demands: object) => ({
  model: 'hostile',
  messages: [{ role: 'user', content: `Question ${++questions}` }],
  affidavit: demands,
})
type Request = ReturnType<typeof requestWith>
const hashOf = (request: Request) =>
  encodeHex(sha256(Buffer.from(canonicalizeJson(stripUnsetMembers({ ...request } as never)))))
const verify = (value: never, request: Request) =>
  verifyRefusal(value, { requestHash: hashOf(request), notary })

describe('a call that names its enclave', () => {
  it.each([
    ['another enclave', () => `0x${'ab'.repeat(20)}`],
    ['an enclave whose address differs in the last digit', () => NEARLY(notary)],
  ])('a call that names %s is refused, and nothing is sent', async (_, named) => {
    const asked = provider.requests.length
    const request = requestWith({ notary: named() })
    const { status, json } = await enclave.complete(request)
    expect({ status, json }).toMatchObject({ status: 422, json: { code: 'notary_mismatch' } })
    expect(provider.requests).toHaveLength(asked)
    expect(await enclave.takeAll()).toEqual([])
  })

  it('an encrypted call that names another enclave is refused too', async () => {
    const { encryption_keys: [key] = [] } = await enclave.identity()
    const body = JSON.stringify(requestWith({ notary: NEARLY(notary), nonce: NONCE }))
    const call = { socketPath: enclave.socketPath, call: { credentials: {} } }
    const answered = await callEncrypted(call, await sealParts(key?.public_key ?? '', [body]))
    expect(answered.head).toMatchObject({ status: 422, should_retry: false })
    expect(JSON.parse(answered.text).error).toMatchObject({
      code: 'notary_mismatch',
      refusal: { notary, attempt: 1, code: 'notary_mismatch' },
    })
  })

  it.each(['0x12', `0x${'AB'.repeat(20)}`, `${'ab'.repeat(20)}`, 5, null])(
    'the enclave %j is no form of an address',
    async (value) => {
      const { status, json } = await enclave.complete(requestWith({ notary: value }))
      expect({ status, json }).toMatchObject({ status: 422, json: { code: 'invalid_request' } })
    },
  )
})

describe('a refusal', () => {
  it('a refusal of a call with a nonce is signed, and counts the attempts', async () => {
    const request = requestWith({ nonce: NONCE, notary })
    for (const attempt of [1, 2]) {
      const { status, json } = await enclave.complete(request)
      expect(status).toBe(502)
      const { refusal } = json as { readonly refusal?: object }
      expect(verify(refusal as never, request)).toMatchObject({ attempt, code: 'provider_error' })
    }
  })

  it('a call for another provider is neither counted nor signed, because the gateway sends it again', async () => {
    const request = requestWith({ nonce: NONCE })
    const { status, json } = await enclave.complete(request, { provider: 'another' })
    expect({ status, json }).toMatchObject({ status: 409, json: { code: 'provider_mismatch' } })
    expect(json).not.toHaveProperty('refusal')
    const again = (await enclave.complete(request)).json
    expect(again).toMatchObject({ refusal: { attempt: 1 } })
  })

  it('a refusal of a call without a nonce is not signed, because other callers may send the call', async () => {
    const { json } = await enclave.complete(requestWith({ notary }))
    expect(json).toMatchObject({ code: 'provider_error' })
    expect(json).not.toHaveProperty('refusal')
  })

  it.each<[string, () => readonly Step[]]>([
    ['breaks off before its answer', () => [{ kind: 'reset' }]],
    ['sends no completion', () => [send(wholeAnswer({ body: '{}' }))]],
    ['states an error with status 200', () => [send(wholeAnswer({ body: '{"error":"no"}' }))]],
  ])('a fault is not signed where the provider %s: it may have made the answer', async (_, how) => {
    answer = how
    const { json } = await enclave.complete(requestWith({ nonce: NONCE }))
    expect(json).toMatchObject({ may_be_made: true })
    expect(json).not.toHaveProperty('refusal')
  })
})
