import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { type RelayerStage, startRelayerStage } from '../support/relayer-stage.ts'
import { until } from '../support/until.ts'

let stage: RelayerStage

beforeAll(async () => {
  stage = await startRelayerStage()
}, 120_000)
afterAll(() => stage.dispose())

type Gateway = Awaited<ReturnType<RelayerStage['start']>>

/**
 * A backup of the database from last night, and a chain that went on: three anchors more than the
 * database knows.
 */
async function restoreLastNight() {
  const relayerKey = await stage.fundRelayer()
  const databaseUrl = await stage.createDatabase()
  const first = await stage.start({ databaseUrl, relayerKey })
  const kept = [await first.complete(), await first.complete()]
  for (const { txHash } of kept) await stage.untilMined(txHash)
  await until('it is settled', () => first.followers.status().phase === 'idle')
  await first.stop()
  const restored = await stage.copyDatabase(databaseUrl)
  const second = await stage.start({ databaseUrl, relayerKey, log: first.log })
  const lost = [await second.complete(), await second.complete(), await second.complete()]
  for (const { txHash } of lost) await stage.untilMined(txHash)
  await second.stop()
  return { restored, relayerKey, log: first.log }
}

const AWAY = { kind: 'answer', status: 503, body: '' } as const

describe('a database that was restored from last night, with a chain that went on', () => {
  it('a restored database is seen at the start, and what is answered from then on is mined', async () => {
    const { restored, relayerKey } = await restoreLastNight()
    const gateway = await stage.start({ databaseUrl: restored, relayerKey })
    const record = await gateway.complete()
    await stage.untilMined(record.txHash)
    expect(gateway.logLines).toContainEqual(
      expect.objectContaining({
        level: 'error',
        members: expect.objectContaining({ stored: 2, next: 5 }),
      }),
    )
    expect((await gateway.read(record.hash)).reanchored).toEqual([])
  }, 120_000)
})

/**
 * Anchors whose nonces were used by other transactions: they were signed on a count that was
 * behind, as after a failover.
 */
async function signTaken(): Promise<{
  readonly gateway: Gateway
  readonly hashes: readonly string[]
}> {
  const { restored, relayerKey } = await restoreLastNight()
  const gateway = await stage.start({
    databaseUrl: restored,
    relayerKey,
    isSilent: true,
    countTransactions: async () => 0,
  })
  const records = [await gateway.complete(), await gateway.complete()]
  await gateway.stop()
  const next = await stage.start({ databaseUrl: restored, relayerKey, log: gateway.log })
  return { gateway: next, hashes: records.map(({ hash }) => hash) }
}

describe('an anchor whose nonce another transaction took', () => {
  it('an anchor whose nonce was taken is made again: the record keeps its tx_hash, its evidence has the mined one', async () => {
    const { gateway, hashes } = await signTaken()
    for (const hash of hashes) {
      await until(
        'it is anchored again',
        async () => (await gateway.read(hash)).reanchored.length > 0,
        30_000,
      )
      const { txHash, reanchored, notary } = await gateway.read(hash)
      const [again = ''] = reanchored
      expect(reanchored).toHaveLength(1)
      await stage.untilMined(again)
      expect(await stage.isMined(txHash)).toBe(false)
      await until('the store knows', async () => (await gateway.bundle(hash)).block !== null)
      const bundle = await gateway.bundle(hash)
      expect(bundle).toMatchObject({ record: { tx_hash: txHash, reanchored: [again] } })
      const { checks } = await verifyBundle(bundle as Json, {})
      const outcomes = new Map(
        checks.map(({ name, outcome, detail }) => [name, { outcome, detail }]),
      )
      for (const name of [
        'transaction hash',
        'anchor',
        'transaction in block',
        'anchor outcome',
      ] as const)
        expect([name, outcomes.get(name)?.outcome]).toEqual([name, 'passed'])
      expect(outcomes.get('transaction hash')?.detail).toContain(
        `in the place of tx_hash ${txHash}`,
      )
      const logId = (await gateway.logs.find(notary))?.logId ?? 0
      const heads = await gateway.logs.listHeads({ logId, afterSize: null, limit: 10 })
      expect(heads.map(({ size }) => size)).toEqual([1, 2])
      expect(heads.map(({ anchor }) => anchor)).toContainEqual(
        expect.objectContaining({ txHash: again, replaces: [txHash] }),
      )
    }
    expect(gateway.followers.status()).toMatchObject({ takenCount: 2 })
    await until('nothing waits', () => gateway.followers.status().pendingCount === 0)
    // The next anchor gets a free nonce.
    await stage.untilMined((await gateway.complete()).txHash)
  }, 120_000)
})

describe('a gateway that was retired with its relayer', () => {
  it('a retired gateway leaves its anchors to one of the others, and to another one when that ends', async () => {
    const databaseUrl = await stage.createDatabase()
    const retired = await stage.start({
      databaseUrl,
      relayerKey: await stage.fundRelayer(),
      isSilent: true,
    })
    const { txHash } = await retired.complete()
    await retired.stop()
    const startOther = async () =>
      stage.start({
        databaseUrl,
        relayerKey: await stage.fundRelayer(),
        prepareProxy: (proxy) =>
          proxy.behave((methods) =>
            methods.includes('eth_sendRawTransaction') ? AWAY : { kind: 'pass' },
          ),
      })
    const others = [await startOther(), await startOther()]
    const follows = ({ logLines }: Gateway) =>
      logLines.some(
        ({ message, members }) =>
          message.includes('it is followed') && members.relayer === retired.relayer,
      )
    await until('one follows it', () => others.some(follows))
    const [one, other] = others.toSorted((a, b) => Number(follows(b)) - Number(follows(a)))
    if (one === undefined || other === undefined) throw new Error('expected two gateways')
    await until('both count it', () =>
      others.every(({ followers }) => followers.status().pendingCount === 1),
    )
    expect(follows(other)).toBe(false)
    await one.stop()
    other.proxy.behave(() => ({ kind: 'pass' }))
    await stage.untilMined(txHash)
    expect(follows(other)).toBe(true)
  }, 60_000)
})
