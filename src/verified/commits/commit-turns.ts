import { z } from 'zod'
import { createLoop } from '../../runtime/loop.ts'
import type { DatabaseSession } from '../../storage/postgres-session.ts'
import { type CommittedHead, type EncodedHead, encodedHead, encodeHead } from './committed-heads.ts'

const TRY_INTERVAL_MS = 1_000

/** Sent to the other gateways that use the database. */
type CommitNotice = {
  readonly notary: string
  /** The records of the first `size` leaves can be read. */
  readonly size: number
  /** Absent when the anchor is stored later. */
  readonly head?: CommittedHead
  /** This relayer paid for the anchor. The next member is its next nonce. */
  readonly relayer: string
  readonly nextNonce: number
}

/** The records of the first `size` leaves can be read. */
export type PublishedCommit = {
  readonly size: number
  /** True if the commit is from the gateway that has the turn. */
  readonly isByHolder: boolean
  /** Null when no other process published this head. */
  readonly head: EncodedHead | null
}

type TurnHooks = {
  onPublished(commit: PublishedCommit): void
  /** Called when this process gains or loses the turn. */
  onChange(): void
}

/** Lets one committer take and leave the turn for one log. */
export type CommitTurn = {
  readonly notary: string
  /** Also true while it is unknown which committer has the turn. */
  mayCommit(): boolean
  /** Returns true if this call got the turn. */
  take(): Promise<boolean>
  /** Gives up the turn, so that another committer can get it. The hooks are not called again. */
  leave(): Promise<void>
}

/**
 * Of several gateways on one database, only the gateway with the turn commits a log. Turns only
 * avoid double work: the commit statement alone makes sure that each leaf is committed once.
 */
export type CommitTurns = {
  /** Adds a committer, which then tries regularly to get the turn. */
  join(notary: string, hooks: TurnHooks): CommitTurn
  /** Null when no other gateway would receive the notice. */
  encodeNotice(notice: CommitNotice): string | null
}

const notices = z.union([
  z.object({
    kind: z.literal('committed'),
    by: z.string(),
    held: z.boolean(),
    head: encodedHead.optional(),
    notary: z.string(),
    size: z.number(),
    relayer: z.string(),
    next_nonce: z.number(),
  }),
  z.object({ kind: z.literal('free'), notary: z.string() }),
])

/** For a database that only one process uses. This process commits every log. */
export const ALWAYS_OURS: CommitTurns = {
  join: (notary) => ({
    notary,
    mayCommit: () => true,
    take: async () => false,
    leave: async () => undefined,
  }),
  encodeNotice: () => null,
}

/**
 * Turns are locks of the database session: the server releases them when this process dies.
 * `onNonce` receives nonces that other gateways used.
 */
export function createCommitTurns({
  session,
  gateway,
  onNonce,
}: {
  readonly session: DatabaseSession
  /** Unique among the processes. */
  readonly gateway: string
  readonly onNonce: (taken: Pick<CommitNotice, 'relayer' | 'nextNonce'>) => void
}): CommitTurns {
  const logs = new Map<string, SharedLog>()
  /** Null while no log has a committer in this process. */
  let endRounds: (() => Promise<void>) | null = null

  function receive(payload: string): void {
    const notice = parseNotice(payload)
    if (notice === null) return
    const log = logs.get(notice.notary)
    if (notice.kind === 'free') void log?.tryLock()
    else {
      const isOurs = notice.by === gateway
      const { relayer, next_nonce: nextNonce, size, held: isByHolder, head = null } = notice
      if (!isOurs) onNonce({ relayer, nextNonce })
      log?.publish({ size, isByHolder, head: isOurs ? null : head })
    }
  }

  function begin(): () => Promise<void> {
    const rounds = createLoop(async () => {
      await Promise.all([...logs.values()].map((log) => log.tryLock()))
      return TRY_INTERVAL_MS
    })
    const unsubscribe = session.subscribe({
      onNotice: receive,
      onChange() {
        for (const log of logs.values()) log.forget()
        rounds.wake()
      },
    })
    rounds.start()
    return async () => {
      unsubscribe()
      await rounds.stop()
    }
  }

  return {
    join(notary, hooks) {
      endRounds ??= begin()
      const log = logs.get(notary) ?? new SharedLog(notary, session)
      logs.set(notary, log)
      const member = log.enter(hooks)
      return {
        notary,
        mayCommit: () => !session.isUp() || log.isHeldBy(member),
        async take() {
          const wasHeld = log.isHeldBy(member)
          await log.tryLock()
          return !wasHeld && log.isHeldBy(member)
        },
        async leave() {
          if (log.leave(member)) return
          logs.delete(notary)
          await log.unlock()
          if (logs.size > 0) return
          const end = endRounds
          endRounds = null
          await end?.()
        },
      }
    },
    encodeNotice: ({ notary, size, head, relayer, nextNonce }) =>
      JSON.stringify({
        kind: 'committed',
        by: gateway,
        held: logs.get(notary)?.isLocked ?? false,
        notary,
        size,
        relayer,
        next_nonce: nextNonce,
        ...(head === undefined ? {} : { head: encodeHead(head) }),
      } satisfies z.input<typeof notices>),
  }
}

function parseNotice(payload: string): z.output<typeof notices> | null {
  try {
    return notices.safeParse(JSON.parse(payload)).data ?? null
  } catch {
    return null
  }
}

/** Has one committer for each endpoint of the log's enclave. */
class SharedLog {
  readonly #notary: string
  readonly #session: DatabaseSession
  /** While the lock is held, the first member commits. */
  readonly #members: TurnHooks[] = []
  #isLocked = false
  #trying: Promise<void> | null = null

  constructor(notary: string, session: DatabaseSession) {
    this.#notary = notary
    this.#session = session
  }

  get isLocked(): boolean {
    return this.#isLocked
  }

  isHeldBy(member: TurnHooks): boolean {
    return this.#isLocked && this.#members[0] === member
  }

  enter(hooks: TurnHooks): TurnHooks {
    const member = { ...hooks }
    this.#members.push(member)
    return member
  }

  leave(member: TurnHooks): boolean {
    const place = this.#members.indexOf(member)
    if (place >= 0) this.#members.splice(place, 1)
    if (place === 0) this.#members[0]?.onChange()
    return this.#members.length > 0
  }

  publish(commit: PublishedCommit): void {
    for (const member of [...this.#members]) member.onPublished(commit)
  }

  /** Called when the session has lost its locks. */
  forget(): void {
    this.#isLocked = false
    for (const member of [...this.#members]) member.onChange()
  }

  /** A session that locks twice must unlock twice, so only one attempt runs at a time. */
  tryLock(): Promise<void> {
    this.#trying ??= this.#try().finally(() => {
      this.#trying = null
    })
    return this.#trying
  }

  async unlock(): Promise<void> {
    await this.#trying
    if (!this.#isLocked || this.#members.length > 0) return
    this.#isLocked = false
    const notice = { kind: 'free', notary: this.#notary } satisfies z.input<typeof notices>
    await this.#session.unlock(this.#notary, JSON.stringify(notice))
  }

  async #try(): Promise<void> {
    if (this.#isLocked || this.#members.length === 0) return
    const isLocked = await this.#session.tryLock(this.#notary)
    if (!isLocked) return
    this.#isLocked = true
    this.#members[0]?.onChange()
  }
}
