import type { SessionPlace } from '#attestation/demands.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { CALLS_MAX, writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import type { Unanswered } from '#attestation/unanswered.ts'
import type { AnchoredEvidence, AnchoredOptions } from './anchored.ts'
import { AffidavitError } from './errors.ts'
import { type Fetch, leavable } from './gateway.ts'
import type { Proof } from './proof.ts'
import { type CallSends, randomHex, unansweredIn } from './sends.ts'

/** The calls of one run of an agent, tied together by their places in the session. */
export type CallSession = {
  /** 16 bytes in hex. */
  readonly id: string
  /**
   * The `fetch` for the clients of the run. Its calls are made one after the other. A call with the
   * header `affidavit-last: true` is the last one: later calls are refused.
   */
  readonly fetch: Fetch
  /** Requests that no proven answer belongs to. The file of `save` has them too. */
  readonly unanswered: readonly Unanswered[]
  /** The proofs of the calls, in their order. Empty with the option `onProof`. */
  readonly proofs: readonly Proof[]
  /**
   * Waits until the chain has the anchors of all calls. Returns a file for `affidavit verify`, with
   * requests and answers. The file shows the session's end only if a call was marked as the last.
   */
  save(options?: AnchoredOptions | string): Promise<string>
  /** Resolves when the calls that were made so far have ended. */
  ended(): Promise<void>
}

/** Requests of one call without an answer, as a session keeps them for a later process. */
export type LostRequests = {
  /** 8 bytes in hex: the same for all statements about this call. */
  readonly call: string
  /** Empty: the call got its proven answer later, and the saved evidence states its requests. */
  readonly unanswered: readonly Unanswered[]
}

/** Options of a new session. */
export type CallSessionOptions = {
  /** Receives each proof. The session then keeps no proofs. */
  readonly onProof?: (proof: Proof) => void | Promise<void>
  /** Receives the requests of a call that got no proven answer, each time that they change. */
  readonly onLost?: (lost: LostRequests) => void
  /**
   * Decides whether the requests of a call in `onLost` belong to the session now. Default: all do.
   */
  readonly isOwn?: (call: string) => boolean
  /** Continues a session that was begun before. */
  readonly start?: SessionStart
}

const ID_BYTES = 16
const CALL_ID_BYTES = 8

export function createSession(
  options: CallSessionOptions,
  parts: {
    readonly open: (turns: SessionTurns, keep: (proof: Proof) => void | Promise<void>) => Fetch
    readonly anchored: (
      proof: Proof,
      options?: AnchoredOptions | string,
    ) => Promise<Pick<AnchoredEvidence, 'evidence'>>
  },
): CallSession {
  const { onProof, onLost = () => undefined, isOwn = () => true } = options
  const { start = { id: randomHex(ID_BYTES), n: 0, previous: null } } = options
  const proofs: Proof[] = []
  const keep = onProof ?? ((proof: Proof) => void proofs.push(proof))
  const turns = createSessionTurns(start, { onLost, isOwn })
  return {
    id: start.id,
    fetch: parts.open(turns, keep),
    get unanswered() {
      return turns.unanswered()
    },
    proofs,
    async save(options) {
      if (proofs.length === 0)
        throw new AffidavitError('invalid_options', 'expected a session with calls that it keeps')
      const calls: EvidenceBundle[] = []
      for (const proof of proofs) calls.push((await parts.anchored(proof, options)).evidence)
      return writeSession(calls, turns.unanswered())
    },
    ended: turns.ended,
  }
}

/** Writes a session as JSON Lines. The last call states the requests without a proven answer. */
export function writeSession(
  calls: readonly EvidenceBundle[],
  lost: readonly Unanswered[],
): string {
  const last = calls.length - 1
  return writeEvidenceLines(
    calls.map((call, at) => (at === last ? withUnanswered(call, lost) : call)),
  )
}

export function withUnanswered(
  evidence: EvidenceBundle,
  lost: readonly Unanswered[],
): EvidenceBundle {
  if (lost.length === 0) return evidence
  return { ...evidence, unanswered: [...(evidence.unanswered ?? []), ...lost] }
}

export type SessionTurn = {
  readonly place: SessionPlace
  /** Records the completion hash of this call. The next call states it as `previous`. */
  keep(proof: Pick<Proof, 'hash'>, sends: CallSends): void
  /** Records that the call has no proven answer yet. */
  lose(sends: CallSends): void
  /** Lets the next call begin. Without `keep`, the next call gets the same place as this call. */
  end(): void
}

/** Calls are made one at a time: each has the hash of the call before it. */
export type SessionTurns = {
  /**
   * Waits for all earlier calls to end. Rejects when `signal` aborts, after the last call, and
   * after CALLS_MAX calls, because no verifier reads a longer session.
   */
  next(options: { readonly isLast: boolean; readonly signal: AbortSignal }): Promise<SessionTurn>
  unanswered(): readonly Unanswered[]
  ended(): Promise<void>
}

/** Where a session continues: after `n` calls, of which the last one has the hash `previous`. */
export type SessionStart = Omit<SessionPlace, 'last'> & {
  /** The last call was made. Further calls are refused. */
  readonly isEnded?: true
  /** Requests without an answer, from before. */
  readonly unanswered?: readonly Unanswered[]
}

function createSessionTurns(
  start: SessionStart,
  { onLost, isOwn }: Required<Pick<CallSessionOptions, 'onLost' | 'isOwn'>>,
): SessionTurns {
  const { id } = start
  let { n, previous, isEnded = false } = start
  let queue: Promise<void> = Promise.resolve()
  const open = new Map<CallSends, LostRequests>()
  const record = (sends: CallSends, n: number, requests: readonly Unanswered[]): LostRequests => {
    const call = open.get(sends)?.call ?? randomHex(CALL_ID_BYTES)
    const lost = { call, unanswered: requests.map((one) => ({ n, ...one })) }
    if (requests.length === 0) open.delete(sends)
    else open.set(sends, lost)
    return lost
  }
  const unanswered = () => [
    ...(start.unanswered ?? []),
    ...[...open.values()].flatMap((lost) => (isOwn(lost.call) ? lost.unanswered : [])),
  ]
  return {
    unanswered,
    ended: () => queue,
    async next({ isLast, signal }) {
      const before = queue
      let end: () => void = () => undefined
      const running = new Promise<void>((resolve) => {
        end = resolve
      })
      queue = before.then(() => running)
      try {
        await leavable(before, signal)
        if (isEnded)
          throw new AffidavitError(
            'invalid_request',
            'expected no call after the last of a session',
          )
        if (n + unanswered().length >= CALLS_MAX)
          throw new AffidavitError(
            'invalid_request',
            `expected at most ${CALLS_MAX} calls in a session`,
          )
      } catch (fault) {
        end()
        throw fault
      }
      const place: SessionPlace = { id, n, previous, ...(isLast ? { last: true } : {}) }
      return {
        place,
        lose(sends) {
          const wasLost = open.has(sends)
          const lost = record(sends, place.n, unansweredIn(sends, null))
          if (wasLost || lost.unanswered.length > 0) onLost(lost)
        },
        keep({ hash }, sends) {
          const lost = open.get(sends)
          open.delete(sends)
          if (lost !== undefined) onLost({ ...lost, unanswered: [] })
          n = place.n + 1
          previous = hash
          isEnded = isLast
        },
        end,
      }
    },
  }
}
