import { NOTARY } from './demands.ts'
import { formsOf } from './json/forms.ts'
import type { Json } from './json/value.ts'

/**
 * The requests of a call to one enclave for which nothing proves what was made: the gateway may
 * have chosen the answer. Stated by the caller.
 */
export type Unanswered = {
  /** 0x, lower case. */
  readonly notary: string
  /** From 1. */
  readonly times: number
}

/** Such requests at the place `n` of a session. */
export type UnansweredInSession = Unanswered & { readonly n: number }

export const UNANSWERED_MAX = 10_000

const { arrayOf, countOf, invalid, membersOf, textOf } = formsOf('invalid_unanswered')

/** Reads attacker-controlled `value`. Throws FormatError `invalid_unanswered`. */
export function parseUnanswered(value: Json | undefined): readonly Unanswered[] {
  return entriesOf(value).map((entry, at) => readOne(membersOf(entry, nameOf(at), MEMBERS), at))
}

/** Does the same as parseUnanswered, for a session. */
export function parseUnansweredInSession(value: Json | undefined): readonly UnansweredInSession[] {
  return entriesOf(value).map((entry, at) => {
    const members = membersOf(entry, nameOf(at), [...MEMBERS, 'n'])
    return { n: countOf(members.n, `${nameOf(at)}.n`), ...readOne(members, at) }
  })
}

const MEMBERS = ['notary', 'times'] as const

function entriesOf(value: Json | undefined): readonly Json[] {
  return arrayOf(value, 'unanswered', { min: 1, max: UNANSWERED_MAX }, ' entries')
}

function readOne(
  { notary, times }: { readonly notary: Json; readonly times: Json },
  at: number,
): Unanswered {
  const count = countOf(times, `${nameOf(at)}.times`)
  if (count === 0) throw invalid(`${nameOf(at)}.times`, 'a count from 1')
  return { notary: textOf(notary, `${nameOf(at)}.notary`, NOTARY), times: count }
}

function nameOf(at: number): string {
  return `unanswered.${at}`
}

/** `answered`: the notary of the answer. */
export function sayUnanswered({ notary, times }: Unanswered, answered: string | null): string {
  return notary === answered
    ? `${times} without an answer, which may have been made`
    : `also sent ${times} times to ${notary}, which may have made it`
}
