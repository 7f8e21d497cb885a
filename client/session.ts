import type { SessionPlace } from '#attestation/demands.ts'
import { SESSION_CALLS_MAX, writeSessionBundle } from '#attestation/session/session-bundle.ts'
import type { Unanswered, UnansweredInSession } from '#attestation/unanswered.ts'
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
  readonly unanswered: readonly UnansweredInSession[]
  /** The proofs of the calls, in their order. Empty with the option `onProof`. */
  readonly proofs: readonly Proof[]
  /**
   * Waits until the chain has the anchors of all calls. Returns a file for `affidavit verify`, with
   * requests and answers. The file shows the session's end only if a call was marked as the last.
   */
  save(options?: AnchoredOptions | string): Promise<string>
}

/** Options of a new session. */
export type CallSessionOptions = {
  /** Receives each proof. The session then keeps no proofs. */
  readonly onProof?: (proof: Proof) => void | Promise<void>
  /** Continues a session that was begun before. */
  readonly start?: SessionStart
}

const ID_BYTES = 16

export function createSession(
  { onProof, start = { id: randomHex(ID_BYTES), n: 0, previous: null } }: CallSessionOptions,
  parts: {
    readonly open: (turns: SessionTurns, keep: (proof: Proof) => void | Promise<void>) => Fetch
    readonly anchored: (
      proof: Proof,
      options?: AnchoredOptions | string,
    ) => Promise<Pick<AnchoredEvidence, 'text'>>
  },
): CallSession {
  const proofs: Proof[] = []
  const keep = onProof ?? ((proof: Proof) => void proofs.push(proof))
  const turns = createSessionTurns(start)
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
      const calls: string[] = []
      for (const proof of proofs) calls.push((await parts.anchored(proof, options)).text)
      return writeSessionBundle(start.id, calls, turns.unanswered())
    },
  }
}

export type SessionTurn = {
  readonly place: SessionPlace
  /** Records the completion hash of this call. The next call states it as `previous`. */
  keep(proof: Pick<Proof, 'hash' | 'unanswered'>, sends: CallSends): void
  /** Records that the call has no proven answer yet. */
  lose(sends: CallSends): void
  /** Lets the next call begin. Without `keep`, the next call gets the same place as this call. */
  end(): void
}

/** Calls are made one at a time: each has the hash of the call before it. */
export type SessionTurns = {
  /**
   * Waits for all earlier calls to end. Rejects when `signal` aborts, after the last call, and
   * after SESSION_CALLS_MAX calls, because no verifier reads a longer session.
   */
  next(options: { readonly isLast: boolean; readonly signal: AbortSignal }): Promise<SessionTurn>
  unanswered(): readonly UnansweredInSession[]
}

/** Where a session continues: after `n` calls, of which the last one has the hash `previous`. */
export type SessionStart = Omit<SessionPlace, 'last'> & {
  /** The last call was made. Further calls are refused. */
  readonly isEnded?: true
}

function createSessionTurns(start: SessionStart): SessionTurns {
  const { id } = start
  let { n, previous, isEnded = false } = start
  let queue: Promise<void> = Promise.resolve()
  const open = new Map<CallSends, readonly UnansweredInSession[]>()
  const record = (sends: CallSends, place: SessionPlace, unanswered: readonly Unanswered[]) => {
    if (unanswered.length === 0) open.delete(sends)
    else
      open.set(
        sends,
        unanswered.map((one) => ({ n: place.n, ...one })),
      )
  }
  return {
    unanswered: () => [...open.values()].flat(),
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
        if (n + open.size >= SESSION_CALLS_MAX)
          throw new AffidavitError(
            'invalid_request',
            `expected at most ${SESSION_CALLS_MAX} calls in a session`,
          )
      } catch (fault) {
        end()
        throw fault
      }
      const place: SessionPlace = { id, n, previous, ...(isLast ? { last: true } : {}) }
      return {
        place,
        lose: (sends) => record(sends, place, unansweredIn(sends, null)),
        keep({ hash, unanswered }, sends) {
          record(sends, place, unanswered)
          n = place.n + 1
          previous = hash
          isEnded = isLast
        },
        end,
      }
    },
  }
}
