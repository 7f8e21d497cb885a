import { encodeHex } from '#attestation/bytes.ts'
import { appendLeaves, type Edge, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { type LogDomain, type TreeHead, treeHeadDigest } from '#attestation/tree-head.ts'
import type { KeptDocument } from '../attestation-keeper.ts'
import { CallFault } from '../call-fault.ts'
import type { NotaryAccount } from '../notary-key.ts'
import {
  COMPLETION_BYTES_MAX,
  type PullReply,
  type PullRequest,
  type SealedCompletion,
} from '../protocol/enclave-api.ts'
import type { Space } from './memory-budget.ts'
import { weighString } from './weigh-json.ts'

/**
 * Limit for the completions in a pull reply, bytes of memory. A larger completion is sent alone.
 */
export const PULL_BYTES_MAX = 8 * 1024 * 1024

type NewEntry = {
  readonly completion: Omit<SealedCompletion, 'document'>
  /** hashLeaf of the receipt's text. */
  readonly leafHash: Uint8Array
  readonly document: KeptDocument
}

/**
 * The notary's log: an append-only Merkle tree. The enclave keeps the tree's edge at the
 * acknowledged size, and all completions after that size. Each pull returns the kept completions
 * from an index on, and acknowledges all earlier ones. Thus no completion is lost when the gateway
 * dies. The log ends with the process: a new enclave has a new account and a new log.
 */
export class NotaryLog {
  private readonly account: NotaryAccount
  private readonly domain: LogDomain
  private readonly space: Space
  private edge: Edge = emptyEdge
  /** Edge over all leaves, so that a head can be computed without hashing all pending leaves. */
  private tip: Edge = emptyEdge
  private pending: PendingEntry[] = []
  /** Number of leaves that the gateway received at least once. */
  private givenSize = 0
  private waiting = new Set<() => void>()

  constructor(options: {
    readonly account: NotaryAccount
    readonly domain: LogDomain
    readonly space: Space
  }) {
    this.account = options.account
    this.domain = options.domain
    this.space = options.space
  }

  /** Number of leaves so far, which is the next leaf's index. */
  get size(): number {
    return this.tip.size
  }

  /** Number of leaves that the gateway has acknowledged. */
  get acknowledged(): number {
    return this.edge.size
  }

  /** Returns the head over all leaves, acknowledged or not. */
  head(): TreeHead {
    return { size: this.tip.size, root: rootOf(this.tip) }
  }

  /**
   * Appends a completion whose index is `size`. Throws CallFault `answer_too_large` if a gateway
   * could not read the completion: its pulls would fail without end, and the log would be stuck.
   */
  append({ completion, leafHash, document }: NewEntry): void {
    if (completion.index !== this.size)
      throw new Error(`expected index ${this.size} for the next leaf, got ${completion.index}`)
    const texts = textsOf(completion)
    const bytes = sum(texts, weighString)
    // JSON takes at most two bytes for a byte of canonical JSON, so few completions are counted.
    if (2 * bytes > COMPLETION_BYTES_MAX && sum(texts, countJsonBytes) > COMPLETION_BYTES_MAX)
      throw new CallFault(
        'answer_too_large',
        'The request and its answer are too large together for a record: ask for less.',
      )
    this.tip = appendLeaves(this.tip, [leafHash]).edge
    this.pending.push({
      completion: { ...completion, document: document.digest },
      leafHash,
      document,
      bytes,
    })
    this.space.add(bytes)
    this.wake()
  }

  /**
   * Drops all completions below `from`, because the gateway has stored them. Throws CallFault
   * `log_conflict` if `from` is below the acknowledged size, or above the number of completions
   * that the gateway received.
   */
  acknowledge(from: number): void {
    if (from < this.acknowledged)
      throw new CallFault(
        'log_conflict',
        `Index ${from} was acknowledged; the log goes on at ${this.acknowledged}.`,
      )
    if (from > this.givenSize)
      throw new CallFault(
        'log_conflict',
        `Index ${from} was not handed over yet; only ${this.givenSize} were.`,
      )
    const forgotten = this.pending.splice(0, from - this.acknowledged)
    this.edge = appendLeaves(
      this.edge,
      forgotten.map(({ leafHash }) => leafHash),
    ).edge
    for (const { bytes } of forgotten) this.space.remove(bytes)
  }

  /**
   * Acknowledges all completions below `from`. Returns completions from `from` on, with a signed
   * head that covers them. Throws the CallFault of acknowledge.
   */
  pull({ from, max, known_document: known }: Omit<PullRequest, 'wait_ms'>): PullReply {
    this.acknowledge(from)
    const given = this.pending.slice(0, this.countFitting(max))
    const [first] = given
    this.givenSize = Math.max(this.givenSize, from + given.length)
    return {
      notary: this.account.notary,
      public_key: `0x${encodeHex(this.account.publicKey)}`,
      head: first ? this.signHead(given) : null,
      completions: given.map(({ completion }) => completion),
      documents: Object.fromEntries(
        given.flatMap(({ document }) =>
          document.digest === known ? [] : [[document.digest, document.base64]],
        ),
      ),
    }
  }

  /** Ends all waits before their time is over. */
  wake(): void {
    for (const finish of this.waiting) finish()
  }

  /** Resolves when the leaf `from` exists, after `waitMs`, or when `signal` is aborted. */
  waitFor(from: number, waitMs: number, signal: AbortSignal): Promise<void> {
    if (this.size > from || waitMs === 0 || signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer)
        this.waiting.delete(finish)
        signal.removeEventListener('abort', finish)
        resolve()
      }
      const timer = setTimeout(finish, waitMs)
      this.waiting.add(finish)
      signal.addEventListener('abort', finish)
    })
  }

  private countFitting(max: number): number {
    let bytes = 0
    const end = this.pending.findIndex((entry, position) => {
      bytes += entry.bytes
      return position >= max || (position > 0 && bytes > PULL_BYTES_MAX)
    })
    return end < 0 ? this.pending.length : end
  }

  private signHead(given: readonly PendingEntry[]): PullReply['head'] {
    const { edge } = appendLeaves(
      this.edge,
      given.map(({ leafHash }) => leafHash),
    )
    const head = { size: edge.size, root: rootOf(edge) }
    const signature = this.account.sign(treeHeadDigest(this.domain, head))
    return { size: head.size, root: encodeHex(head.root), signature: `0x${encodeHex(signature)}` }
  }
}

type PendingEntry = {
  readonly completion: SealedCompletion
  readonly leafHash: Uint8Array
  readonly document: KeptDocument
  readonly bytes: number
}

function textsOf({ request, response, receipt, context }: NewEntry['completion']) {
  return [request ?? '', response ?? '', receipt, context]
}

function sum(texts: readonly string[], measure: (text: string) => number): number {
  return texts.reduce((total, text) => total + measure(text), 0)
}

/** Counts the bytes of a canonical JSON text as a JSON string, without its quotation marks. */
function countJsonBytes(text: string): number {
  let bytes = Buffer.byteLength(text)
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (code === 0x22 || code === 0x5c) bytes++
  }
  return bytes
}
