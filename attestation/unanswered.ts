import { NOTARY } from './demands.ts'
import { formsOf } from './json/forms.ts'
import { isJsonObject, type Json } from './json/value.ts'

/**
 * The requests of a call to one enclave for which nothing proves what was made: the gateway may
 * have chosen the answer. Stated by the caller.
 */
export type Unanswered = {
  /** 0x, lower case. */
  readonly notary: string
  /** From 1. */
  readonly times: number
  /** Their place in the session, if it is not that of the call which states them. */
  readonly n?: number
}

/** The last call of a session has its own, and those of the session without a proven answer. */
export const UNANSWERED_MAX = 20_000

const { arrayOf, countOf, invalid, membersOf, textOf } = formsOf('invalid_unanswered')

/** Reads attacker-controlled `value`. Throws FormatError `invalid_unanswered`. */
export function parseUnanswered(value: Json | undefined): readonly Unanswered[] {
  const entries = arrayOf(value, 'unanswered', { min: 1, max: UNANSWERED_MAX }, ' entries')
  return entries.map((entry, at) => {
    const name = `unanswered.${at}`
    const hasPlace = isJsonObject(entry) && Object.hasOwn(entry, 'n')
    const { notary, times, n } = membersOf(entry, name, hasPlace ? [...MEMBERS, 'n'] : MEMBERS)
    const count = countOf(times, `${name}.times`)
    if (count === 0) throw invalid(`${name}.times`, 'a count from 1')
    return {
      ...(hasPlace ? { n: countOf(n, `${name}.n`) } : {}),
      notary: textOf(notary, `${name}.notary`, NOTARY),
      times: count,
    }
  })
}

const MEMBERS: readonly ('notary' | 'times' | 'n')[] = ['notary', 'times']

/** `answered`: the notary of the answer. */
export function sayUnanswered({ notary, times, n }: Unanswered, answered: string | null): string {
  const place = n === undefined ? '' : `number ${n}: `
  return notary === answered
    ? `${place}${times} without an answer, which may have been made`
    : `${place}also sent ${times} times to ${notary}, which may have made it`
}
