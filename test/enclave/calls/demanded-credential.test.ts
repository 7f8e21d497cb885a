import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { digestCredential } from '#attestation/demands.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
import { completionOf, send, wholeAnswer } from '../../support/hostile-answers.ts'
import { type HostileProvider, startHostileProvider } from '../../support/hostile-provider.ts'
import {
  type CallersCall,
  callEncrypted,
  sealCredential,
  sealParts,
} from '../support/encrypted-calls.ts'
import { startTestEnclave, type TestEnclave } from '../support/test-enclave.ts'

const CALLERS = 'sk-of-the-caller'
const OPERATORS = 'sk-of-the-operator'
const STRANGERS = 'sk-of-somebody-in-between'
const NONCE = '5e'.repeat(16)

let provider: HostileProvider
let enclave: TestEnclave
let publicKey: string
let asked = 0

beforeAll(async () => {
  provider = await startHostileProvider({
    answer: () => [send(wholeAnswer({ body: JSON.stringify(completionOf('Yes')) }))],
  })
  enclave = await startTestEnclave({
    providers: [{ name: 'hostile', origin: provider.origin, path: '/v1', models: ['hostile'] }],
  })
  publicKey = (await enclave.identity()).encryption_keys?.[0]?.public_key ?? ''
})
afterAll(async () => {
  await enclave.stop()
  await provider.close()
})
beforeEach(async () => {
  await enclave.takeAll()
  asked = provider.requests.length
})

type Demand = 'operator' | { readonly sha256: string }
const OF_CALLER = { sha256: digestCredential(NONCE, CALLERS) }
/** Differs from it in the last digit alone. */
const NEARLY_OF_CALLER = {
  sha256: OF_CALLER.sha256.slice(0, -1) + (OF_CALLER.sha256.endsWith('0') ? '1' : '0'),
}

let questions = 0
const requestWith = (credential?: Demand) => ({
  model: 'hostile',
  messages: [{ role: 'user', content: `Question ${++questions}` }],
  ...(credential === undefined ? {} : { affidavit: { nonce: NONCE, credential } }),
})

/** What the provider was shown; null when nothing reached it. */
const shown = () =>
  provider.requests.length === asked
    ? null
    : (provider.requests.at(-1)?.headers.get('authorization') ?? 'none')

async function receipt(): Promise<Receipt> {
  const [sealed] = await enclave.takeAll()
  return parseReceipt(parseStrictJson(Buffer.from(sealed?.receipt ?? '')))
}

describe('a call that a gateway reads', () => {
  const callers = { credential: CALLERS, is_callers: true }
  const operators = { credential: OPERATORS, is_callers: false }
  const strangers = { credential: STRANGERS, is_callers: true }
  const none = { credential: null, is_callers: false }

  it.each([
    ["the caller's", OF_CALLER, callers, `Bearer ${CALLERS}`, { from: 'caller', demanded: true }],
    [
      "the operator's",
      'operator',
      operators,
      `Bearer ${OPERATORS}`,
      { from: 'operator', demanded: true },
    ],
    ["the operator's, who has none,", 'operator', none, 'none', { from: 'none', demanded: true }],
    [
      'none, but brings one,',
      undefined,
      callers,
      `Bearer ${CALLERS}`,
      { from: 'caller', demanded: false },
    ],
  ] as const)(
    'a call that demands %s credential is made with it, and its receipt says so',
    async (_, demand, call, header, credential) => {
      expect((await enclave.complete(requestWith(demand), call)).status).toBe(200)
      expect(shown()).toBe(header)
      expect(await receipt()).toMatchObject({ credential, dialect: 'chat', headers: {} })
    },
  )

  it.each([
    ["was left out, in favour of the operator's", OF_CALLER, operators],
    ['was left out', OF_CALLER, none],
    ['was replaced', OF_CALLER, strangers],
    ["is said to be the operator's", OF_CALLER, { credential: CALLERS, is_callers: false }],
    ["was put in the place of the operator's", 'operator', strangers],
    ['has a digest with another last digit', NEARLY_OF_CALLER, callers],
    [
      'has the digest of another nonce',
      { sha256: digestCredential('5f'.repeat(16), CALLERS) },
      callers,
    ],
  ] as const)('a call whose demanded credential %s is not made', async (_, demand, call) => {
    const answer = await enclave.complete(requestWith(demand), call)
    expect(answer).toMatchObject({ status: 422, json: { code: 'credential_mismatch' } })
    expect(shown()).toBeNull()
    expect(await enclave.takeAll()).toEqual([])
  })
})

describe('an encrypted call', () => {
  const gateway = () => ({
    socketPath: enclave.socketPath,
    call: { credentials: { hostile: OPERATORS } },
  })
  const seal = (demand: Demand, credential?: string) =>
    sealParts(publicKey, [JSON.stringify(requestWith(demand))], credential)

  /** Anybody can: the key is published, and what the credential is bound to goes by. */
  const replaced = async (call: CallersCall): Promise<CallersCall> => ({
    ...call,
    credential: await sealCredential(publicKey, { credential: STRANGERS, to: call.enc }),
  })

  it("an encrypted call is made with the caller's credential that it demands", async () => {
    const answer = await callEncrypted(gateway(), await seal(OF_CALLER, CALLERS))
    expect(answer.head?.status).toBe(200)
    expect(shown()).toBe(`Bearer ${CALLERS}`)
    expect(JSON.parse(answer.text).receipt.credential).toEqual({ from: 'caller', demanded: true })
  })

  it.each<[string, () => Promise<CallersCall>]>([
    ['dropped', async () => ({ ...(await seal(OF_CALLER, CALLERS)), credential: null })],
    ['replaced by one of his own', async () => replaced(await seal(OF_CALLER, CALLERS))],
    ["added to a call for the operator's", async () => replaced(await seal('operator'))],
  ])(
    'an encrypted call is not made when somebody in between has its credential %s',
    async (_, attack) => {
      const answer = await callEncrypted(gateway(), await attack())
      expect(answer.head).toMatchObject({ status: 422, should_retry: false })
      expect(JSON.parse(answer.text).error).toMatchObject({
        code: 'credential_mismatch',
        param: 'affidavit',
      })
      expect(shown()).toBeNull()
      expect(await enclave.takeAll()).toEqual([])
    },
  )

  it('an encrypted call without a demand is made with whatever credential came, and its receipt says so', async () => {
    const sealed = await sealParts(publicKey, [JSON.stringify(requestWith())], CALLERS)
    const answer = await callEncrypted(gateway(), { ...sealed, credential: null })
    expect(shown()).toBe(`Bearer ${OPERATORS}`)
    expect(JSON.parse(answer.text).receipt.credential).toEqual({
      from: 'operator',
      demanded: false,
    })
  })
})
