import type { ErasureStatement, StatedAbsence } from '../erasure.ts'
import { isoOf, printable } from './printable.ts'

/**
 * Says why a record lacks content. Only its gateway states the reason: nothing proves it. `stated`
 * is null for an encrypted call. Returns a clause without a full stop.
 */
export function sayAbsence(stated: StatedAbsence | null): string {
  if (stated === null) return 'only the caller has the content of an encrypted call'
  const rest = 'and only those who kept it have it'
  return stated.kind === 'erased'
    ? `content was erased, as the gateway states (${describeErasure(stated)}), ${rest}`
    : `content cannot be decrypted by the gateway, as it states (${stated.code}), ${rest}`
}

export function beginSentence(clause: string): string {
  return clause.slice(0, 1).toUpperCase() + clause.slice(1)
}

/** Describes the erasure that the gateway states. Nothing proves the erasure. */
export function describeErasure({ at, by, reason }: ErasureStatement): string {
  const whose = by === 'retention' ? 'by a retention rule' : `at the request of its ${by}`
  return `${isoOf(at * 1000)}, ${whose}: ${printable(reason)}`
}
