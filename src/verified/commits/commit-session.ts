import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { AnchorProof, PullReply } from '#enclave/protocol/enclave-api.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { RelayerNonces } from '../../chain/relayer-nonces.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import { parseCallContext } from '../call-context.ts'
import { type StoredRecord, UUID_FORM } from '../records/records-store.ts'
import {
  type CheckedCompletion,
  checkBatch,
  checkIdentity,
  type GivenDocument,
  type Notary,
} from './check-batch.ts'
import type { CommitTurns } from './commit-turns.ts'
import type { CommitsStore, LogState, NewRecord } from './commits-store.ts'
import { type CommittedHead, proofOf, recordsUnder } from './committed-heads.ts'
import type { IntervalAnchors } from './interval-anchors.ts'

/**
 * The database lost acknowledged leaves, after a restore or a switch to a replica that was behind.
 * The enclave no longer has these leaves, and further commits would hide the loss.
 */
export class LogDiverged extends Error {
  override readonly name = 'LogDiverged'
}

/** An enclave's log, and what the next commit to the log needs. */
export type CommitSession = {
  readonly notary: Notary
  readonly log: LogState
  /** The database has this document, so the enclave need not send it again. */
  readonly known: GivenDocument | null
  /** Proofs for encrypted calls in the previous commit. The next pull sends them to the enclave. */
  readonly proofs: readonly AnchorProof[]
}

type Committed = {
  readonly session: CommitSession
  /** The commit has `count` leaves from this index on. */
  readonly from: number
  readonly count: number
  /** Null while the leaves wait for their anchor. */
  readonly recordOf: ((index: number) => StoredRecord) | null
}

export type SessionOptions = {
  readonly turns: Pick<CommitTurns, 'encodeNotice'>
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity'>
  readonly commits: CommitsStore
  /** Heads are signed for this chain and contract. */
  readonly domain: LogDomain
  /** All committers of the relayer share these nonces. */
  readonly nonces: RelayerNonces
  readonly signAnchor: Anchoring['sign']
  /** If `intervalMs` is 0, a commit includes its anchor. Otherwise the anchor is stored later. */
  readonly anchors: Pick<IntervalAnchors, 'intervalMs'>
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Reads the enclave's identity and the stored state of its log. Throws LogDiverged, LogCorrupt,
 * BatchRefused (the enclave has a wrong identity), and the errors of the enclave client and the
 * store.
 */
export async function openCommitSession({
  enclave,
  commits,
  domain,
  nonces,
  now,
}: SessionOptions): Promise<CommitSession> {
  enclave.forgetIdentity()
  const identity = await enclave.identity()
  const notary = checkIdentity(identity, domain)
  // The log is read after the identity, so that the log has all leaves that the identity shows as
  // acknowledged.
  const log = await commits.openLog({
    notary: notary.address,
    publicKey: notary.publicKey,
    domain,
    bootConfiguration: canonicalizeJson(identity.boot_configuration),
    createdAt: unixSeconds(now),
  })
  if (identity.log.acknowledged > log.edge.size)
    throw new LogDiverged(
      `expected at least ${identity.log.acknowledged} leaves of log ${notary.address} in the ` +
        `database, got ${log.edge.size}: ` +
        'it lost committed records; restore them, or restart the enclave to begin a new log',
    )
  await nonces.refresh()
  return { notary, log, known: null, proofs: [] }
}

/**
 * Checks and stores a reply with at least one completion. Also stores the anchor, unless anchors
 * have intervals. After BatchRefused or CommitRaceLost, nothing is stored. After any other error,
 * it is unknown whether the reply is stored.
 */
export async function commitReply(
  session: CommitSession,
  reply: PullReply,
  { commits, nonces, turns, signAnchor, anchors, now }: SessionOptions,
): Promise<Committed> {
  const { notary, log } = session
  const batch = checkBatch(reply, { notary, edge: log.edge, known: session.known })
  const { completions, documents, head, edge, nodes } = batch
  const records = completions.map(toNewRecord)
  const known = completions.at(-1)?.document ?? session.known
  const commit = {
    logId: log.logId,
    before: log.edge,
    head,
    nodes,
    documents,
    records,
    committedAt: unixSeconds(now),
  }
  const next = { notary, log: { logId: log.logId, edge }, known, proofs: [] }
  const committed = { session: next, from: log.edge.size, count: records.length }
  if (anchors.intervalMs > 0) {
    await commits.commit({ ...commit, anchor: null })
    return { ...committed, recordOf: null }
  }
  const anchored = await nonces.use(async (nonce): Promise<CommittedHead> => {
    const signed = signAnchor(nonce, head)
    const committedHead = { before: log.edge, nodes, head, txHash: signed.hash }
    const { relayer } = nonces
    const notice = turns.encodeNotice({
      notary: notary.address,
      size: head.size,
      head: committedHead,
      relayer,
      nextNonce: nonce + 1,
    })
    await commits.commit({ ...commit, anchor: { relayer, nonce, ...signed, notice } })
    return committedHead
  })
  const recordUnder = recordsUnder(anchored, notary)
  const recordOf = (index: number) => {
    const fresh = records[index - log.edge.size]
    const completion = completions[index - log.edge.size]
    if (fresh === undefined || completion === undefined)
      throw new RangeError(`expected a leaf of this commit, got ${index}`)
    const { document: _, callId: __, ...stored } = fresh
    return recordUnder({ ...stored, attestation: completion.document.base64 })
  }
  const proofs = completions.flatMap(({ sealed: { call, index } }) =>
    call === undefined ? [] : [proofOf(call, recordOf(index))],
  )
  return { ...committed, session: { ...next, proofs }, recordOf }
}

function toNewRecord({ sealed, receipt, document }: CheckedCompletion): NewRecord {
  const context = parseCallContext(sealed.context)
  return {
    id: crypto.randomUUID(),
    index: sealed.index,
    hash: receipt.hash,
    request: sealed.request,
    response: sealed.response,
    usage: sealed.usage ?? null,
    receipt: sealed.receipt,
    signature: sealed.signature,
    document: document.digest,
    // An invalid context becomes null, because it must never stop the log.
    accountId:
      context !== null && UUID_FORM.test(context.accountId)
        ? context.accountId.toLowerCase()
        : null,
    requestId:
      context !== null && REQUEST_ID_FORM.test(context.requestId) ? context.requestId : null,
    callId: UUID_FORM.test(context?.callId ?? '') ? (context?.callId ?? null) : null,
    createdAt: Math.floor(receipt.finished_at / 1000),
    outcome: receipt.outcome,
  }
}

const REQUEST_ID_FORM = /^[\x20-\x7e]{1,256}$/

function unixSeconds(now: () => number): number {
  return Math.floor(now() / 1000)
}
