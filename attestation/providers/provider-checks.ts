import { NotAcceptedError } from '../errors.ts'
import type { Check } from '../finding.ts'
import { ProviderEvidenceError } from './provider-error.ts'

export type ProviderCheck<Name extends string = string> = Check<Name> & {
  /** The code of the fault; null if the check did not fail. */
  readonly code: string | null
  /** True if the check was not made because the policy or the hardware does not need it. */
  readonly isWaived: boolean
}

/** `detail` describes, for people, what the check established. */
export type Established<Value> = { readonly value: Value; readonly detail: string }

/** The reason why a check was not made. Such a check has not passed. */
export type NotMade = { readonly notChecked: string; readonly isWaived: boolean }

/** The checks of one judgement. Checks may run at the same time. */
export type ProviderChecks<Name extends string> = {
  /**
   * Makes a check. The check fails if `find` throws ProviderEvidenceError. Any other error is
   * thrown to the caller. Returns the established value. Null if the check failed or was not made:
   * the caller then skips the checks that need the value.
   */
  make<Value>(
    name: Name,
    find: () => Promise<Established<Value> | NotMade> | Established<Value> | NotMade,
  ): Promise<Value | null>
  /** In the order of the table. A check that `make` was not called for counts as failed. */
  list(): readonly ProviderCheck<Name>[]
}

/** `table`: all checks by name, in the order of the report. */
export function createProviderChecks<Name extends string>(
  table: Readonly<Record<Name, string>>,
): ProviderChecks<Name> {
  const made = new Map<string, ProviderCheck<Name>>()
  const add = (check: Omit<ProviderCheck<Name>, 'code' | 'isWaived'>, code: string | null = null) =>
    made.set(check.name, { ...check, code, isWaived: false })
  return {
    async make(name, find) {
      try {
        const found = await find()
        if ('notChecked' in found) {
          const { notChecked: detail, isWaived } = found
          made.set(name, { name, outcome: 'not checked', detail, code: null, isWaived })
          return null
        }
        add({ name, outcome: 'passed', detail: found.detail })
        return found.value
      } catch (fault) {
        if (!(fault instanceof ProviderEvidenceError)) throw fault
        const failed = { name, outcome: 'failed', detail: fault.message } as const
        add(POLICY_CODES.has(fault.code) ? { ...failed, isOfPolicy: true } : failed, fault.code)
        return null
      }
    },
    list: () => namesOf(table).map((name) => made.get(name) ?? leftOut(name)),
  }
}

/** Evidence refused with one of these codes can be genuine: the policy does not accept it. */
const POLICY_CODES: ReadonlySet<string> = new Set([
  'provider_kind',
  'provider_origin',
  'block_missing',
  'evidence_too_old',
  'tee_not_accepted',
  'configuration_not_accepted',
  'weights_unknown',
  'weights_not_accepted',
  'gpu_missing',
  'root_untrusted',
  'evaluation_number_old',
  'tcb_info_too_old',
  'qe_identity_too_old',
  'tcb_status_not_accepted',
  'tcb_advisory_not_accepted',
  'fmspc_not_accepted',
  'td_debug',
  'td_attributes_forbidden',
  'td_attributes_missing',
  'xfam_forbidden',
  'xfam_missing',
  'service_td',
  'measurement_mismatch',
  'debug_allowed',
  'migration_allowed',
  'migration_agent',
  'vmpl_unexpected',
  'tcb_below_floor',
  'host_data_mismatch',
  'firmware_provisional',
  'platform_info_not_accepted',
  'chip_not_accepted',
  'log_unknown',
  'authority_unknown',
  'identity_issuer',
  'identity_repository',
  'identity_ref',
  'identity_workflow',
  'artifact_not_accepted',
  'timestamp_log_unknown',
  'compose_not_accepted',
  'app_id_not_accepted',
  'os_image_not_accepted',
  'os_image_is_dev',
])

function namesOf<Name extends string>(table: Readonly<Record<Name, string>>): readonly Name[] {
  return Object.keys(table).filter((name): name is Name => Object.hasOwn(table, name))
}

function leftOut<Name extends string>(name: Name): ProviderCheck<Name> {
  const detail = 'this check was not made'
  return { name, outcome: 'failed', detail, code: 'left_out', isWaived: false }
}

export function established<Value>(value: Value, detail = ''): Established<Value> {
  return { value, detail }
}

export function blockedBy(name: string): NotMade {
  return { notChecked: `"${name}" did not pass`, isWaived: false }
}

export function notGiven(what: string): NotMade {
  return { notChecked: `${what} not given`, isWaived: false }
}

export function waived(reason: string): NotMade {
  return { notChecked: reason, isWaived: true }
}

/**
 * Throws ProviderEvidenceError unless each check passed or is waived. The error has the code of the
 * first failed check, or `not_checked` if no check failed.
 */
export function requireChecks(checks: readonly ProviderCheck[]): void {
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  if (failed) throw new ProviderEvidenceError(failed.code ?? 'failed', sayCheck(failed))
  const open = findOpen(checks)
  if (open) throw new ProviderEvidenceError('not_checked', sayCheck(open))
}

/**
 * Throws as requireChecks for a failed check, or NotAcceptedError if only the policy refuses the
 * evidence. Returns the first needed check that was not made, in words, or null.
 */
export function refuseFailedChecks(checks: readonly ProviderCheck[]): string | null {
  const failed = findWorst(checks)
  if (failed?.isOfPolicy) throw new NotAcceptedError(failed.code ?? 'failed', sayCheck(failed))
  if (failed) throw new ProviderEvidenceError(failed.code ?? 'failed', sayCheck(failed))
  const open = findOpen(checks)
  return open === undefined ? null : sayCheck(open)
}

/** What contradicts the evidence comes before what only the policy refuses. */
function findWorst(checks: readonly ProviderCheck[]): ProviderCheck | undefined {
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  return failed.find(({ isOfPolicy }) => isOfPolicy !== true) ?? failed[0]
}

function findOpen(checks: readonly ProviderCheck[]): ProviderCheck | undefined {
  return checks.find(({ outcome, isWaived }) => outcome === 'not checked' && !isWaived)
}

function sayCheck({ name, outcome, detail }: ProviderCheck): string {
  return `${name}, ${outcome}: ${detail}`
}
