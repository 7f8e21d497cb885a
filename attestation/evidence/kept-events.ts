import type { KeptAnswer } from '../compare-exchange.ts'
import type { DialectEvent } from '../dialects/dialect.ts'
import { eventDialectOf } from '../dialects/dialects.ts'
import { isJsonObject } from '../json/value.ts'
import type { EvidenceBundle, KeptEvent } from './bundle.ts'

/** The events of a kept stream, as evidence has them. Empty for a whole answer. */
export function keptEventsOf(answer: KeptAnswer): Pick<EvidenceBundle, 'events' | 'idempotent'> {
  if (answer.kind === 'whole') return {}
  const events: readonly KeptEvent[] =
    answer.kind === 'events'
      ? answer.events.map(({ event, data }) => ({ event, data }))
      : answer.chunks.filter(isJsonObject).map((data) => ({ data }))
  return { events, ...(answer.idempotent === true ? { idempotent: true } : {}) }
}

/**
 * The stream that evidence has. Null without events. No enclave gives out named events of a chat:
 * compareStream refuses them.
 */
export function streamIn({
  events,
  idempotent,
  record,
}: Pick<EvidenceBundle, 'events' | 'idempotent' | 'record'>): KeptAnswer | null {
  if (events === undefined) return null
  const repeated = idempotent === undefined ? {} : { idempotent }
  const isNamed = events.some((one) => 'event' in one)
  if (eventDialectOf(record.receipt.dialect) === null && !isNamed)
    return { kind: 'stream', chunks: events.map(({ data }) => data), ...repeated }
  const named: readonly DialectEvent[] = events.map((one) => ({ event: '', ...one }))
  return { kind: 'events', events: named, ...repeated }
}
