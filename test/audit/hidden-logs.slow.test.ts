import { join } from 'node:path'
import { Wallet } from 'ethers'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { DEPLOYMENT } from '#attestation/contract/artifact.ts'
import {
  type Anchoring,
  type BuiltLog,
  buildLog,
  createTestNotary,
  fundRelayer,
} from '../support/audited-log.ts'
import { startTestChain, type TestChain } from '../support/chain.ts'
import { startChainProxy } from '../support/chain-proxy.ts'
import { openStage, type Stage } from './stage.ts'

let stage: Stage
let chain: TestChain
let anchoring: Anchoring
/** The one log that the gateway lists. */
let log: BuiltLog

beforeAll(async () => {
  stage = await openStage()
  chain = await startTestChain()
}, 60_000)
afterAll(async () => {
  await stage.close()
  await chain.dispose()
})
beforeEach(async () => {
  anchoring = await fundRelayer(chain)
  log = await build(anchoring)
})

const build = async (paid: Anchoring, options: Partial<Parameters<typeof buildLog>[1]> = {}) =>
  buildLog(await createTestNotary(chain), { batches: [3, 2], anchoring: paid, ...options })

async function audit(logs: readonly BuiltLog[] = [log], ...words: readonly string[]) {
  stage.server.serve(logs)
  const trust = await Promise.all(logs.map((one) => stage.trust(one)))
  return stage.audit(...trust.flat(), '--rpc', chain.rpcUrl, ...words)
}

/** Has the relayer send something else, and waits until it is in a block. */
async function send(transaction: {
  readonly to?: string
  readonly data?: string
  readonly value?: bigint
}) {
  const wallet = new Wallet(anchoring.chain?.relayerKey ?? '')
  const raw = await wallet.signTransaction({
    type: 2,
    chainId: chain.chainId,
    nonce: anchoring.nonce++,
    gasLimit: 3_000_000n,
    maxFeePerGas: 100_000_000_000n,
    maxPriorityFeePerGas: 1_000_000_000n,
    ...transaction,
  })
  const hash = await chain.rpc.call('eth_sendRawTransaction', [raw])
  while ((await chain.rpc.call('eth_getTransactionReceipt', [hash])) === null)
    await new Promise((resolve) => setTimeout(resolve, 5))
}

const anchorData = (one: BuiltLog): string => {
  const [head] = one.heads
  if (head === undefined) throw new Error('expected a head')
  const words = [
    head.size.toString(16).padStart(64, '0'),
    encodeHex(head.root),
    (0x60).toString(16).padStart(64, '0'),
    (0x41).toString(16).padStart(64, '0'),
    encodeHex(head.signature).padEnd(192, '0'),
  ]
  return `0xc7d10206${words.join('')}`
}

describe('affidavit audit, of logs that the gateway does not list', () => {
  it('an audit catches a log whose anchors its relayer paid for', async () => {
    const hidden = await build(anchoring)
    const { code, codes, findings } = await audit()
    expect([code, codes]).toEqual([1, ['hidden_log']])
    expect(findings).toHaveLength(1)
    expect(findings[0]?.message).toContain(hidden.notary.account.notary)
  })

  it('an audit catches a log that only a relayer of an earlier log of the gateway paid for', async () => {
    const rotated = await fundRelayer(chain)
    const newer = await build(rotated)
    await build(anchoring)
    expect(await audit([newer, log])).toMatchObject({ code: 1, codes: ['hidden_log'] })
  })

  it('an audit finds nothing when all logs of the gateway are listed, and counts those of others', async () => {
    const second = await build(anchoring)
    await build(await fundRelayer(chain))
    const { code, codes, gateway } = await audit([log, second])
    expect([code, codes]).toEqual([0, []])
    expect(gateway['logs in the contract']).toMatchObject({
      outcome: 'passed',
      detail: expect.stringContaining('of other gateways'),
    })
    expect(gateway['transactions of relayers']?.outcome).toBe('passed')
  })

  it('an audit takes no offence at the deployment of the contract, nor at coins that are sent on', async () => {
    await send({ to: DEPLOYMENT.proxy, data: DEPLOYMENT.data })
    await send({ to: `0x${'aa'.repeat(20)}`, value: 1n })
    const { code, codes, gateway } = await audit()
    expect([code, codes]).toEqual([0, []])
    expect(gateway['transactions of relayers']?.detail).toMatch(/deployment.*transfers/)
  })

  it('an audit catches a log that is anchored somewhere else than the listed ones', async () => {
    const hidden = await createTestNotary({
      chainId: chain.chainId,
      contract: `0x${'bb'.repeat(20)}`,
    })
    const built = await buildLog(hidden, { batches: [4], anchoring: { chain: null, nonce: 0 } })
    await send({ to: hidden.contract, data: anchorData(built) })
    const { code, codes, findings } = await audit()
    expect([code, codes]).toEqual([1, ['hidden_log']])
    expect(findings[0]?.message).toContain(hidden.account.notary)
  })

  it('an audit catches a transaction of the relayer whose data may be anything', async () => {
    await send({ to: `0x${'cc'.repeat(20)}`, data: `0x${'01'.repeat(100)}` })
    expect(await audit()).toMatchObject({ code: 1, codes: ['relayer_transaction'] })
  })

  it('an audit does not detect a log that an account of its own pays for', async () => {
    await build(await fundRelayer(chain))
    expect(await audit()).toMatchObject({ code: 0, codes: [] })
  })

  it('an audit knows the relayers of earlier runs, and does not ask for what they paid again', async () => {
    const state = ['--state', join(stage.folder, `${log.notary.account.notary}.state`)]
    expect(await audit([log], ...state)).toMatchObject({ code: 0, codes: [] })
    const again = await audit([log], ...state)
    expect([again.code, again.gateway['transactions of relayers']?.outcome]).toEqual([0, 'passed'])
    await build(anchoring)
    expect(await audit([log], ...state)).toMatchObject({ code: 1, codes: ['hidden_log'] })
  })

  it('an audit still finds a hidden log where the endpoint keeps no old state, and says what is unaccounted for', async () => {
    const proxy = await startChainProxy(chain.rpcUrl)
    const isOfState = (method: string) =>
      method === 'eth_getTransactionCount' || method === 'eth_getCode'
    const error = { code: -32000, message: 'missing trie node' }
    const refuse = (answer: string) =>
      JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(answer).id, error })
    proxy.behave((methods, body) =>
      methods.every(isOfState) && !body.includes('"latest"')
        ? { kind: 'alter', alter: refuse }
        : { kind: 'pass' },
    )
    const words = [...(await stage.trust(log)), '--rpc', proxy.url]
    stage.server.serve([log])
    const honest = await stage.audit(...words)
    expect([honest.code, honest.gateway['transactions of relayers']?.outcome]).toEqual([
      0,
      'not checked',
    ])
    await build(anchoring)
    expect(await stage.audit(...words)).toMatchObject({ code: 1, codes: ['hidden_log'] })
    await proxy.stop()
  })
})
