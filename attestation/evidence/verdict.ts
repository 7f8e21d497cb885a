import type { Check } from '../finding.ts'

/** Checks by name, in the order of the report. The value says when `verified` needs the check. */
export type CheckTable<Name extends string> = Readonly<Record<Name, 'always' | 'with a chain'>>

/** The result of all checks together. */
export type Judgement<Name extends string> = {
  /**
   * `verified`: no check failed, and every needed check passed. `consistent`: no check failed, but
   * the checks in `open` were not made, so their facts are not proved. `invalid`: a check failed,
   * so trust no part of the evidence.
   */
  readonly verdict: 'verified' | 'consistent' | 'invalid'
  /** The checks that `verified` needs but that were not made. */
  readonly open: readonly Name[]
}

/** Decides the verdict on these checks. `hasChain`: true if the caller passed facts of a chain. */
export function judgeChecks<Name extends string>(
  checks: readonly Check<Name>[],
  { table, hasChain }: { readonly table: CheckTable<Name>; readonly hasChain: boolean },
): Judgement<Name> {
  const open = checks
    .filter(
      ({ name, outcome }) => outcome === 'not checked' && (hasChain || table[name] === 'always'),
    )
    .map(({ name }) => name)
  if (checks.some(({ outcome }) => outcome === 'failed')) return { verdict: 'invalid', open }
  return { verdict: open.length === 0 ? 'verified' : 'consistent', open }
}

/** The checks in the order of the table. A missing check counts as failed. */
export function orderChecks<Name extends string>(
  checks: readonly Check<Name>[],
  table: CheckTable<Name>,
): readonly Check<Name>[] {
  return namesOf(table).map((name) => {
    const made = checks.find((one) => one.name === name)
    return made ?? { name, outcome: 'failed', detail: 'this check was not made' }
  })
}

/** The report on evidence with a wrong form: no other check was possible. `detail`: the reason. */
export function refuseForm<Name extends string>(
  table: CheckTable<Name>,
  { subject, detail }: { readonly subject: string; readonly detail: string },
): Judgement<Name> & { readonly checks: readonly Check<Name>[] } {
  const checks = namesOf(table).map(
    (name): Check<Name> =>
      name === 'format'
        ? { name, outcome: 'failed', detail }
        : { name, outcome: 'not checked', detail: `${subject} has not the form of one` },
  )
  return { ...judgeChecks(checks, { table, hasChain: true }), checks }
}

function namesOf<Name extends string>(table: CheckTable<Name>): readonly Name[] {
  return Object.keys(table).filter((name): name is Name => Object.hasOwn(table, name))
}
