import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { bundlePolicyOf } from '#attestation/report/judge-evidence.ts'
import { isOtherRoot } from '#attestation/report/unknown-root.ts'
import { FaultNotice } from '../kit/notices.tsx'
import { usePolicy } from '../kit/tab-policy.ts'
import { useLoaded } from '../kit/use-loaded.ts'
import { ExpectedDemand } from '../verify/expected-demand.tsx'
import { fillHere } from '../verify/fill-here.ts'
import type { FormPolicy } from '../verify/job.ts'
import { PolicyFault } from '../verify/policy-fault.ts'
import { readGivenPolicy } from '../verify/read-policy.ts'

type Expected = {
  /** Null until the page has parsed the policy. */
  readonly policy: BundlePolicy | null
  /** True if a root other than AWS's is trusted. */
  readonly isDevelopment: boolean
  /** Why the policy is invalid, or null. */
  readonly fault: unknown
}

/**
 * Returns this tab's policy for the checks of a log. If one is invalid, the policy is empty.
 */
export function useExpected(): Expected {
  const { policy } = usePolicy().inForce
  const { value } = useLoaded(async () => readPolicy(policy), [policy])
  return value ?? { policy: null, isDevelopment: false, fault: null }
}

async function readPolicy(given: FormPolicy): Promise<Expected> {
  try {
    const read = await readGivenPolicy({
      ...given,
      revocationLists: [],
      providers: '',
    })
    // These two members do not apply: an enclave's statement has no outcome, and the page asks no
    // chain about the statement.
    const { confirmationsMin, outcomes, ...policy } = bundlePolicyOf(read.expected)
    return { policy, isDevelopment: isOtherRoot(read.expected.attestation.roots), fault: null }
  } catch (fault) {
    return { policy: {}, isDevelopment: false, fault }
  }
}

export function LogExpectedPanel({ expected: { fault } }: { readonly expected: Expected }) {
  return (
    <>
      {fault !== null && (
        <FaultNotice fault={fault}>
          {fault instanceof PolicyFault ? fault.advice : undefined}
        </FaultNotice>
      )}
      <ExpectedDemand readFile={fillHere} />
    </>
  )
}
