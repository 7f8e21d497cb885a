import { ProofError } from '../attestation/errors.ts'
import { ownMembers } from '../attestation/own-members.ts'
import { checkNotRolledBack, type ReleaseList } from '../attestation/release/release-list.ts'
import { millisecondsOf } from '../attestation/release/release-signatures.ts'
import { AffidavitError } from './errors.ts'
import {
  type Expectations,
  type ExpectedPolicy,
  readExpectations,
  releaseLists,
} from './expectations.ts'

/** What is expected, whose releases can be exchanged for newer ones. */
type ReleaseUpdates = {
  /** The policy that the expectations say at first. */
  readonly policy: ExpectedPolicy
  /**
   * The policy with `releases` in place of those before: each list takes the place of the one
   * before, in their order, and further ones follow. Throws AffidavitError `older_releases` for a
   * list that is older or left out, `invalid_options` as readExpectations.
   */
  update(releases: Expectations['releases']): ExpectedPolicy
}

/**
 * Reads what is expected. Throws as readExpectations.
 *
 * Does NOT notice that a list is held back: where lists come from is for the caller to choose.
 */
export function createReleaseUpdates(
  expect: Expectations,
  options: Parameters<typeof readExpectations>[1],
): ReleaseUpdates {
  const policy = readExpectations(expect, options)
  const first = ownMembers(expect)
  // Times, not lists: the caller may change an object that was given.
  let takenMs = timesOf(releaseLists(first.releases))
  return {
    policy,
    update(releases) {
      if (first.releases === undefined)
        throw new AffidavitError(
          'invalid_options',
          'expected connect to have expect.releases and expect.releaseKeys: without them, no key may sign newer releases',
        )
      if (releases === undefined)
        throw new AffidavitError('invalid_options', 'expected releases: one list, or several lists')
      const next = readExpectations({ ...first, releases }, options)
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

/** A list that is left out, or older, could hide a revocation. */
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
