import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAnchorAudit, refreshWaiting } from '#audit/anchors.ts'
import type { LogContext } from '#audit/audit-context.ts'
import { openLedger } from '#audit/findings.ts'
import type { ServedHead } from '#audit/gateway.ts'
import { openPayers } from '#audit/payers.ts'
import { openRecordedRequests } from '#audit/recorded-requests.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { openStage, type Stage } from './stage.ts'

const HOUR_S = 3600

let stage: Stage
/** Its leaves were attested two hours ago, and not since. */
let log: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  const notary = await createTestNotary(undefined, () => Date.now() - 2 * HOUR_S * 1000)
  const anchoring = { chain: null, nonce: 0 }
  log = await buildLog(notary, { batches: [2, 3], anchoring, attestedSizes: [2] })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())

/** No head has its anchor yet, and the gateway says that they were made so many seconds ago. */
const pending = (ageS: number, attestations = log.attestations): BuiltLog => ({
  ...log,
  attestations,
  heads: log.heads.map((head) => ({
    ...head,
    createdAt: Math.floor(Date.now() / 1000) - ageS,
    anchor: { ...head.anchor, state: 'pending', block_number: null, block_hash: null },
  })),
})

const audit = async (served: BuiltLog) => {
  stage.server.serve([served])
  const { code, findings, outcomes } = await stage.audit(...trust)
  return { code, found: findings.map((finding) => `${finding.code} ${finding.where}`), outcomes }
}

describe('affidavit audit, of anchors that are still to come', () => {
  it('an audit catches heads that are older', async () => {
    const { code, found } = await audit(pending(HOUR_S + 60, []))
    expect([code, found]).toEqual([1, ['anchor_overdue head 2', 'anchor_overdue head 5']])
  })

  it('an audit catches a head that the gateway makes younger than the attestation of its leaves', async () => {
    const { code, found } = await audit(pending(60))
    expect([code, found]).toEqual([1, ['anchor_overdue head 2']])
  })
})

const hashOf = (digits: string) => `0x${digits.repeat(32)}`
const FIRST = hashOf('11')
const SECOND = hashOf('22')
const NEWEST_BLOCK = 100

type Anchor = ServedHead['anchor']
type Served = Partial<Anchor> & { readonly state: Anchor['state'] }

function headOf(anchor: Served, ageS = 60): ServedHead {
  const blockNumber = anchor.state === 'pending' ? null : NEWEST_BLOCK
  const blockHash = blockNumber === null ? null : hashOf('44')
  return {
    size: 5,
    root: new Uint8Array(32),
    signature: new Uint8Array(65),
    createdAt: Math.floor(Date.now() / 1000) - ageS,
    anchor: { txHash: FIRST, replaces: [], blockNumber, blockHash, ...anchor },
  }
}

const NOTARY = `0x${'aa'.repeat(20)}`

/** The endpoint, if there is one, has the block NEWEST_BLOCK and none of the transactions. */
function contextOf({ withChain = false, served = null as ServedHead | null } = {}) {
  const chain = {
    fetchNewestBlock: async () => NEWEST_BLOCK,
    fetchAnchors: async (hashes: readonly string[]) => hashes.map(() => null),
  }
  const ledger = openLedger(NOTARY)
  const context = {
    log: { notary: NOTARY, domain: { chainId: 1, contract: `0x${'bb'.repeat(20)}` } },
    ledger,
    chain: withChain ? chain : null,
    payers: openPayers(),
    requests: openRecordedRequests(),
    gateway: { fetchHead: async () => served },
    nowMs: Date.now(),
  } as unknown as LogContext
  const outcomeOf = async (heads: readonly ServedHead[]) => {
    const anchors = createAnchorAudit(context)
    await anchors.check(heads)
    const codes = ledger.findings().map(({ code }) => code)
    return codes[0] ?? (anchors.waiting().length > 0 ? 'waits' : 'nothing')
  }
  return { context, outcomeOf }
}

describe('createAnchorAudit, of anchors without a receipt', () => {
  it.each<[Served, young: string, old: string]>([
    [{ state: 'pending' }, 'waits', 'anchor_overdue'],
    [{ state: 'mined' }, 'waits', 'anchor_overdue'],
    [{ state: 'confirmed', blockNumber: NEWEST_BLOCK + 1 }, 'waits', 'anchor_overdue'],
    [{ state: 'confirmed', blockNumber: null }, 'anchor_missing', 'anchor_missing'],
    [{ state: 'reverted' }, 'anchor_missing', 'anchor_missing'],
  ])(
    'an audit with a chain waits up to an hour for an anchor that the endpoint can lack: %o',
    async (anchor, young, old) => {
      const outcomeOf = (ageS: number) =>
        contextOf({ withChain: true }).outcomeOf([headOf(anchor, ageS)])
      expect([await outcomeOf(60), await outcomeOf(2 * HOUR_S)]).toEqual([young, old])
    },
  )

  it.each<[Served, string]>([
    [{ state: 'pending' }, 'anchor_overdue'],
    [{ state: 'mined' }, 'nothing'],
    [{ state: 'confirmed' }, 'nothing'],
    [{ state: 'reverted' }, 'anchor_reverted'],
  ])(
    'an audit without a chain reports what the gateway says of an old head: %o',
    async (anchor, outcome) => {
      expect(await contextOf().outcomeOf([headOf(anchor, 2 * HOUR_S)])).toBe(outcome)
    },
  )
})

describe('refreshWaiting', () => {
  const replacing = { txHash: SECOND, replaces: [FIRST] }
  const pendingFirst = headOf({ state: 'pending' }, 2 * HOUR_S)
  const pendingSecond = headOf({ state: 'pending', ...replacing }, 2 * HOUR_S)
  const mined = headOf({ state: 'mined' })

  it.each<[string, ServedHead, ServedHead]>([
    ['a replacement, mined', pendingFirst, headOf({ state: 'mined', ...replacing })],
    ['the replaced transaction, mined after a reorganisation', pendingSecond, mined],
  ])('an audit accepts the present anchor of a waiting head: %s', async (_, known, served) => {
    const { context, outcomeOf } = contextOf({ served })
    expect(await outcomeOf(await refreshWaiting([known], context))).toBe('nothing')
  })

  it.each<[string, ServedHead | null]>([
    ['no head', null],
    ['another signature', { ...mined, signature: new Uint8Array(65).fill(1) }],
    ['an unrelated transaction', headOf({ state: 'mined', txHash: SECOND })],
  ])('an audit keeps the waiting head when the gateway serves %s', async (_, served) => {
    const { context, outcomeOf } = contextOf({ served })
    expect(await outcomeOf(await refreshWaiting([pendingFirst], context))).toBe('anchor_overdue')
  })
})

describe('affidavit audit --state, without a chain', () => {
  it('an audit that goes on two hours later finds nothing when the anchors are confirmed', async () => {
    const state = join(stage.folder, 'anchors-state.json')
    const words = [...trust, '--state', state]
    stage.server.serve([pending(60, [])])
    expect((await stage.audit(...words)).code).toBe(0)
    const text = await readFile(state, 'utf8')
    const old = text.replace(/"createdAt":(\d+)/g, (_, at) => `"createdAt":${at - 2 * HOUR_S}`)
    await writeFile(state, old)
    stage.server.serve([log])
    const { code, codes } = await stage.audit(...words)
    expect([old === text, code, codes]).toEqual([false, 0, []])
  })
})
