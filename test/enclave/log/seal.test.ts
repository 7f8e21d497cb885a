import { createHash, randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { verifyCompletionSignature } from '#attestation/completion-signature.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { Space } from '#enclave/log/memory-budget.ts'
import { NotaryLog } from '#enclave/log/notary-log.ts'
import { type FinishedCompletion, sealCompletion } from '#enclave/log/seal.ts'
import { makeAccount } from '#enclave/notary-key.ts'
import { NOTICE_RESPONSE_LENGTH_MAX } from '#enclave/protocol/enclave-api.ts'

const hex = (text: string) => createHash('sha256').update(text).digest('hex')
const canonicalRequest = '{"messages":[{"content":"Hi","role":"user"}],"model":"m","temperature":1}'
const finished: FinishedCompletion = {
  dialect: DIALECTS.chat,
  headers: {},
  canonicalRequest,
  requestDigest: createHash('sha256').update(canonicalRequest).digest(),
  response: {
    id: 'x',
    model: 'made',
    choices: [],
    hash: 'forged',
    log: 'forged',
    note: '\u0000😀',
  },
  streamHash: hex('stream'),
  attempt: 3,
  credential: { from: 'caller', demanded: true } as const,
  forwardedHash: hex('forwarded'),
  receivedHash: hex('received'),
  provider: { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
  requestedModel: 'm',
  outcome: 'complete',
  startedAtMs: 1_700_000_000_000,
  finishedAtMs: 1_700_000_001_000,
  context: 'context',
  isEncrypted: false,
  inNotice: false,
}

async function makeNotary() {
  const account = await makeAccount(async (length) => new Uint8Array(randomBytes(length)))
  const domain = { chainId: 1, contract: '0x5fbdb2315678afecb367f032d93f642f64180aa3' }
  const log = new NotaryLog({ account, domain, space: new Space(1e9) })
  return { account, log, document: { digest: hex('document'), base64: 'ZG9j', leafNotAfterMs: 0 } }
}

describe('sealCompletion', () => {
  it('the receipt names the model that a message was handed to', async () => {
    const notary = await makeNotary()
    const content = [{ type: 'fallback', from: { model: 'made' }, to: { model: 'other' } }]
    sealCompletion(notary, { ...finished, response: { ...finished.response, content } })
    const [sealed] = notary.log.pull({ from: 0, max: 1, known_document: null }).completions
    expect(JSON.parse(sealed?.receipt ?? '').model.returned).toBe('other')
  })

  it('sealCompletion makes the leaf that attestation/formats.md describes', async () => {
    const notary = await makeNotary()
    expect(sealCompletion(notary, finished).notice).toEqual({
      notary: notary.account.notary,
      index: 0,
      outcome: 'complete',
    })
    const [sealed] = notary.log.pull({ from: 0, max: 1, known_document: null }).completions
    const request = finished.canonicalRequest
    const response = '{"choices":[],"id":"x","model":"made","note":"\\u0000😀"}'
    const requestHash = hex(request)
    const responseHash = hex(response)
    const hash = createHash('sha256')
      .update(Buffer.from(requestHash + responseHash, 'hex'))
      .digest('hex')
    expect(sealed).toMatchObject({
      index: 0,
      request,
      response,
      document: hex('document'),
      context: 'context',
    })
    expect(sealed).not.toHaveProperty('usage')
    expect(parseReceipt(parseStrictJson(Buffer.from(sealed?.receipt ?? '')))).toEqual({
      version: 1,
      index: 0,
      hash,
      request_hash: requestHash,
      response_hash: responseHash,
      forwarded_hash: hex('forwarded'),
      received_hash: hex('received'),
      provider: { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
      model: { requested: 'm', returned: 'made' },
      outcome: 'complete',
      started_at: 1_700_000_000_000,
      finished_at: 1_700_000_001_000,
      stream_hash: hex('stream'),
      attempt: 3,
      encrypted: false,
      credential: { from: 'caller', demanded: true },
      dialect: 'chat',
      headers: {},
    })
    const signature = decodeHex(sealed?.signature ?? '')
    const { publicKey } = notary.account
    expect(() =>
      verifyCompletionSignature({ hash: decodeHex(hash), signature, publicKey }),
    ).not.toThrow()
  })

  it('sealCompletion brings a completion with its notice where asked for, if the completion is short', async () => {
    const notary = await makeNotary()
    const long = { ...finished.response, note: 'x'.repeat(NOTICE_RESPONSE_LENGTH_MAX) }
    const notices = [
      { inNotice: false },
      { inNotice: true },
      { inNotice: true, isEncrypted: true },
      { inNotice: true, response: long },
    ].map((asked) => sealCompletion(notary, { ...finished, ...asked }).notice)
    const { completions } = notary.log.pull({ from: 0, max: 9, known_document: null })
    const reported = notices.map(({ completion }) => completion)
    const { response, receipt, signature, document } = completions[1] ?? expect.unreachable()
    expect(reported).toEqual([
      undefined,
      { response, receipt, signature, document },
      undefined,
      undefined,
    ])
  })

  it('sealCompletion hands over the usage of an encrypted completion, not its request and response', async () => {
    const notary = await makeNotary()
    const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }
    const response = { ...finished.response, usage: { ...usage, more: 'text' } }
    const given = sealCompletion(notary, { ...finished, response, isEncrypted: true })
    const [sealed] = notary.log.pull({ from: 0, max: 1, known_document: null }).completions
    expect(sealed).toMatchObject({ request: null, response: null, usage, context: 'context' })
    expect(JSON.parse(sealed?.receipt ?? '')).toMatchObject({ encrypted: true })
    expect(JSON.stringify(sealed)).not.toContain('Hi')
    expect(hex(given.response)).toBe(JSON.parse(sealed?.receipt ?? '').response_hash)
  })

  it.each([
    [{ prompt_tokens: 1, completion_tokens: 2 }, 3],
    [{ prompt_tokens: 1, completion_tokens: 2, total_tokens: 'x' }, 3],
    [{ prompt_tokens: 2 ** 53 - 1, completion_tokens: 1 }, null],
    [{ prompt_tokens: -1, completion_tokens: 1 }, null],
    [{ prompt_tokens: 1.5, completion_tokens: 1 }, null],
    [{ completion_tokens: 1 }, null],
    [null, null],
  ])('usageOf takes the usage %j for counts, or for no usage', (usage, total) => {
    expect(DIALECTS.chat.usageOf({ usage })?.total_tokens ?? null).toBe(total)
  })

  it('sealCompletion appends nothing when the completion cannot be represented', async () => {
    const notary = await makeNotary()
    expect(() => sealCompletion(notary, { ...finished, response: { text: '\ud800' } })).toThrow()
    expect(notary.log.size).toBe(0)
  })
})
