import { createHash, randomBytes } from 'node:crypto'
import { RelayerNonces } from '#src/chain/relayer-nonces.ts'
import type { Logger } from '#src/observability/logger.ts'
import type { Database } from '#src/storage/database.ts'
import { ALWAYS_OURS, type CommitTurns } from '#src/verified/commits/commit-turns.ts'
import {
  type Commit,
  type CommitsStore,
  createCommitsStore,
} from '#src/verified/commits/commits-store.ts'
import {
  type Committer,
  type CommitterOptions,
  createCommitter,
} from '#src/verified/commits/committer.ts'
import {
  createIntervalAnchors,
  type IntervalAnchors,
} from '#src/verified/commits/interval-anchors.ts'
import { createUnanchoredStore } from '#src/verified/commits/unanchored-store.ts'
import {
  createRecordsStore,
  type RecordsStore,
  type StoredRecord,
} from '#src/verified/records/records-store.ts'
import { type ScriptedLog, TEST_DOMAIN } from '../../../support/scripted-log.ts'

/** A committer over a database, with everything it did and said at hand. */
export type RunningCommitter = {
  readonly committer: Omit<Committer, 'waitFor'> & {
    /** Gives the whole record: without `given`, the committer reads it. */
    waitFor(...leaf: Parameters<Committer['waitFor']>): Promise<StoredRecord>
  }
  readonly anchors: IntervalAnchors
  readonly records: RecordsStore
  readonly relayer: string
  /** Called around each commit of the store; may throw or wait. */
  readonly script: {
    beforeCommit: (commit: Commit) => void | Promise<void>
    afterCommit: (commit: Commit) => void | Promise<void>
    /** Called around each anchor of an interval. */
    beforeAnchor: (head: { readonly size: number }) => void | Promise<void>
    afterAnchor: (head: { readonly size: number }) => void | Promise<void>
    /** While it is set, the database cannot be reached. */
    isDatabaseDown: boolean
  }
  /** Hashes of the anchors that were signed, in order. */
  readonly signed: { readonly nonce: number; readonly hash: string }[]
  /** Error and warning lines. */
  readonly complaints: { readonly message: string; readonly error: string }[]
}

export function randomRelayer(): string {
  return `0x${randomBytes(20).toString('hex')}`
}

/** Signs no transaction, but names what it was asked to sign: other values give another hash. */
export function signFake(nonce: number, head: Parameters<CommitterOptions['signAnchor']>[1]) {
  const raw = Buffer.concat([Buffer.from(`${nonce}/${head.size}/`), head.root, head.signature])
  return {
    raw: `0x${raw.toString('hex')}`,
    hash: `0x${createHash('sha256').update(raw).digest('hex')}`,
  }
}

/** Starts a committer of this log; its stores are the real ones. */
export function runCommitter(
  database: Database,
  log: Pick<ScriptedLog, 'enclave'>,
  options: {
    readonly relayer?: string
    readonly countTransactions?: () => Promise<number>
    /** Where to note what is signed, for more than one committer. */
    readonly signed?: RunningCommitter['signed']
    /** Default: this one commits. */
    readonly turns?: CommitTurns
    /** Default: 0, each commit has its own anchor. */
    readonly anchorIntervalMs?: number
    /** How heads without an anchor are looked for. */
    readonly looks?: { readonly lookIntervalMs: number; readonly lateSeconds: number }
  } = {},
): RunningCommitter {
  const store = createCommitsStore(database)
  const relayer = options.relayer ?? randomRelayer()
  const script: RunningCommitter['script'] = {
    beforeCommit: () => {},
    afterCommit: () => {},
    beforeAnchor: () => {},
    afterAnchor: () => {},
    isDatabaseDown: false,
  }
  const reach = async <Value>(run: () => Promise<Value>): Promise<Value> => {
    if (script.isDatabaseDown) throw new Error('connect ECONNREFUSED')
    return run()
  }
  const commits: CommitsStore = {
    openLog: (opened) => reach(() => store.openLog(opened)),
    nextNonce: (address) => reach(() => store.nextNonce(address)),
    raiseNonce: (address, nonce) => reach(() => store.raiseNonce(address, nonce)),
    sizeOf: (notary) => reach(() => store.sizeOf(notary)),
    commit: (commit) =>
      reach(async () => {
        await script.beforeCommit(commit)
        await store.commit(commit)
        await script.afterCommit(commit)
      }),
  }
  const { signed = [] } = options
  const complaints: RunningCommitter['complaints'] = []
  const complain: Logger['error'] = ({ err }, message) => {
    complaints.push({
      message,
      error: err instanceof Error ? `${err.name}: ${err.message}` : String(err),
    })
  }
  const records = createRecordsStore(database, TEST_DOMAIN.chainId)
  const logger: Logger = { debug: () => {}, info: () => {}, warn: complain, error: complain }
  const nonces = new RelayerNonces({
    commits,
    relayer: {
      address: relayer,
      countTransactions: options.countTransactions ?? (async () => 0),
    },
  })
  const signAnchor: CommitterOptions['signAnchor'] = (nonce, head) => {
    const anchor = signFake(nonce, head)
    signed.push({ nonce, hash: anchor.hash })
    return anchor
  }
  const { turns = ALWAYS_OURS, anchorIntervalMs: intervalMs = 0 } = options
  const unanchored = createUnanchoredStore(database)
  const anchors = createIntervalAnchors({
    nonces,
    turns,
    intervalMs,
    log: logger,
    now: Date.now,
    chainId: TEST_DOMAIN.chainId,
    sign: signAnchor,
    ...options.looks,
    store: {
      find: (chainId, notary) => reach(() => unanchored.find(chainId, notary)),
      listOlder: (chainId, seconds) => reach(() => unanchored.listOlder(chainId, seconds)),
      anchor: (head, anchor) =>
        reach(async () => {
          await script.beforeAnchor(head)
          await unanchored.anchor(head, anchor)
          await script.afterAnchor(head)
        }),
    },
    onAnchored: (anchored) => committer.publish(anchored),
  })
  anchors.start()
  const committer = createCommitter({
    enclave: log.enclave,
    commits,
    records,
    turns,
    anchors,
    domain: TEST_DOMAIN,
    nonces,
    signAnchor,
    log: logger,
    now: Date.now,
  })
  committer.start()
  const running: RunningCommitter['committer'] = {
    start: () => committer.start(),
    waitFor: (...leaf) => committer.waitFor(...leaf) as Promise<StoredRecord>,
    isStandby: (notary) => committer.isStandby(notary),
    publish: (anchored) => committer.publish(anchored),
    status: () => committer.status(),
    stop: async () => {
      await committer.stop()
      await anchors.stop()
    },
  }
  return { committer: running, anchors, records, relayer, script, signed, complaints }
}

/** Where each commit has its own anchor, and none waits for another one. */
export const ANCHORED_AT_ONCE: IntervalAnchors = {
  intervalMs: 0,
  schedule: () => {},
  flush: async () => {},
  settle: async () => {},
  fault: () => null,
  start: () => {},
  stop: async () => {},
}
