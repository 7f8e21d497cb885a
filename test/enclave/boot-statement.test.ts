import { createHash, randomBytes } from 'node:crypto'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import { verifyBootStatement } from '#attestation/evidence/verify-boot-statement.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { makeAccount } from '#enclave/notary-key.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import { type BootStatementReply, ENCLAVE_PATHS } from '#enclave/protocol/enclave-api.ts'
import { completionOf, send, wholeAnswer } from '../support/hostile-answers.ts'
import { type HostileProvider, startHostileProvider } from '../support/hostile-provider.ts'
import { openSoftwareNsm } from '../support/software-nsm.ts'
import { DOMAIN, startTestEnclave, type TestEnclave } from './support/test-enclave.ts'

let provider: HostileProvider
let nsm: Nsm
let isModuleAway = false
let started: TestEnclave
let heads: readonly BootHead[]

async function headOf(domain = DOMAIN): Promise<BootHead> {
  const account = await makeAccount(async (length) => randomBytes(length))
  const head = { size: 5, root: randomBytes(32) }
  const signature = account.sign(treeHeadDigest(domain, head))
  return {
    notary: account.notary,
    size: head.size,
    root: encodeHex(head.root),
    signature: `0x${encodeHex(signature)}`,
  }
}

const ascending = (list: readonly BootHead[]) =>
  list.toSorted((one, other) => (one.notary < other.notary ? -1 : 1))

beforeAll(async () => {
  nsm = await openSoftwareNsm({ rootFile: null, now: Date.now })
  heads = ascending(await Promise.all([headOf(), headOf(), headOf()]))
})

beforeEach(async () => {
  isModuleAway = false
  provider = await startHostileProvider({
    answer: () => [send(wholeAnswer({ body: JSON.stringify(completionOf('Hello')) }))],
  })
  const providers = [
    { name: 'hostile', origin: provider.origin, path: '/chat', models: ['hostile'] },
  ]
  const attest: Nsm['attest'] = async (input) => {
    if (isModuleAway) throw new Error('away')
    return nsm.attest(input)
  }
  started = await startTestEnclave({ providers, nsm: { ...nsm, attest, close: () => undefined } })
})

afterEach(async () => {
  await started.stop()
  await provider.close()
})

const ask = (body: string | object) => started.post(ENCLAVE_PATHS.bootStatement, body)

async function state(shown = heads): Promise<BootStatementReply> {
  const { status, text } = await ask({ heads: shown })
  expect(status).toBe(200)
  return JSON.parse(text) as BootStatementReply
}

/** The verdict of an outsider who knows the log's notary and boot configuration. */
async function verify(reply: BootStatementReply) {
  const { notary, boot_configuration: boot } = await started.identity()
  const { cabundle, timestampMs } = decodeAttestationPayload(Buffer.from(reply.document, 'base64'))
  const root = createHash('sha256')
    .update(cabundle[0] ?? '')
    .digest()
  const json = JSON.parse(JSON.stringify({ ...reply, created_at: Math.floor(timestampMs / 1000) }))
  const log = { notary, bootConfiguration: JSON.parse(JSON.stringify(boot)) }
  return verifyBootStatement(json, log, { roots: [root] })
}

describe('the boot statement call', () => {
  it('the boot statement states the heads that it was shown, over its key and configuration', async () => {
    const reply = await state()
    expect(reply.heads).toEqual(heads)
    expect(await verify(reply)).toMatchObject({
      verdict: 'incomplete',
      open: ['measurements', 'expected configuration'],
      facts: { heads },
    })
    expect(await verify({ ...reply, heads: heads.slice(1) })).toMatchObject({ verdict: 'invalid' })
  })

  it('the boot statement is made only once, and later callers get the same one', async () => {
    const [first, second] = await Promise.all([state(), state(heads.slice(1))])
    expect(second).toEqual(first)
    await started.complete({ model: 'hostile', messages: [] })
    expect(await state([])).toEqual(first)
  })

  it('the boot statement is refused once the log has a leaf', async () => {
    await started.complete({ model: 'hostile', messages: [] })
    expect((await ask({ heads })).json).toMatchObject({ status: 409, code: 'log_conflict' })
  })

  it('the boot statement may be asked for again after the module failed', async () => {
    isModuleAway = true
    expect((await ask({ heads })).json).toMatchObject({ status: 503, code: 'not_ready' })
    isModuleAway = false
    expect((await state()).heads).toEqual(heads)
  })

  it('the boot statement refuses a head that its notary did not sign, or signed for another chain', async () => {
    const [one, two] = heads
    const swapped = ascending([{ ...one, root: two?.root } as BootHead])
    const foreign = [await headOf({ ...DOMAIN, chainId: 1 })]
    for (const shown of [swapped, foreign])
      expect((await ask({ heads: shown })).json).toMatchObject({
        status: 400,
        code: 'invalid_call',
      })
  })

  it.each<[string, () => string | object, object]>([
    ['heads out of order', () => ({ heads: heads.toReversed() }), { code: 'invalid_call' }],
    [
      'a member of the gateway’s own',
      () => ({ heads, boot_configuration: '00' }),
      { code: 'invalid_call' },
    ],
    ['a body that is too long', () => 'x'.repeat(600_000), { status: 413 }],
  ])('the boot statement call refuses %s', async (_, body, fault) => {
    expect((await ask(body())).json).toMatchObject(fault)
  })
})
