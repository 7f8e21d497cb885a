import { createHash } from 'node:crypto'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { verifyHeadAttestation } from '#attestation/evidence/verify-head-attestation.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { createAttestationVerifier } from '#attestation/nitro/verify-attestation.ts'
import { FRESH_CALLS_MAX } from '#enclave/attestation-keeper.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import { ENCLAVE_PATHS, type HeadAttestationReply } from '#enclave/protocol/enclave-api.ts'
import { completionOf, send, wholeAnswer } from '../support/hostile-answers.ts'
import { type HostileProvider, startHostileProvider } from '../support/hostile-provider.ts'
import { openSoftwareNsm } from '../support/software-nsm.ts'
import { until } from '../support/until.ts'
import { startTestEnclave, type TestEnclave } from './support/test-enclave.ts'

const BLOCK_HASH = `0x${'b1'.repeat(32)}`
const question = { model: 'hostile', messages: [] }
const attestations = createAttestationVerifier()

let provider: HostileProvider
let nsm: Nsm
/** Set by a test that holds the module's answers back. */
let held: Promise<void> = Promise.resolve()
/** How often the module was asked for a document. */
let asked = 0
let started: TestEnclave

beforeAll(async () => {
  nsm = await openSoftwareNsm({ rootFile: null, now: Date.now })
})

beforeEach(async () => {
  held = Promise.resolve()
  provider = await startHostileProvider({
    answer: () => [send(wholeAnswer({ body: JSON.stringify(completionOf('Hello')) }))],
  })
  const providers = [
    { name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] },
  ]
  const attest: Nsm['attest'] = async (input) => {
    asked += 1
    await held
    return nsm.attest(input)
  }
  started = await startTestEnclave({ providers, nsm: { ...nsm, attest, close: () => undefined } })
})

afterEach(async () => {
  await started.stop()
  await provider.close()
})

const ask = (body: string | object) => started.post(ENCLAVE_PATHS.attestHead, body)

async function attest(blockHash = BLOCK_HASH): Promise<HeadAttestationReply> {
  const { status, text } = await ask({ block_hash: blockHash })
  expect(status).toBe(200)
  return JSON.parse(text) as HeadAttestationReply
}

/** Root over the log's first `size` leaves, which are all handed over again. */
async function rootAt(size: number): Promise<string> {
  const { completions } = await started.pull()
  const leaves = completions.slice(0, size).map(({ receipt }) => hashLeaf(encodeUtf8(receipt)))
  expect(leaves).toHaveLength(size)
  return Buffer.from(rootOf(appendLeaves(emptyEdge, leaves).edge)).toString('hex')
}

/** The verdict of an outsider who knows the log's notary and boot configuration. */
async function verify(reply: HeadAttestationReply, blockHash = BLOCK_HASH) {
  const { notary, boot_configuration: boot } = await started.identity()
  const document = decodeAttestationPayload(Buffer.from(reply.document, 'base64'))
  const root = createHash('sha256')
    .update(document.cabundle[0] ?? '')
    .digest()
  const json = {
    ...reply,
    block_number: 1,
    block_hash: blockHash,
    created_at: Math.floor(document.timestampMs / 1000),
  }
  const log = { notary, bootConfiguration: JSON.parse(JSON.stringify(boot)) }
  return verifyHeadAttestation(json, log, { roots: [root] }, { attestations })
}

describe('the head attestation call', () => {
  it('the head attestation call attests an empty log', async () => {
    const reply = await attest()
    expect(reply).toEqual({ size: 0, root: await rootAt(0), document: expect.any(String) })
    expect(await verify(reply)).toMatchObject({
      verdict: 'incomplete',
      open: ['measurements', 'expected configuration'],
    })
  })

  it('a head attestation covers all leaves, acknowledged and not, over the block’s hash', async () => {
    for (let count = 0; count < 5; count++) await started.complete(question)
    const root = await rootAt(5)
    await started.pull({ from: 3 })
    expect((await started.identity()).log).toEqual({ size: 5, acknowledged: 3 })
    const before = Date.now()
    const reply = await attest()
    expect(reply).toMatchObject({ size: 5, root })
    const report = await verify(reply)
    expect(report).toMatchObject({
      verdict: 'incomplete',
      facts: { size: 5, blockHash: BLOCK_HASH },
    })
    expect(report.facts?.timestampMs).toBeGreaterThanOrEqual(before)
    expect(await verify(reply, `0x${'b2'.repeat(32)}`)).toMatchObject({ verdict: 'invalid' })
    expect(await verify({ ...reply, size: 4 })).toMatchObject({ verdict: 'invalid' })
    expect(await verify({ ...reply, root: '00'.repeat(32) })).toMatchObject({ verdict: 'invalid' })
  })

  it('a head attestation states the log when it was asked, not when the module answered', async () => {
    await started.complete(question)
    const module = Promise.withResolvers<void>()
    held = module.promise
    const before = asked
    const waiting = attest()
    await until('the module is asked', () => asked > before)
    await started.complete(question)
    module.resolve()
    expect(await waiting).toMatchObject({ size: 1, root: await rootAt(1) })
  })

  it('a head attestation is refused while too many wait for the module, and answered after those', async () => {
    const module = Promise.withResolvers<void>()
    held = module.promise
    const before = asked
    const waiting = Array.from({ length: FRESH_CALLS_MAX }, () => attest())
    await until('too many wait', () => asked >= before + FRESH_CALLS_MAX)
    expect((await ask({ block_hash: BLOCK_HASH })).json).toMatchObject({
      status: 503,
      code: 'too_busy',
    })
    module.resolve()
    await Promise.all(waiting)
    await attest()
  })

  it.each<[string, string | object, object]>([
    [
      'a head of the gateway’s own',
      { block_hash: BLOCK_HASH, size: 9 },
      { status: 400, code: 'invalid_call' },
    ],
    ['no JSON', 'block_hash', { status: 400, code: 'invalid_call' }],
    ['a body that is too long', 'x'.repeat(5000), { status: 413 }],
  ])('the head attestation call refuses %s', async (_, body, fault) => {
    expect((await ask(body)).json).toMatchObject(fault)
  })
})
