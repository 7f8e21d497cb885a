import type { JsonObject } from '../../attestation/json/value.ts'
import type { ChunkBatch } from './chunk-queue.ts'

/** One chat call for whichever node is best. */
export type NodeCall = {
  readonly model: string
  /** The chat completion request as the node shall get it; the node itself always streams with usage. */
  readonly request: JsonObject
  /** Who calls, for the record of what was served; null for nobody in particular. */
  readonly accountId: string | null
  /** Aborted when the caller leaves, in any phase: queued, before the first token, in mid-stream. */
  readonly signal: AbortSignal
  /**
   * Opens what reads one node's answer, anew for each node that is tried. Without it chunks are given as the node sent them.
   */
  readonly openReader?: () => AnswerReader
}

/**
 * Judges the chunks of one answer as they come, so that a node that answers nonsense is held to have failed, and is
 * replaced before its first token. Both methods throw FormatError for what is no answer.
 */
export type AnswerReader = {
  /** The chunks to give in place of the node's. */
  push(chunk: JsonObject): readonly JsonObject[]
  /** The node says that it is done. */
  finish(): void
}

/** What a node streams for one call. */
export type NodeAnswer = {
  readonly nodeId: string
  /**
   * Chunks in order, at each step those that came together, as the call's reader gives them: the node's are objects of bounded
   * depth, `choices` an array of objects with an integer `index` and an object `delta`. The usage-only chunk is among them when
   * the node sent one; its `usage` is the node's claim, cut to what its answer can have held (README), and null when it was no
   * usage at all. Ends when the run is done. Throws DispatchError when the node breaks off, or the signal's reason. To be
   * iterated once; leaving the iteration cancels the call, and so does the signal.
   */
  readonly batches: AsyncIterable<ChunkBatch>
}

/** Why no node answered, or one stopped to. */
export type DispatchCode =
  /** No node that is or ever was connected offers the model. */
  | 'unsupported_model'
  /** Nodes of the model are known, but none was free within the wait. */
  | 'no_nodes'
  /** The request is larger than the frames that nodes take. */
  | 'request_too_large'
  /** The node's backend refuses the request (`status` is the backend's): the caller's fault. With images it may be the node's. */
  | 'node_refused'
  /**
   * The node or its backend failed, or what it sent was no answer. With a `status` the node said so
   * itself.
   */
  | 'node_failed'
  /** The node's backend is at its limit, and may have said for how long (`retryAfterSeconds`). */
  | 'node_busy'
  | 'first_token_timeout'
  | 'token_timeout'
  /** The node's connection ended. */
  | 'node_lost'
  /** The caller read so slowly that more than may be kept was waiting. */
  | 'caller_too_slow'
  /** This process is stopping. */
  | 'stopping'

/** A call that no node served, or not to its end. `message` is ours and holds nothing of the node's. */
export class DispatchError extends Error {
  override readonly name = 'DispatchError'
  readonly code: DispatchCode
  /**
   * The status code a node told; null for every code but `node_refused`, `node_failed` and
   * `node_busy`, and where it told none.
   */
  readonly status: number | null
  /** What the node said (attacker-controlled, printable, at most 500 characters), or null. */
  readonly nodeMessage: string | null
  /** Seconds that the node's backend asked to be left alone; null where it told none. */
  readonly retryAfterSeconds: number | null

  constructor(
    code: DispatchCode,
    message: string,
    details: {
      readonly status?: number | null
      readonly nodeMessage?: string | null
      readonly retryAfterSeconds?: number | null
    } = {},
  ) {
    super(message)
    this.code = code
    this.status = details.status ?? null
    this.nodeMessage = details.nodeMessage ?? null
    this.retryAfterSeconds = details.retryAfterSeconds ?? null
  }
}

/** Gives calls to nodes. */
export type Dispatcher = {
  /**
   * Gives the call to the node that will probably be done first, and resolves when its first token is there. Until then
   * a node that fails or is silent is replaced, at most `retriesMax` times; afterwards never. Rejects with DispatchError,
   * or with the signal's reason.
   */
  dispatch(call: NodeCall): Promise<NodeAnswer>
  /** Models that can be served now, with the number of nodes that are RUNNING, in the order of their names. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
}
