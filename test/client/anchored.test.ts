import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { decodeHex } from '#attestation/bytes.ts'
import { parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { type AnchoredOptions, awaitAnchor, type KeptProof } from '#client/anchored.ts'
import { toQuantity } from '#client/rpc.ts'

const never = async (): Promise<never> => {
  throw new Error('expected no question')
}

describe('waiting for an anchor', () => {
  it.each<[string, unknown]>([
    ['a name that is misspelt', { confirmation: 64 }],
    ['no confirmation', { confirmations: 0 }],
    ['a number as text', { confirmations: '64' }],
    ['a time that is no number', { timeoutMs: Number.NaN }],
    ['a malformed endpoint', ''],
    ['members that are not its own', Object.create({ rpc: 'https://chain.example' })],
    ['no object', null],
  ])('waiting for an anchor is refused with %s', async (_, options) => {
    const gateway = { url: 'https://gateway.example', apiKey: null, fetch: never, timeoutMs: 1_000 }
    const waiting = awaitAnchor({ evidence: {} } as never, {
      gateway,
      policy: () => ({}),
      options: options as AnchoredOptions,
    })
    await expect(waiting).rejects.toMatchObject({ code: 'invalid_options' })
  })
})

const BUNDLE = readFileSync(new URL('../vectors/evidence/bundle.json', import.meta.url), 'utf8')
const { record, block } = JSON.parse(BUNDLE)
const EXPECTED = JSON.parse(
  readFileSync(new URL('../vectors/evidence/expected.json', import.meta.url), 'utf8'),
)
const PROOF: KeptProof = {
  evidence: { ...parseEvidenceBundle(JSON.parse(BUNDLE)), transaction: null, block: null },
}

/** The chain grows by one block with each poll. The endpoint answers 429 to refused polls. */
function waitFor(isRefused: (poll: number) => boolean, options: AnchoredOptions) {
  let polls = 0
  const results = {
    eth_chainId: () => toQuantity(record.log.chain_id),
    eth_getBlockByNumber: () => ({ hash: block.hash }),
    eth_blockNumber: () => toQuantity(block.number + polls - 1),
  }
  const fetch = async (url: string | URL | Request, init?: RequestInit): Promise<Response> => {
    if (String(url).includes('/v1/verified')) {
      polls++
      return new Response(BUNDLE)
    }
    if (isRefused(polls)) return new Response('slow down', { status: 429 })
    const { method } = JSON.parse(String(init?.body)) as { method: keyof typeof results }
    return Response.json({ jsonrpc: '2.0', id: 0, result: results[method]() })
  }
  const gateway = { url: 'https://gateway.example', apiKey: null, fetch, timeoutMs: 1_000 }
  const rpc = 'https://chain.example'
  const policy = () => ({ roots: EXPECTED.roots.map(decodeHex) })
  const waiting = awaitAnchor(PROOF, { gateway, policy, options: { rpc, ...options } })
  return { waiting, polls: () => polls }
}

describe('waiting for an anchor with an endpoint of the chain', () => {
  it('waiting for an anchor goes on after the endpoint refused a poll', async () => {
    const { waiting, polls } = waitFor((poll) => poll === 1, { confirmations: 2 })
    expect((await waiting).evidence.block?.number).toBe(block.number)
    expect(polls()).toBe(2)
  })

  it('waiting for an anchor ends with the fault of the endpoint when the time is over', async () => {
    const { waiting, polls } = waitFor(() => true, { timeoutMs: 1_500 })
    await expect(waiting).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('429'),
    })
    expect(polls()).toBeGreaterThan(1)
  })

  it('waiting for an anchor ends without an anchor when the last poll shows too few blocks', async () => {
    const { waiting } = waitFor((poll) => poll === 1, { timeoutMs: 3_000, confirmations: 64 })
    await expect(waiting).rejects.toMatchObject({ code: 'not_anchored' })
  })
})
