import { sql } from 'kysely'
import type { Database } from '../storage/database.ts'
import { type EvidenceSubject, NOW_MS } from './provider-evidence-store.ts'

/**
 * Decides which gateway of a database collects evidence. Every method throws the driver's error.
 */
export type ProviderTurnsStore = {
  /**
   * Takes the turn if it is due. Also takes a turn that is due more than `laterMaxMs` from now,
   * because the interval has become shorter. No other gateway takes the turn until it is settled or
   * `limitMs` passed. Returns the number of failures in a row. Null if the turn is not due.
   */
  takeTurn(
    turn: EvidenceSubject & { readonly limitMs: number; readonly laterMaxMs: number },
  ): Promise<number | null>
  /** Makes the next turn due now, unless the last turn failed. */
  hurryTurn(subject: EvidenceSubject): Promise<void>
  /** Ends the turn. The next turn is due in `pauseMs`. */
  settleTurn(
    turn: EvidenceSubject & { readonly pauseMs: number; readonly failures: number },
  ): Promise<void>
}

export function createProviderTurnsStore({
  queries,
}: Pick<Database, 'queries'>): ProviderTurnsStore {
  return {
    async takeTurn({ origin, kind, limitMs, laterMaxMs }) {
      const { rows } = await sql<{ failures: number }>`
        insert into provider_turns as t (origin, kind, due_ms) values (${origin}, ${kind}, ${NOW_MS} + ${limitMs}::bigint)
        on conflict (origin, kind) do update set due_ms = excluded.due_ms
        where t.due_ms <= ${NOW_MS} or t.due_ms > ${NOW_MS} + ${Math.max(limitMs, laterMaxMs)}::bigint
        returning failures`.execute(queries)
      return rows[0]?.failures ?? null
    },
    async hurryTurn({ origin, kind }) {
      await sql`
        update provider_turns set due_ms = ${NOW_MS}
        where origin = ${origin} and kind = ${kind} and failures = 0`.execute(queries)
    },
    async settleTurn({ origin, kind, pauseMs, failures }) {
      await sql`
        update provider_turns set due_ms = ${NOW_MS} + ${Math.round(pauseMs)}::bigint, failures = ${failures}
        where origin = ${origin} and kind = ${kind}`.execute(queries)
    },
  }
}
