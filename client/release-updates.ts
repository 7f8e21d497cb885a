import { ProofError } from '#attestation/errors.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { ownMembers } from '#attestation/own-members.ts'
import { checkNotRolledBack, type ReleaseList } from '#attestation/release/release-list.ts'
import { millisecondsOf } from '#attestation/release/release-signatures.ts'
import {
  type EnclavesPolicy,
  type Policy,
  readEnclavesPolicy,
  releaseLists,
} from '#attestation/report/policy-file.ts'
import { AffidavitError, withErrorCode } from './errors.ts'

type ReleaseUpdates = {
  readonly policy: BundlePolicy
  /**
   * Replaces each old list with the new list at the same position. Adds lists at new positions.
   * Throws AffidavitError `older_releases` if a list is older or missing, and `invalid_options` if
   * readEnclavesPolicy throws.
   */
  update(releases: EnclavesPolicy['releases']): BundlePolicy
}

/**
 * Throws AffidavitError `invalid_options` if readEnclavesPolicy throws. Does NOT detect that a
 * newer list is held back: the caller chooses the source of the lists.
 */
export function createReleaseUpdates(
  policy: Policy,
  options: Parameters<typeof readEnclavesPolicy>[1],
): ReleaseUpdates {
  const read = (given: Policy) => {
    const enclaves = withErrorCode('invalid_options', () => readEnclavesPolicy(given, options))
    if (enclaves !== null) return enclaves
    throw new AffidavitError(
      'invalid_options',
      'expected policy.enclaves: without them, any enclave could sign',
    )
  }
  const enclaves = read(policy)
  const first = ownMembers(ownMembers(policy).enclaves ?? {})
  // Only the lists' times are kept: the caller may change the given objects.
  let takenMs = timesOf(releaseLists(first.releases))
  return {
    policy: enclaves,
    update(releases) {
      if (first.releases === undefined)
        throw new AffidavitError(
          'invalid_options',
          'expected policy.enclaves to have releases and releaseKeys: without them, no key ' +
            'may sign newer releases',
        )
      if (releases === undefined)
        throw new AffidavitError('invalid_options', 'expected releases: one list, or several lists')
      const next = read({ enclaves: { ...first, releases } })
      const lists = releaseLists(releases)
      checkNewer(lists, takenMs)
      takenMs = timesOf(lists)
      return next
    },
  }
}

function timesOf(lists: readonly ReleaseList[]): readonly number[] {
  return lists.map(({ issued_at }) => millisecondsOf(issued_at))
}

/** A missing or older list could hide a revocation. */
function checkNewer(lists: readonly ReleaseList[], takenMs: readonly number[]): void {
  if (lists.length < takenMs.length)
    throw older(`expected ${takenMs.length} lists or more, as before, got ${lists.length}`)
  for (const [at, newestMs] of takenMs.entries()) {
    const list = lists[at]
    if (list === undefined) continue
    try {
      checkNotRolledBack(list, newestMs)
    } catch (fault) {
      if (!(fault instanceof ProofError)) throw fault
      throw older(fault.message, fault)
    }
  }
}

function older(message: string, cause?: unknown): AffidavitError {
  return new AffidavitError(
    'older_releases',
    `${message}: the earlier releases stay in use`,
    cause === undefined ? {} : { cause },
  )
}
