import type { ErasureStatement, StatedAbsence } from '../erasure.ts'
import { isoOf, printable } from './printable.ts'

/**
 * Says where content is that a record lacks, by what its gateway states of that, which nothing
 * binds; `stated` is null of an encrypted call. A clause without its full stop.
 */
export function sayAbsence(stated: StatedAbsence | null): string {
  if (stated === null) return 'only the caller has the content of an encrypted call'
  const rest = 'and only those who kept it have it'
  return stated.kind === 'erased'
    ? `content was erased, as the gateway states (${describeErasure(stated)}), ${rest}`
    : `content cannot be decrypted by the gateway, as it states (${stated.code}), ${rest}`
}

/** A clause as the beginning of a sentence. */
export function beginSentence(clause: string): string {
  return clause.slice(0, 1).toUpperCase() + clause.slice(1)
}

/** Says when, at whose request and why content was erased, by what a gateway states. */
export function describeErasure({ at, by, reason }: ErasureStatement): string {
  const whose = by === 'retention' ? 'by a retention rule' : `at the request of its ${by}`
  return `${isoOf(at * 1000)}, ${whose}: ${printable(reason)}`
}
