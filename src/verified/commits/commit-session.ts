import { canonicalizeJson } from '../../../attestation/json/canonical.ts'
import type { LogDomain, TreeHead } from '../../../attestation/tree-head.ts'
import type { AnchorProof, PullReply } from '../../../enclave/protocol/enclave-api.ts'
import type { RelayerNonces } from '../../chain/relayer-nonces.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import { parseCallContext } from '../call-context.ts'
import type { StoredRecord } from '../records/records-store.ts'
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
 * The database lacks leaves that the enclave has seen as acknowledged: the database was restored,
 * or a replica that was behind replaced it. The enclave has forgotten these leaves. Further commits
 * would hide this loss.
 */
export class LogDiverged extends Error {
  override readonly name = 'LogDiverged'
}

/**
 * Signs the anchor of a head with the relayer's key. Returns the raw transaction and its hash, 0x
 * hex.
 */
type SignAnchor = (
  nonce: number,
  head: TreeHead & { readonly signature: Uint8Array },
) => SignedAnchor
type SignedAnchor = { readonly raw: string; readonly hash: string }

/** The log that the committer follows, and all data for the next commit. */
export type CommitSession = {
  readonly notary: Notary
  readonly log: LogState
  /** A document that the database certainly has, so the enclave need not send it again. */
  readonly known: GivenDocument | null
  /**
   * Data for the proofs of the encrypted calls in the previous commit. The next pull sends it to
   * the enclave.
   */
  readonly proofs: readonly AnchorProof[]
}

/** The result of a commit that is durable. */
type Committed = {
  /** The session for the next commit. */
  readonly session: CommitSession
  /**
   * Index of the first leaf in the commit. The next member is the number of leaves in the commit.
   */
  readonly from: number
  readonly count: number
  /**
   * Returns the record of a leaf in this commit, as the history shows it. Null while the leaves
   * wait for their anchor.
   */
  readonly recordOf: ((index: number) => StoredRecord) | null
}

export type SessionOptions = {
  readonly turns: Pick<CommitTurns, 'encodeNotice'>
  readonly enclave: Pick<EnclaveClient, 'identity' | 'forgetIdentity'>
  readonly commits: CommitsStore
  /** Chain and contract that heads are signed for. */
  readonly domain: LogDomain
  /** Nonces of the relayer that pays for anchors. All its committers share them. */
  readonly nonces: RelayerNonces
  readonly signAnchor: SignAnchor
  /** The interval decides whether a commit includes its anchor or gets it later. */
  readonly anchors: Pick<IntervalAnchors, 'intervalMs'>
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Asks the enclave for its identity, and the database for the state of the enclave's log. Throws
 * LogDiverged, LogCorrupt, BatchRefused (this service must not follow the enclave), and the errors
 * of the enclave client and the store.
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
  // The log is read after the identity, so it includes all leaves that were acknowledged before.
  const log = await commits.openLog({
    notary: notary.address,
    publicKey: notary.publicKey,
    domain,
    bootConfiguration: canonicalizeJson(identity.boot_configuration),
    createdAt: unixSeconds(now),
  })
  if (identity.log.acknowledged > log.edge.size)
    throw new LogDiverged(
      `expected at least ${identity.log.acknowledged} leaves of log ${notary.address} in the database, got ${log.edge.size}: ` +
        'it lost committed records; restore them, or restart the enclave to begin a new log',
    )
  await nonces.refresh()
  return { notary, log, known: null, proofs: [] }
}

/**
 * Checks and stores a reply with at least one completion. Its anchor is stored with it, except when
 * anchors have intervals. Throws BatchRefused and CommitRaceLost: nothing is stored then. After any
 * other error, it is unknown whether the reply is stored.
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
    const signed = await signAnchor(nonce, head)
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
    // A gateway of this service wrote the context, but even an invalid context must never stop the
    // log.
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

const UUID_FORM = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const REQUEST_ID_FORM = /^[\x20-\x7e]{1,256}$/

function unixSeconds(now: () => number): number {
  return Math.floor(now() / 1000)
}
