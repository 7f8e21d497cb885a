import { createHash, randomBytes } from 'node:crypto'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { appendLeaves, type Edge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import type { MinedAnchor } from '#src/chain/anchors-store.ts'
import type {
  Commit,
  CommitsStore,
  LogState,
  NewRecord,
} from '#src/verified/commits/commits-store.ts'

export const CREATED_AT = 1_790_000_000

/** What a log is opened with beside its notary. */
export const OPENING = {
  domain: { chainId: 31_337, contract: `0x${'c0'.repeat(20)}` },
  bootConfiguration: '{}',
  createdAt: CREATED_AT,
} as const

/** A log and a relayer of their own, as a test finds them in a database it shares. */
export type TestLog = {
  readonly notary: string
  readonly publicKey: string
  readonly relayer: string
}

export function makeLog(): TestLog {
  return { notary: randomAddress(), publicKey: randomHex(65), relayer: randomAddress() }
}

/** Opens the log and the relayer, whose first nonce is 0. */
export async function openLog(
  commits: CommitsStore,
  { notary, publicKey, relayer }: TestLog,
): Promise<LogState> {
  await commits.raiseNonce(relayer, 0)
  return commits.openLog({ notary, publicKey, ...OPENING })
}

export type CommitParts = {
  readonly log: TestLog
  readonly state: LogState
  readonly nonce: number
  /** One record each, with these members instead of made-up ones. */
  readonly records: readonly Partial<NewRecord>[]
  readonly document?: Uint8Array
}

/** A commit with its own anchor. */
export type AnchoredCommit = Commit & { readonly anchor: NonNullable<Commit['anchor']> }

/**
 * A commit that fits the state: true leaves, nodes and root; signatures and transactions are only
 * as long as true ones.
 */
export function buildCommit({
  log,
  state,
  nonce,
  records,
  document = randomBytes(64),
}: CommitParts): AnchoredCommit {
  const from = state.edge.size
  const digest = digestOf(document)
  const built = records.map(
    (record, offset): NewRecord => ({ ...makeRecord(from + offset, digest), ...record }),
  )
  const { edge, nodes } = appendLeaves(
    state.edge,
    built.map((record) => hashLeaf(encodeUtf8(record.receipt))),
  )
  return {
    logId: state.logId,
    before: state.edge,
    head: { size: edge.size, root: rootOf(edge), signature: randomBytes(65) },
    nodes,
    anchor: { relayer: log.relayer, nonce, raw: randomHex(200), hash: randomHex(32), notice: null },
    documents: new Map([[digest, document]]),
    records: built,
    committedAt: CREATED_AT,
  }
}

/** The state after a commit, as the next one builds on it. */
export function stateAfter(state: LogState, commit: Commit): LogState {
  const leaves = commit.records.map((record) => hashLeaf(encodeUtf8(record.receipt)))
  const edge: Edge = appendLeaves(state.edge, leaves).edge
  return { logId: state.logId, edge }
}

/**
 * Stores commits one after the other, each of so many records, and gives the last state and all
 * commits.
 */
export async function storeCommits(
  commits: CommitsStore,
  log: TestLog,
  batches: readonly (readonly Partial<NewRecord>[])[],
): Promise<{ readonly state: LogState; readonly stored: readonly AnchoredCommit[] }> {
  let state = await openLog(commits, log)
  const stored: AnchoredCommit[] = []
  for (const records of batches) {
    const nonce = (await commits.nextNonce(log.relayer)) ?? 0
    const commit = buildCommit({ log, state, nonce, records })
    await commits.commit(commit)
    state = stateAfter(state, commit)
    stored.push(commit)
  }
  return { state, stored }
}

/** What the chain reports about an anchor in a block. */
export function minedAt(
  nonce: number,
  blockNumber: number,
  blockHash = `0x${'bb'.repeat(32)}`,
): MinedAnchor {
  return { nonce, blockNumber, blockHash, succeeded: true, gasUsed: 1 }
}

export function randomHex(length: number): string {
  return `0x${randomBytes(length).toString('hex')}`
}

export function randomAddress(): string {
  return randomHex(20)
}

function makeRecord(index: number, document: string): NewRecord {
  const hash = randomBytes(32).toString('hex')
  return {
    id: crypto.randomUUID(),
    index,
    hash,
    request: '{"messages":[],"model":"demo/test"}',
    response: '{"choices":[]}',
    receipt: `{"hash":"${hash}","index":${index}}`,
    signature: randomHex(65),
    document,
    accountId: null,
    requestId: `request-${index}`,
    createdAt: CREATED_AT + index,
    outcome: 'complete',
    usage: null,
  }
}

function digestOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
