import type { Check } from '../finding.ts'

type CheckNeed = 'always' | 'with a chain' | 'with a provider policy' | 'if made'

/** Checks by name, in the order of the report. Value: when `verified` needs the check. */
export type CheckTable<Name extends string> = Readonly<Record<Name, CheckNeed>>

/**
 * `verified`: no check failed, and every needed check passed. `incomplete`: no check failed, but
 * the checks in `open` were not made, so their facts are not proved. `not_accepted`: nothing
 * contradicts the evidence, but the reader's policy does not accept it. `invalid`: a check failed,
 * so the evidence was changed or forged.
 */
export type Verdict = 'verified' | 'incomplete' | 'not_accepted' | 'invalid'

/** True if the evidence must not be relied on. */
export function isRefused(verdict: Verdict): boolean {
  return verdict === 'invalid' || verdict === 'not_accepted'
}

export type Judgement<Name extends string> = {
  readonly verdict: Verdict
  /** The checks that `verified` needs but that were not made. */
  readonly open: readonly Name[]
}

/**
 * `hasChain` and `hasProviderPolicy`: true if the caller passed these, so that `verified` needs
 * their checks.
 */
export function judgeChecks<Name extends string>(
  checks: readonly Check<Name>[],
  {
    table,
    hasChain = false,
    hasProviderPolicy = false,
  }: {
    readonly table: CheckTable<Name>
    readonly hasChain?: boolean
    readonly hasProviderPolicy?: boolean
  },
): Judgement<Name> {
  const isNeeded: Readonly<Record<CheckNeed, boolean>> = {
    always: true,
    'with a chain': hasChain,
    'with a provider policy': hasProviderPolicy,
    'if made': true,
  }
  const open = checks
    .filter(({ name, outcome }) => outcome === 'not checked' && isNeeded[table[name]])
    .map(({ name }) => name)
  return { verdict: refusedAs(checks) ?? (open.length === 0 ? 'verified' : 'incomplete'), open }
}

/** Null if no check failed. */
export function refusedAs(checks: readonly Check<string>[]): 'invalid' | 'not_accepted' | null {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  if (failed.length === 0) return null
  return failed.every(({ isOfPolicy }) => isOfPolicy === true) ? 'not_accepted' : 'invalid'
}

/**
 * The checks in the order of the table. A missing check counts as failed. `isOfProvider`: true to
 * include the checks of a provider.
 */
export function orderChecks<Name extends string>(
  checks: readonly Check<Name>[],
  table: CheckTable<Name>,
  isOfProvider = false,
): readonly Check<Name>[] {
  const names = namesOf(table, isOfProvider, (name) => checks.some((one) => one.name === name))
  return names.map((name) => {
    const made = checks.find((one) => one.name === name)
    return made ?? { name, outcome: 'failed', detail: 'this check was not made' }
  })
}

/** The report on evidence with a wrong form: no other check was possible. `detail`: the reason. */
export function refuseForm<Name extends string>(
  table: CheckTable<Name>,
  {
    subject,
    detail,
    hasProviderPolicy = false,
  }: {
    readonly subject: string
    readonly detail: string
    readonly hasProviderPolicy?: boolean
  },
): Judgement<Name> & { readonly checks: readonly Check<Name>[] } {
  const checks = namesOf(table, hasProviderPolicy).map(
    (name): Check<Name> =>
      name === 'format'
        ? { name, outcome: 'failed', detail }
        : { name, outcome: 'not checked', detail: `${subject} has not the form of one` },
  )
  return { ...judgeChecks(checks, { table, hasChain: true, hasProviderPolicy }), checks }
}

function namesOf<Name extends string>(
  table: CheckTable<Name>,
  isOfProvider: boolean,
  isMade: (name: Name) => boolean = () => false,
): readonly Name[] {
  return Object.keys(table)
    .filter((name): name is Name => Object.hasOwn(table, name))
    .filter((name) => isOfProvider || table[name] !== 'with a provider policy')
    .filter((name) => table[name] !== 'if made' || isMade(name))
}
